"""The deduplicate operator against a plain loop with a dict, over any epochs and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from holdfast.operators.base import Clock, Operator, Place
from holdfast.operators.deduplicate import DeduplicateOperator
from holdfast.operators.event_time import LATE, EventTime
from holdfast.operators.input_rows import SOURCE, TAG
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE, Hashes, partition_of, partition_range
from holdfast.state.keys import SortedRows, sort_rows
from holdfast.state.memory import MemoryRun
from holdfast.state.schema import HASH
from holdfast.state.view import FoundRows, TableView

KEYS = [("user", pa.string()), ("item", pa.int32())]
COLUMNS = [("at", pa.timestamp("us", "UTC")), ("item", pa.int32()), ("user", pa.string()), ("n", pa.int64())]  # fmt: skip

Row = tuple[str | None, int | None, int, int]
"""User, item, event time in µs, number."""


class Reader:
    """The state after some epochs, as a view shows it."""

    def __init__(self, operator: Operator, layers: Sequence[pa.Table], clock: Clock) -> None:
        times = TableClock(clock.processing_time_ms, clock.watermark_ms)
        runs = [(MemoryRun(str(i), rows), FULL_RANGE) for i, rows in enumerate(layers)]
        self.view = TableView(operator.tables[0], runs, times)

    def lookup(self, table: str, hashes: Hashes, keys: pa.Table) -> FoundRows:
        assert table == self.view.schema.table
        return self.view.lookup(hashes, keys)


def rows_in(operator: Operator, rows: Sequence[Row], hash_bits: int) -> pa.Table:
    hashes = []
    for user, item, _, _ in rows:
        digest = xxhash.xxh64_intdigest(repr((user, item)).encode())
        hashes.append(digest >> (64 - hash_bits) << (64 - hash_bits))
    columns: dict[str, Any] = {
        HASH: pa.array(hashes, pa.uint64()),
        "user": [r[0] for r in rows],
        "item": [r[1] for r in rows],
        TAG: list(range(len(rows))),
        SOURCE: [0] * len(rows),
        "at": [r[2] for r in rows],
        "n": [r[3] for r in rows],
    }
    schema = operator.input_schema
    return pa.table([pa.array(columns[f.name], f.type) for f in schema], schema=schema)


class Epochs:
    """Runs an operator over epochs, a task per partition."""

    def __init__(self, operator: DeduplicateOperator, hash_bits: int = 64) -> None:
        self.operator = operator
        self.hash_bits = hash_bits
        self.layers: list[pa.Table] = []
        self.greatest: int | None = None
        self.late: list[dict[str, Any]] = []
        self.remembered = 0

    def run(
        self, rows: Sequence[Row], *, partitions: int = 1, delay: int = 0, combine: bool = False
    ) -> list[dict[str, Any]]:
        watermark = None if self.greatest is None else self.greatest - delay
        clock = Clock(len(self.layers), 0, watermark)
        received = self.operator.receive(rows_in(self.operator, rows, self.hash_bits), clock)
        for ms in received.greatest_ms.values():
            self.greatest = ms if self.greatest is None else max(ms, self.greatest)
        for table in received.sides.values():
            self.late += table.to_pylist()
        parts = partition_of(received.rows.column(0).to_numpy(), partitions)
        written, out = [], []
        for p in range(partitions):
            part = received.rows.filter(pa.array(parts == p)).combine_chunks()
            work: SortedRows = sort_rows(part, 2)
            work = self.operator.combine(work) if combine else work
            place = Place(p, partitions, partition_range(p, partitions))
            reader: Any = Reader(self.operator, self.layers, clock)
            session = self.operator.open(reader, clock, place)
            update = session.update(work, place.range)
            session.close()
            changes = update.changes["deduplicate.seen"]
            assert changes.schema.equals(self.operator.tables[0].arrow, check_metadata=True)
            assert update.output.schema.equals(self.operator.output_schema)
            self.remembered += update.new_keys
            written.append(changes)
            out += update.output.to_pylist()
        merged = sort_rows(pa.concat_tables(written).combine_chunks(), 2)
        assert len(merged.starts) == merged.table.num_rows
        self.layers.insert(0, merged.table)
        return out


def numbers(rows: Sequence[dict[str, Any]]) -> list[int]:
    return sorted(row["n"] for row in rows)


pairs = st.tuples(st.sampled_from(["a", "b", "", None]), st.sampled_from([1, 2, None]))


@given(
    epochs=st.lists(st.lists(pairs, max_size=12), max_size=6),
    partitions=st.sampled_from([1, 2, 7]),
    combine=st.booleans(),
    hash_bits=st.sampled_from([64, 2]),
)
def test_the_first_row_of_every_key_goes_on(
    epochs: list[list[tuple[Any, Any]]], partitions: int, combine: bool, hash_bits: int
) -> None:
    runner = Epochs(DeduplicateOperator("deduplicate", KEYS, COLUMNS), hash_bits)
    seen: set[tuple[Any, Any]] = set()
    number = 0
    for epoch in epochs:
        rows: list[Row] = []
        expected = []
        for key in epoch:
            number += 1
            rows.append((*key, number, number))
            if key not in seen:
                seen.add(key)
                expected.append(number)
        assert numbers(runner.run(rows, partitions=partitions, combine=combine)) == expected
    assert runner.remembered == len(seen)


def test_rows_go_on_whole_in_the_order_of_the_input() -> None:
    runner = Epochs(DeduplicateOperator("deduplicate", KEYS, COLUMNS))
    out = runner.run([("a", 1, 5_000, 7), ("a", 1, 6_000, 8)])
    assert list(out[0]) == ["at", "item", "user", "n"]
    assert [(row["user"], row["item"], row["n"]) for row in out] == [("a", 1, 7)]


times = st.integers(0, 30).map(lambda ms: ms * 1000 + 1)


@given(
    epochs=st.lists(st.lists(st.tuples(pairs, times), max_size=8), max_size=7),
    delay=st.sampled_from([0, 3, 10]),
    partitions=st.sampled_from([1, 3]),
)
def test_keys_are_forgotten_when_the_watermark_has_passed_their_time(
    epochs: list[list[tuple[tuple[Any, Any], int]]], delay: int, partitions: int
) -> None:
    operator = DeduplicateOperator(
        "deduplicate", KEYS, COLUMNS, event_time=EventTime("at"), expires_after_ms=delay
    )
    runner = Epochs(operator)
    until: dict[tuple[Any, Any], int] = {}
    greatest: int | None = None
    number = 0
    late = []
    for epoch in epochs:
        watermark = None if greatest is None else greatest - delay
        rows: list[Row] = []
        expected = []
        for key, at in epoch:
            number += 1
            rows.append((*key, at, number))
            ms = at // 1000
            if watermark is not None and at <= watermark * 1000:
                late.append(number)
                continue
            known = key in until and (watermark is None or until[key] > watermark)
            if not known:
                expected.append(number)
                until[key] = ms + 1 + delay
        seen = [at // 1000 for _, at in epoch]
        greatest = max([*seen, *([] if greatest is None else [greatest])], default=None)
        assert numbers(runner.run(rows, partitions=partitions, delay=delay)) == expected
    assert numbers(runner.late) == late


def test_a_row_without_event_time_is_remembered_for_ever() -> None:
    operator = DeduplicateOperator(
        "deduplicate", KEYS, COLUMNS, event_time=EventTime("at"), expires_after_ms=5
    )
    runner = Epochs(operator)
    nothing: Any = None
    assert numbers(runner.run([("a", 1, nothing, 1)])) == [1]
    assert numbers(runner.run([("b", 1, 90_000_000, 2)])) == [2]
    assert runner.run([("a", 1, nothing, 3)]) == []


def test_what_it_says_of_itself() -> None:
    plain = DeduplicateOperator("deduplicate", KEYS, COLUMNS)
    assert plain.describe() == "deduplicate by user: string, item: int32"
    assert LATE not in plain.side_schemas
    timed = DeduplicateOperator(
        "deduplicate", KEYS, COLUMNS, event_time=EventTime("at"), expires_after_ms=5
    )
    assert timed.describe() != plain.describe()
    assert timed.side_schemas[LATE] == plain.output_schema
    assert np.array_equal(timed.input_schema.names, plain.input_schema.names)
    with pytest.raises(ValueError, match="event time"):
        DeduplicateOperator("deduplicate", KEYS, COLUMNS, expires_after_ms=5)
