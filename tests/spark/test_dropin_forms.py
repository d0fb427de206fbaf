"""Rows and frames as processors get them, where keys have many rows."""

# ruff: noqa: N803 - the names are PySpark's

from __future__ import annotations

import pickle
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from holdfast.errors import ProcessingError
from holdfast.operators.base import Clock, Place
from holdfast.operators.process.operator import ProcessOperator
from holdfast.operators.process.program import Chunk
from holdfast.spark.stateful import rows as row_form
from holdfast.spark.stateful.errors import PySparkRuntimeError
from holdfast.spark.stateful.frames import FrameForm
from holdfast.spark.stateful.program import StatefulProgram, discover
from holdfast.spark.stateful.rows import RowForm
from holdfast.spark.stateful.values import row_maker
from holdfast.state.hashing import FULL_RANGE
from holdfast.testing import ProcessorTester

OUTPUT = pa.schema([("n", pa.int64())])


def chunk_of(sizes: list[int]) -> tuple[Chunk, list[list[int]]]:
    """A chunk with keys of so many rows, and the values of each."""
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + size)
    values = list(range(offsets[-1]))
    rows = pa.table({"k": pa.array([0] * len(values)), "v": pa.array(values, pa.int64())})
    keys = pa.table({"k": pa.array(range(len(sizes)), pa.int64())})
    parts = [values[a:b] for a, b in pairwise(offsets)]
    return Chunk(keys, rows, offsets), parts


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 7))
@settings(max_examples=60)
def test_rows_are_those_of_their_key_wherever_blocks_end(sizes: list[int], block: int) -> None:
    chunk, parts = chunk_of(sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_form, "_BLOCK", block)
        given_rows = [
            [row.v for row in rows] for rows in RowForm(OUTPUT, "UTC", None, 0).inputs(chunk)
        ]
    assert given_rows == parts


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12))
@settings(max_examples=30)
def test_rows_that_are_not_read_are_not_given_to_the_next_key(sizes: list[int]) -> None:
    chunk, parts = chunk_of(sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_form, "_BLOCK", 3)
        firsts = [
            next((row.v for row in rows), None)
            for rows in RowForm(OUTPUT, "UTC", None, 0).inputs(chunk)
        ]
    assert firsts == [part[0] if part else None for part in parts]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 7))
@settings(max_examples=60)
def test_frames_have_a_limited_number_of_rows(sizes: list[int], most: int) -> None:
    chunk, parts = chunk_of(sizes)
    for frames, part in zip(
        FrameForm(OUTPUT, "UTC", most, None, 0).inputs(chunk), parts, strict=True
    ):
        given_frames = list(frames)
        assert [v for frame in given_frames for v in frame["v"]] == part
        assert all(0 < len(frame) <= most for frame in given_frames)
        assert all(list(frame.index) == list(range(len(frame))) for frame in given_frames)


def test_made_rows_are_rows() -> None:
    row = row_maker(("n", "count", "not a name", "_x"))((1, 2, 3, 4))
    assert isinstance(row, Row)
    assert row == Row(**{"n": 1, "count": 2, "not a name": 3, "_x": 4})
    assert (row.n, row["count"], row["not a name"], row._x, row[1]) == (1, 2, 3, 4, 2)
    assert row.count(2) == 1  # a tuple's own method, as in PySpark
    assert "n" in row
    assert "m" not in row
    with pytest.raises(AttributeError):
        _ = row.m
    back = pickle.loads(pickle.dumps(row))
    assert type(back) is Row
    assert (back, back.asDict()) == (row, row.asDict())
    assert repr(row) == "Row(n=1, count=2, not a name=3, _x=4)"


class Emits(StatefulProcessor):
    """Puts out the times it is given."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            yield Row(at=row.at)


def test_an_event_time_that_is_put_out_must_be_after_the_watermark() -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    processor = Emits()
    program = StatefulProgram(
        processor,
        discover(processor, "EventTime"),
        ["id"],
        schema,
        "EventTime",
        pandas=False,
        event_time="at",
    )
    probe = ProcessorTester(
        processor,
        columns="id string, at timestamp",
        keys="id",
        output="at timestamp",
        time_mode="EventTime",
    )
    operator = ProcessOperator(
        "process",
        [("id", pa.string())],
        [("id", pa.string()), ("at", schema.field(0).type)],
        program,
    )
    session = operator.open(probe._state, Clock(0, 5, 60_000), Place(0, 1, FULL_RANGE))

    def emit(second: int) -> Any:
        moment = pd.Timestamp(second, unit="s", tz="UTC").to_pydatetime()
        rows = pa.table({"id": ["a"], "at": pa.array([moment], schema.field(0).type)})
        chunk = Chunk(rows.select(["id"]), rows, [0, 1])
        return session.running.rows(chunk).output.num_rows  # type: ignore[attr-defined]

    assert emit(61) == 1
    with pytest.raises(PySparkRuntimeError) as caught:
        emit(60)
    assert "Emits in epoch 0" in str(caught.value)
    assert caught.value.getCondition() == "EMITTING_ROWS_OLDER_THAN_WATERMARK_NOT_ALLOWED"


class Priced(StatefulProcessor):
    """Puts out one frame, whatever comes."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        list(rows)
        yield pd.DataFrame({"price": self.values})

    def tester(self) -> ProcessorTester:
        return ProcessorTester(
            self, columns="id string", keys="id", output="price decimal(10,2)", pandas=True
        )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([1, 2]), ["1.00", "2.00"]),
        (np.array([3], np.int8), ["3.00"]),
        ([1, None], ["1.00", None]),
        (pd.array([4, None], "Int64"), ["4.00", None]),
        ([Decimal("1.5")], ["1.50"]),
    ],
)
def test_whole_numbers_are_decimals_too(values: Any, expected: list[str | None]) -> None:
    out = Priced(values).tester().process([("a",)])
    assert [None if row["price"] is None else str(row["price"]) for row in out] == expected


@pytest.mark.parametrize("values", [np.array([1.5]), np.array([10**9]), ["x"]])
def test_what_is_no_such_decimal_is_told_with_processor_key_and_epoch(values: Any) -> None:
    tester = Priced(values).tester()
    tester.epoch = 6
    with pytest.raises(ProcessingError) as caught:
        tester.process([("a",)])
    assert "Priced put out a DataFrame for key (id='a') in epoch 7" in str(caught.value)
    assert "column 'price' should be decimal(10,2)" in str(caught.value)
    assert "bytestring" not in str(caught.value)
