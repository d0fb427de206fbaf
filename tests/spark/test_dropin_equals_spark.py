"""The drop-in puts out what Spark's own engine does, batch by batch, for processors of every kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark import dropin_processors as processors
from tests.spark.dropin_support import (
    PROTOBUF,
    Case,
    assert_same,
    holdfast_batches,
    holdfast_run,
    spark_batches,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FORMS = pytest.mark.parametrize("pandas", [False, True], ids=["rows", "pandas"])
PLAIN = "id string, v long"
NUMBERS: list[list[tuple[Any, ...]]] = [
    [("a", 1), ("b", 2), ("a", 3), (None, 4)],
    [("a", 5), ("c", 6), ("c", 7), ("b", 8)],
    [("b", 9), ("a", 10), ("d", 11), ("b", 12), ("a", 13), (None, 14)],
    [("a", 15), ("b", 16), ("c", 17), ("d", 18), ("e", 19)],
    [("a", 20), ("a", 21), ("c", 22), ("e", 26), (None, 33)],
]
AVRO = {"spark.sql.streaming.stateStore.encodingFormat": "avro"}


@pytest.fixture(autouse=True)
def _protobuf(require: Callable[[str, str], None]) -> None:
    require("google", PROTOBUF)


def second(n: float) -> datetime:
    return processors.EPOCH + timedelta(seconds=n)


def made(kind: type[Any], pandas: bool) -> Callable[[], Any]:
    def make() -> Any:
        processor = kind()
        processor.pandas = pandas
        return processor

    return make


def case_of(kind: type[Any], pandas: bool, **given: Any) -> Case:
    basis = Case(made(kind, pandas), PLAIN, NUMBERS, kind.output, pandas=pandas)
    return replace(basis, **given)


def compare(spark: SparkSession, case: Case, work: Path) -> None:
    case.write(work / "in")
    theirs = spark_batches(spark, case, work / "in", work / "spark")
    ours = holdfast_batches(spark, case, work / "in", work / "holdfast")
    assert any(theirs.values())
    assert_same(ours, theirs, case)


@FORMS
def test_running_count(spark: SparkSession, tmp_path: Path, pandas: bool) -> None:
    kind = processors.ViolationsInFrames if pandas else processors.ViolationsInRows
    readings: list[list[tuple[Any, ...]]] = [
        [("s0", 123), ("s0", 23), ("s1", 33), ("s1", 188), ("s1", None)],
        [("s1", 101), ("s2", 100)],
        [("s0", 500), ("s2", 50), ("s2", 500)],
    ]
    case = Case(
        kind,
        "id string, temperature long",
        readings,
        "id string, count int, violations int",
        pandas=pandas,
    )
    compare(spark, case, tmp_path)


@FORMS
def test_value_list_and_map(spark: SparkSession, tmp_path: Path, pandas: bool) -> None:
    compare(spark, case_of(processors.ThreeKinds, pandas), tmp_path)


@FORMS
def test_event_time_timers(spark: SparkSession, tmp_path: Path, pandas: bool) -> None:
    rows = [
        [("a", second(10), 10, [3, 5, 6, 100]), ("b", second(20), 20, [7, 3, 20])],
        [("a", second(15), 15, [1]), ("b", second(8), 8, []), ("c", second(30), 30, [12])],
        [("a", second(12), 12, [2]), ("d", second(21), 21, [])],
        [("z", second(600), 600, [])],
        [("z", second(601), 601, [])],
        [("a", second(590), 590, [50]), ("z", second(602), 602, [])],
    ]
    case = case_of(
        processors.Alarms,
        pandas,
        columns="id string, ts timestamp, v long, set array<int>",
        epochs=rows,
        time_mode="eventTime",
        watermark=("ts", "5 seconds"),
    )
    compare(spark, case, tmp_path)


@pytest.mark.parametrize("timers", [[], [9]], ids=["nothing due", "a timer of another key due"])
def test_which_rows_are_late_in_the_next_run(
    spark: SparkSession, tmp_path: Path, timers: list[int]
) -> None:
    """A run over what is there now ends with a batch of the watermark that its last rows have set."""
    rows: list[list[tuple[Any, ...]]] = [
        [("a", second(10), 1, []), ("c", second(100), 2, timers)],
        [("a", second(50), 3, []), ("c", second(200), 4, [])],
    ]
    case = case_of(
        processors.Alarms,
        pandas=False,
        columns="id string, ts timestamp, v long, set array<int>",
        time_mode="eventTime",
        watermark=("ts", "5 seconds"),
    )
    for run in range(2):
        case = replace(case, epochs=rows[: run + 1])
        case.write(tmp_path / "in")
        theirs = spark_batches(spark, case, tmp_path / "in", tmp_path / "spark")
        ours = holdfast_run(spark, case, tmp_path / "in", tmp_path / "holdfast")
        assert any("rows" in row for batch in theirs.values() for row in batch)
        assert {n: batch for n, batch in ours.items() if batch} == {
            n: batch for n, batch in theirs.items() if batch
        }
    assert not any("rows [3]" in row for batch in theirs.values() for row in batch), "it is late"


@FORMS
def test_timers_before_there_is_a_watermark(
    spark: SparkSession, tmp_path: Path, pandas: bool
) -> None:
    """The first epochs are told that it is 0: what is due by then fires, and what is as old is late."""
    in_1960 = second(-2_000_000_000)
    rows = [
        [("a", None, 1, [-6_000, 0, 6_000]), ("b", None, 2, [0]), ("e", in_1960, 3, [0])],
        [("a", None, 4, [0, 1]), ("b", second(0), 5, [6_000]), ("c", in_1960, 6, [])],
        [("a", None, 7, [0, 1]), ("c", second(9), 8, [-1])],
        [("c", second(10), 9, [2])],
    ]
    case = case_of(
        processors.Dawn,
        pandas,
        columns="id string, ts timestamp, v long, set array<long>",
        epochs=rows,
        time_mode="eventTime",
        watermark=("ts", "5 seconds"),
    )
    compare(spark, case, tmp_path)


@FORMS
def test_timers_that_set_the_next(spark: SparkSession, tmp_path: Path, pandas: bool) -> None:
    rows = [
        [("a", second(1), 1), ("b", second(3), 3)],
        [("a", second(20), 20)],
        [("z", second(31), 31)],
        [("z", second(44), 44)],
        [("b", second(90), 90)],
        [("z", second(200), 200)],
        [("z", second(201), 201)],
        [("z", second(202), 202)],
    ]
    case = case_of(
        processors.Chain,
        pandas,
        columns="id string, ts timestamp, v long",
        epochs=rows,
        time_mode="EventTime",
        watermark=("ts", "0 seconds"),
    )
    compare(spark, case, tmp_path)


@FORMS
def test_processing_time_timers(spark: SparkSession, tmp_path: Path, pandas: bool) -> None:
    case = case_of(processors.Prompt, pandas, time_mode="processingtime", epochs=NUMBERS[:1])
    compare(spark, case, tmp_path)


@FORMS
def test_time_to_live(spark: SparkSession, tmp_path: Path, pandas: bool) -> None:
    compare(spark, case_of(processors.Fading, pandas, time_mode="ProcessingTime"), tmp_path)


@FORMS
def test_initial_state(spark: SparkSession, tmp_path: Path, pandas: bool) -> None:
    seeds = [("a", 10.0, "ten"), ("a", 1.0, "one"), ("d", 5.0, "five"), ("never", 0.5, "half")]
    case = case_of(
        processors.Seeded,
        pandas,
        initial=("owner string, amount double, note string", seeds, ("owner",)),
    )
    compare(spark, case, tmp_path)


@FORMS
def test_deleted_variables(spark: SparkSession, tmp_path: Path, pandas: bool) -> None:
    compare(spark, case_of(processors.Purged, pandas), tmp_path)


@FORMS
def test_large_values(spark: SparkSession, tmp_path: Path, pandas: bool) -> None:
    compare(spark, case_of(processors.Heavy, pandas, epochs=NUMBERS[:3]), tmp_path)


@FORMS
def test_composite_keys_and_nulls(spark: SparkSession, tmp_path: Path, pandas: bool) -> None:
    day = date(2024, 2, 29)
    rows = [
        [("x", day, 1, 1), ("x", None, 2, 2), (None, None, 3, 3), ("", day, 4, 4)],
        [("x", day, 1, 5), ("x", day, 2, 6), (None, None, 3, 7), (None, day, 4, 8)],
        [("x", day, 1, 9), ("", day, 4, 10), (None, None, 3, 11), ("x", None, 2, 12)],
    ]
    case = case_of(
        processors.Composite,
        pandas,
        columns="a string, b date, c int, v long",
        keys=("a", "b", "c"),
        epochs=rows,
    )
    compare(spark, case, tmp_path)


@FORMS
def test_keys_that_are_structs(spark: SparkSession, tmp_path: Path, pandas: bool) -> None:
    """A null struct, a struct of nulls and one with a null among its fields are three keys."""

    def place(x: int | None, f: float | None, day: date | None = None) -> dict[str, Any]:
        return {"x": x, "at": None if f is None else {"f": f, "day": day}}

    first, day = place(1, 0.5), date(2024, 2, 29)
    rows = [
        [(first, second(1), 1), (None, second(1), 2), (place(None, None), second(1), 3)],
        [(first, second(3), 4), (place(1, None), second(3), 5), (None, second(3), 6)],
        [(place(1, 0.5, day), second(20), 7), (place(2, 0.0), second(20), 8)],
        [(place(2, 0.0), second(40), 9), (place(None, None), second(40), 10)],
        [(first, second(50), 11), (None, second(50), 12)],
    ]
    case = case_of(
        processors.Placed,
        pandas,
        columns="p struct<x:int,at:struct<f:double,day:date>>, ts timestamp, v long",
        keys=("p",),
        epochs=rows,
        time_mode="EventTime",
        watermark=("ts", "0 seconds"),
    )
    compare(spark, case, tmp_path)


@FORMS
def test_values_of_numpy_and_pandas(spark: SparkSession, tmp_path: Path, pandas: bool) -> None:
    compare(spark, case_of(processors.Foreign, pandas), tmp_path)


@FORMS
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_rows_of_every_type(spark: SparkSession, tmp_path: Path, pandas: bool, zone: str) -> None:
    columns = (
        "id string, i int, l long, y byte, h short, f float, d double, b boolean, s string, "
        "raw binary, day date, ts timestamp, ntz timestamp_ntz, money decimal(10,2), "
        "st struct<a:int,t:timestamp>, ar array<int>, mp map<string,int>"
    )
    when = datetime(2024, 7, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
    full: tuple[Any, ...] = ("a", 1, 2, 3, 4, 1.5, 2.5, True, "x", b"bb", date(2024, 1, 2), when)
    full += (when.replace(tzinfo=None), Decimal("1.20"), {"a": 1, "t": when}, [1, 2], [("p", 1)])
    blank = ("b",) + (None,) * (len(full) - 1)
    case = case_of(
        processors.Mirror,
        pandas,
        columns=columns,
        epochs=[[full, full], [full], [full[:1] + blank[1:]]],
        settings={"spark.sql.session.timeZone": zone},
    )
    compare(spark, case, tmp_path)


@FORMS
def test_a_schema_that_evolves(spark: SparkSession, tmp_path: Path, pandas: bool) -> None:
    first = case_of(processors.Narrow, pandas, epochs=NUMBERS[:2], settings=AVRO)
    then = case_of(processors.Wide, pandas, epochs=NUMBERS[:4], settings=AVRO)
    first.write(tmp_path / "in")
    theirs = spark_batches(spark, first, tmp_path / "in", tmp_path / "spark")
    ours = holdfast_batches(spark, first, tmp_path / "in", tmp_path / "holdfast")
    assert_same(ours, theirs, first)
    then.write(tmp_path / "in")
    theirs = spark_batches(spark, then, tmp_path / "in", tmp_path / "spark")
    ours = holdfast_batches(spark, then, tmp_path / "in", tmp_path / "holdfast", done=2)
    assert set(theirs) == {2, 3}
    assert_same(ours, theirs, then)
