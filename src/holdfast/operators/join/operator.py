"""What joins have in common: two sides in one input, their times, their late rows, their output."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.errors import InputError
from holdfast.operators.base import Clock, Operator, Received
from holdfast.operators.columns import column, is_valid, numbers
from holdfast.operators.event_time import EventTime
from holdfast.operators.input_rows import SOURCE, Fields, input_row_schema
from holdfast.operators.join.packing import Packing, SideName, pack
from holdfast.operators.join.rows import SideRows
from holdfast.state.columns import Indices, one_array

__all__ = ["LATE_LEFT", "LATE_RIGHT", "JoinOperator", "JoinOutput"]

LATE_LEFT = "late_left"
"""The side output that late rows of the left side go to."""
LATE_RIGHT = "late_right"
"""The side output that late rows of the right side go to."""
_SIDES: tuple[tuple[SideName, int, str], ...] = (("left", 0, LATE_LEFT), ("right", 1, LATE_RIGHT))


class JoinOutput:
    """The columns of a join's output, and how rows of the sides fill them."""

    def __init__(self, on: Fields, left: Fields, right: Fields, *, left_only: bool = False) -> None:
        keys = {name for name, _ in on}
        self._on = [name for name, _ in on]
        self._left = [(name, kind) for name, kind in left if name not in keys]
        self._right = [] if left_only else [f for f in right if f[0] not in keys]
        self.schema = pa.schema([*on, *self._left, *self._right])

    def pairs(
        self, left: SideRows, right: SideRows, of_left: Indices, of_right: Indices
    ) -> pa.Table:
        """Rows of the left side, each with its match of the right side."""
        arrays = left.at(of_left, [*self._on, *_names(self._left)])
        arrays += right.at(of_right, _names(self._right))
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def left_alone(self, left: SideRows, picked: Indices) -> pa.Table:
        """Rows of the left side without a match."""
        arrays = left.at(picked, [*self._on, *_names(self._left)])
        arrays += [pa.nulls(len(picked), kind) for _, kind in self._right]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def right_alone(self, right: SideRows, picked: Indices) -> pa.Table:
        """Rows of the right side without a match."""
        arrays = right.at(picked, self._on)
        arrays += [pa.nulls(len(picked), kind) for _, kind in self._left]
        arrays += right.at(picked, _names(self._right))
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def together(self, tables: Sequence[pa.Table]) -> pa.Table:
        """All of these, none of which is copied."""
        filled = [table for table in tables if table.num_rows]
        return pa.concat_tables(filled) if filled else self.schema.empty_table()


class JoinOperator(Operator):
    """An operator with two inputs that arrive as one: rows of both sides, their columns packed."""

    def __init__(
        self,
        id: str,  # noqa: A002 - the operator's word for it
        on: Fields,
        left: Fields,
        right: Fields,
        *,
        left_time: EventTime,
        right_time: EventTime,
    ) -> None:
        self.id = id
        self.on, self.left, self.right = tuple(on), tuple(left), tuple(right)
        self.times = {"left": left_time, "right": right_time}
        self._check()
        self.packing: Packing = pack(left, right, [name for name, _ in on])
        self.side_schemas = {LATE_LEFT: pa.schema(self.left), LATE_RIGHT: pa.schema(self.right)}

    def _check(self) -> None:
        if not self.on:
            raise InputError("a join needs a column to join on", hint="name the columns in `on`")
        for side, fields in (("left", self.left), ("right", self.right)):
            kinds = dict(fields)
            for name, kind in self.on:
                if kinds.get(name) != kind:
                    has = f"has it as {kinds[name]}" if name in kinds else "doesn't have it"
                    raise InputError(
                        f"the join is on {name!r} ({kind}), but the {side} side {has}",
                        hint="rename or cast the column on one side, so that both have it alike",
                    )
            time = self.times[side].column
            kind = kinds.get(time)
            if kind is None or not pa.types.is_timestamp(kind) or kind.unit != "us":
                raise InputError(
                    f"the {side} side of the join has no timestamp column {time!r}",
                    hint="name a timestamp column of that side as its event time",
                )

    def _check_output(self, *, left_only: bool = False) -> None:
        """Raise ``InputError`` if a name would occur twice."""
        keys = {name for name, _ in self.on}
        ours = {name for name, _ in self.left} - keys
        theirs = set() if left_only else {name for name, _ in self.right} - keys
        both = sorted(ours & theirs)
        if both:
            raise InputError(
                f"both sides of the join have a column named {both[0]!r}",
                hint="rename it on one side before the join",
            )

    @cached_property
    def input_schema(self) -> pa.Schema:
        """Hash, what is joined on, order, source (0: left, 1: right), then the slots."""
        return input_row_schema(self.on, self.packing.slots)

    @property
    def key_columns(self) -> int:
        """What is joined on."""
        return len(self.on)

    def receive(self, rows: pa.Table, clock: Clock) -> Received:
        """Note the greatest event time of each side, and set late rows apart."""
        source = numbers(one_array(rows.column(SOURCE)))
        late = np.zeros(rows.num_rows, np.bool_)
        greatest: dict[str, int] = {}
        sides: dict[str, pa.Table] = {}
        for name, number, aside in _SIDES:
            time = self.times[name]
            kind = self.side_schemas[aside].field(time.column).type
            times = column(rows, self.packing.slot(time.column, name), kind)
            known, micros = is_valid(times), numbers(times)
            mine = source == number if known is None else (source == number) & known
            if not mine.any():
                continue
            greatest[name] = int(micros[mine].max()) // 1000
            if clock.late_ms is None:
                continue
            over = mine & (micros <= (clock.late_ms - time.allowed_lateness_ms) * 1000)
            if over.any():
                sides[aside] = self.packing.unpack(rows.filter(pa.array(over)), name)
                late |= over
        kept = rows.filter(pa.array(~late)) if sides else rows
        return Received(kept, sides, greatest_ms=greatest)

    def _sides_in_words(self) -> str:
        """The columns and times of both sides, for :meth:`describe`."""
        lines = []
        for side, fields in (("left", self.left), ("right", self.right)):
            time = self.times[side]
            columns = ", ".join(f"{name}: {kind}" for name, kind in fields)
            lateness = f", {time.allowed_lateness_ms} ms late" if time.allowed_lateness_ms else ""
            lines.append(f"{side}: {columns}; at {time.column}{lateness}")
        return "\n".join(lines)


def _names(fields: Fields) -> list[str]:
    return [name for name, _ in fields]
