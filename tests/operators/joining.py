"""What tests of joins share: two streams as rows, and the epochs that they come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from holdfast.operators.base import Clock
from holdfast.operators.input_rows import SOURCE, TAG
from holdfast.operators.join.operator import JoinOperator
from holdfast.state.schema import HASH
from tests.operators.epochs import Hashed, spread

TS = pa.timestamp("us", "UTC")
ON = [("user", pa.string()), ("shop", pa.int32())]
LEFT = [("lts", TS), ("user", pa.string()), ("l", pa.int64()), ("shop", pa.int32()), ("lname", pa.string())]  # fmt: skip
RIGHT = [("r", pa.int64()), ("user", pa.string()), ("shop", pa.int32()), ("rts", TS), ("rother", TS), ("gone", pa.bool_())]  # fmt: skip


class Row(NamedTuple):
    """A row of either side: ``number`` tells it apart from all others."""

    side: int
    user: str | None
    shop: int | None
    at: int | None
    number: int
    gone: bool = False

    @property
    def key(self) -> tuple[str | None, int | None]:
        return (self.user, self.shop)

    @property
    def has_null(self) -> bool:
        return self.user is None or self.shop is None

    def columns(self) -> dict[str, Any]:
        """The columns of its side."""
        if self.side == 0:
            name = None if self.number % 3 == 0 else f"n{self.number}"
            own = {"lts": self.at, "l": self.number, "lname": name}
        else:
            own = {"r": self.number, "rts": self.at, "rother": None, "gone": self.gone}
        return {"user": self.user, "shop": self.shop, **own}


def rows_in(operator: JoinOperator, rows: Sequence[Row], hashed: Hashed = spread) -> pa.Table:
    """Rows as Spark would send them; their places are their order in the source."""
    given: dict[str, list[Any]] = {name: [] for name in operator.input_schema.names}
    packing = operator.packing
    for place, row in enumerate(rows):
        values = {HASH: hashed(row.key), TAG: place, SOURCE: row.side}
        slots = packing.right if row.side else packing.left
        for name, value in row.columns().items():
            values[slots.get(name, name)] = value
        for name, column in given.items():
            column.append(values.get(name))
    schema = operator.input_schema
    return pa.table([pa.array(given[f.name], f.type) for f in schema], schema=schema)


class Step(NamedTuple):
    """An epoch: its rows, how much the watermark moves, and in how many partitions it runs."""

    rows: tuple[Row, ...]
    move_ms: int | None
    partitions: int


def steps(*, most_epochs: int = 6, most_rows: int = 10) -> st.SearchStrategy[list[Step]]:
    """Epochs of any rows: keys with nulls, times out of order and missing."""
    row = st.tuples(
        st.integers(0, 1),
        st.sampled_from(["a", "b", "a", None]),
        st.sampled_from([1, 1, 2, None]),
        st.one_of(
            st.none(), st.integers(-3_000, 25_000), st.integers(0, 24).map(lambda s: s * 1000)
        ),
        st.booleans(),
    )
    epoch = st.tuples(
        st.lists(row, max_size=most_rows),
        st.one_of(st.none(), st.integers(0, 12)),
        st.integers(1, 4),
    )

    def numbered(epochs: list[Any]) -> list[Step]:
        made, number = [], 0
        for rows, move, partitions in epochs:
            fresh = []
            for side, user, shop, at, gone in rows:
                number += 1
                fresh.append(Row(side, user, shop, at, number, gone))
            made.append(Step(tuple(fresh), move, partitions))
        return made

    return st.lists(epoch, max_size=most_epochs).map(numbered)


def drifting_steps() -> st.SearchStrategy[list[Step]]:
    """Epochs of a few rows of few keys, whose times go along with the watermark: rows meet others
    of epochs before and after, and have their time come while that goes on."""
    row = st.tuples(st.integers(0, 1), st.sampled_from("aaab"), st.integers(-2_000, 5_000))
    epoch = st.tuples(st.lists(row, max_size=3), st.integers(1, 3), st.integers(1, 2))

    def numbered(epochs: list[Any]) -> list[Step]:
        made, number = [], 0
        for place, (rows, move, partitions) in enumerate(epochs):
            fresh = []
            for side, user, at in rows:
                number += 1
                fresh.append(Row(side, user, 1, place * 2000 + at, number, number % 4 == 0))
            made.append(Step(tuple(fresh), move, partitions))
        return made

    return st.lists(epoch, min_size=5, max_size=10).map(numbered)


def ceil_ms(micros: int) -> int:
    return -(-micros // 1000)


def is_late(row: Row, clock: Clock, lateness: Sequence[int]) -> bool:
    if row.at is None or clock.late_ms is None:
        return False
    return ceil_ms(row.at) <= clock.late_ms - lateness[row.side]


def moved(watermark: int | None, move_ms: int | None) -> int | None:
    """The next watermark: none while none has been, then never back."""
    if move_ms is None:
        return watermark
    return move_ms - 3 if watermark is None else watermark + move_ms


def times_of(rows: Sequence[Row], side: int) -> list[int]:
    return [row.at // 1000 for row in rows if row.side == side and row.at is not None]
