"""What can't be a dataflow is refused where it is written, with what to do instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.operators.description import Description
from holdfast.testing import EpochSource
from tests.spark.support import step_on

pytestmark = pytest.mark.spark

SCHEMA = "k string, v long, ts timestamp"


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> EpochSource:
    return EpochSource(spark, SCHEMA, tmp_path / "in")


@pytest.fixture
def rows(source: EpochSource) -> hf.Stream:
    return hf.stream(source.df)


@pytest.fixture
def timed(rows: hf.Stream) -> hf.Stream:
    return rows.with_watermark("ts", "1 s")


def test_a_join_without_a_time_bound(timed: hf.Stream, rows: hf.Stream) -> None:
    right = hf.stream(rows.select("k", F.col("ts").alias("at")).df).with_watermark("at", "1 s")
    with pytest.raises(hf.InputError, match="without a time bound") as refused:
        timed.join(right, "k")
    assert "between=" in str(refused.value)
    with pytest.raises(hf.InputError, match="not above the upper"):
        timed.join(right, "k", between=("5 s", "-5 s"))
    with pytest.raises(hf.InputError, match="give a lower and an upper bound"):
        timed.join(right, "k", between="5 s")  # type: ignore[arg-type]
    with pytest.raises(hf.InputError, match="left side of the join has no watermark"):
        rows.join(right, "k", between=("0 s", "1 s"))
    with pytest.raises(hf.InputError, match="'x', which the left side doesn't have"):
        timed.join(right, "x", between=("0 s", "1 s"))


def test_two_columns_of_a_join_with_one_name(timed: hf.Stream, rows: hf.Stream) -> None:
    right = hf.stream(rows.select("k", "v", F.col("ts").alias("at")).df)
    with pytest.raises(hf.InputError, match="'v'"):
        timed.join(right.with_watermark("at", "1 s"), "k", between=("0 s", "1 s"))


def test_a_window_without_a_watermark(rows: hf.Stream) -> None:
    with pytest.raises(hf.InputError, match="no watermark") as refused:
        rows.key_by("k").window(hf.tumbling("10 s"))
    assert "with_watermark" in str(refused.value)


def test_a_slide_larger_than_its_window() -> None:
    with pytest.raises(hf.InputError, match="rows between windows would be lost"):
        hf.sliding("10 s", "20 s")


def test_a_global_window_that_would_never_put_anything_out(timed: hf.Stream) -> None:
    with pytest.raises(hf.InputError, match=r"say emit=hf\.emit"):
        timed.key_by("k").window(hf.global_window()).aggregate(n=hf.count())


def test_a_cycle_without_iterate(timed: hf.Stream) -> None:
    counts = timed.key_by("k").aggregate(n=hf.count()).named("circle")
    # Streams can't be changed, so a circle takes some violence.
    object.__setattr__(counts.keyed, "source", counts.rows)
    with pytest.raises(hf.InputError, match="'circle' reads its own results") as refused:
        counts.write_to(hf.sinks.noop()).explain()
    assert "iterate" in str(refused.value)


def test_two_operators_with_one_name(rows: hf.Stream) -> None:
    one = rows.key_by("k").aggregate(n=hf.count()).named("same")
    two = rows.key_by("v").aggregate(n=hf.count()).named("same")
    both = hf.pipeline(one.write_to(hf.sinks.noop()), two.write_to(hf.sinks.noop()))
    with pytest.raises(hf.InputError, match="two operators are named 'same'"):
        both.explain()


@pytest.mark.parametrize("name", ["", "1st", "sink-0", "side-x", "a b", "a.b"])
def test_names_that_operators_cant_have(name: str, rows: hf.Stream) -> None:
    with pytest.raises(hf.InputError, match="an operator can't be named"):
        rows.key_by("k").aggregate(n=hf.count()).named(name)


def test_one_sink_for_two_streams(rows: hf.Stream) -> None:
    sink = hf.sinks.noop()
    one = rows.key_by("k").aggregate(n=hf.count()).write_to(sink)
    two = rows.select("v").write_to(sink)
    with pytest.raises(hf.InputError, match="used twice"):
        hf.pipeline(one, two).explain()


def test_unions_of_streams_that_differ(rows: hf.Stream, timed: hf.Stream) -> None:
    with pytest.raises(hf.InputError, match="differ in v"):
        rows.union(rows.select("k", "ts"))
    with pytest.raises(hf.InputError, match="watermark on the same column"):
        rows.union(timed)


def test_a_watermark_on_results_of_a_stream_without_one(rows: hf.Stream) -> None:
    last = rows.key_by("k").aggregate(last=hf.max("ts"))
    with pytest.raises(hf.InputError, match="neither it nor an operator before it follows"):
        last.with_watermark("last", "1 s")


def test_a_watermark_on_results_of_a_running_aggregate(timed: hf.Stream) -> None:
    """An aggregate doesn't look at event times: the watermark would never move."""
    last = timed.key_by("k").aggregate(last=hf.max("ts"))
    with pytest.raises(hf.InputError, match="not a running aggregate"):
        last.with_watermark("last", "1 s")


def test_spark_state_behind_an_operator(rows: hf.Stream) -> None:
    counts = rows.key_by("k").aggregate(n=hf.count())
    with pytest.raises(hf.InputError, match="stateful operator of Spark's"):
        counts.transform(lambda df: df.groupBy("n").count())


def test_columns_that_results_dont_have(rows: hf.Stream) -> None:
    counts = rows.key_by("k").aggregate(n=hf.count())
    with pytest.raises(hf.InputError, match="'word', which the input doesn't have"):
        counts.key_by("word").aggregate(m=hf.max("n"))
    with pytest.raises(hf.InputError, match="no side output 'late'"):
        counts.side("late")


def test_a_body_that_returns_no_two_streams(rows: hf.Stream) -> None:
    with pytest.raises(hf.InputError, match="return two streams"):
        rows.iterate(lambda loop: loop)  # type: ignore[arg-type, return-value]
    with pytest.raises(hf.InputError, match="differ in v"):
        rows.iterate(lambda loop: (loop.select("k", "ts"), loop))


def test_a_loop_that_grows_ends_the_pipeline(
    rows: hf.Stream, source: EpochSource, tmp_path: Path
) -> None:
    out = rows.iterate(lambda loop: (loop.union(loop), loop.filter("false")), max_records=6)
    pipeline = out.write_to(hf.sinks.noop())
    # Before the start: the first epoch may begin without input.
    source.add([("a", 1, None)])
    query = pipeline.start("grow", tmp_path / "ck", trigger="manual", local_dir=tmp_path / "l")
    step_on(query)
    step_on(query)
    assert query.progress[-1].metrics == {"loop.records": 4}
    query.checkpoint()
    with pytest.raises(hf.InputError, match="8 records are in the loop 'loop', which may hold 6"):
        step_on(query)
    # With a higher limit it goes on with the four that the checkpoint holds.
    wider = rows.iterate(lambda loop: (loop.union(loop), loop.filter("false")), max_records=9)
    again = wider.write_to(hf.sinks.noop()).start(
        "grow", tmp_path / "ck", trigger="manual", local_dir=tmp_path / "l"
    )
    step_on(again)
    assert again.progress[-1].metrics == {"loop.records": 8}
    again.stop()


def started(pipeline: hf.Pipeline, work: Path, **options: Any) -> Any:
    return pipeline.start(
        "named", work / "ck", trigger="manual", local_dir=work / "local", **options
    )


def test_an_operator_that_was_renamed(rows: hf.Stream, source: EpochSource, tmp_path: Path) -> None:
    def pipeline(name: str) -> hf.Pipeline:
        counts = rows.key_by("k").aggregate(n=hf.count()).named(name)
        return counts.write_to(hf.sinks.memory("renamed"))

    query = started(pipeline("old"), tmp_path)
    source.add([("a", 1, None), ("b", 1, None)])
    query.step()
    query.stop()
    before = sorted((tmp_path / "ck").rglob("*"))
    with pytest.raises(hf.ConfigurationError) as refused:
        started(pipeline("new"), tmp_path)
    message = str(refused.value)
    assert "'old'" in message
    assert "old.groups" in message
    assert "about 2 rows" in message
    assert "it has 'new' instead" in message
    assert '.named("old")' in message
    assert "drop_state=['old']" in message
    assert sorted((tmp_path / "ck").rglob("*")) == before, "a failed start changes nothing"
    with pytest.raises(hf.ConfigurationError, match="drop_state names 'ald'"):
        started(pipeline("new"), tmp_path, drop_state=["ald"])
    query = started(pipeline("new"), tmp_path, drop_state=["old"])
    source.add([("a", 1, None)])
    query.step()
    query.stop()
    assert hf.sinks.memory_table("renamed").to_pylist()[-1] == {"k": "a", "n": 1}


class Sums(hf.KeyedProcess):
    output = "k string, total long"
    total = hf.ValueState("long", default=0)

    def process(self, key: Any, rows: Any, ctx: Any) -> Any:
        self.total.value += sum(row.v for row in rows)
        yield key.k, self.total.value


class Counted(hf.KeyedProcess):
    """Counts what a function says."""

    output = "k string, n long"
    n = hf.ValueState("long", default=0)

    def __init__(self, test: Any) -> None:
        self.test = test

    def process(self, key: Any, rows: Any, ctx: Any) -> Any:
        self.n.value += sum(bool(self.test(row.v)) for row in rows)
        yield key.k, self.n.value


class Products(hf.KeyedProcess):
    output = "k string, total long"
    product = hf.ValueState("long", default=1)

    def process(self, key: Any, rows: Any, ctx: Any) -> Any:
        for row in rows:
            self.product.value *= row.v
        yield key.k, self.product.value


def test_operators_without_names_that_change_places(
    rows: hf.Stream, source: EpochSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would inherit the other's state: by their states, or by what they read, it is noticed."""
    sums = rows.key_by("k").process(Sums())
    products = rows.key_by("k").process(Products())
    few = rows.filter("v < 3").key_by("k").aggregate(n=hf.count())
    many = rows.filter("v >= 3").key_by("k").aggregate(n=hf.count())

    def pipeline(*results: Any) -> hf.Pipeline:
        outputs = [r.write_to(hf.sinks.memory(f"m{i}")) for i, r in enumerate(results)]
        return hf.pipeline(*outputs)

    with monkeypatch.context() as before:
        # As versions wrote it that noted only what must not change.
        before.setattr(Description, "__str__", lambda self: self.what)
        query = started(pipeline(sums, products, few, many), tmp_path)
        source.add([("a", 3, None), ("a", 2, None), ("a", 4, None)])
        query.step()
        query.stop()
    query = started(pipeline(sums, products, few, many), tmp_path)
    source.add([("a", 1, None)])
    query.step()
    query.stop()
    for swapped in ((products, sums, few, many), (sums, products, many, few)):
        with pytest.raises(
            hf.ConfigurationError, match="would get the state of another"
        ) as refused:
            started(pipeline(*swapped), tmp_path)
        assert ".named(" in str(refused.value)
    # With the names that they had, they may stand anywhere.
    named: list[Any] = [products.named("process-2"), sums.named("process")]
    named += [many.named("aggregate-2"), few.named("aggregate")]
    query = started(pipeline(*named), tmp_path)
    source.add([("a", 5, None), ("a", 2, None)])
    query.step()
    query.stop()
    last = [hf.sinks.memory_table(f"m{i}").to_pylist()[-1] for i in range(4)]
    assert [row["total"] for row in last[:2]] == [240, 17]
    assert [row["n"] for row in last[2:]] == [3, 3]


def test_aggregates_without_names_that_read_other_columns_and_change_places(
    rows: hf.Stream, source: EpochSource, tmp_path: Path
) -> None:
    first = rows.key_by("k").aggregate(total=hf.sum("v"))
    second = rows.key_by("k").aggregate(total=hf.sum(F.col("v") * 1000))

    def pipeline(*results: Any) -> hf.Pipeline:
        return hf.pipeline(*(r.write_to(hf.sinks.noop()) for r in results))

    query = started(pipeline(first, second), tmp_path)
    source.add([("a", 1, None)])
    query.step()
    query.stop()
    with pytest.raises(hf.ConfigurationError, match="would get the state of another"):
        started(pipeline(second, first), tmp_path)
    started(pipeline(first, second), tmp_path).stop()


def test_processes_without_names_whose_functions_change_places(
    rows: hf.Stream, source: EpochSource, tmp_path: Path
) -> None:
    first = rows.key_by("k").process(Counted(lambda v: v > 0))
    second = rows.key_by("k").process(Counted(lambda v: v < 0))

    def pipeline(*results: Any) -> hf.Pipeline:
        return hf.pipeline(*(r.write_to(hf.sinks.noop()) for r in results))

    query = started(pipeline(first, second), tmp_path)
    source.add([("a", 1, None)])
    query.step()
    query.stop()
    with pytest.raises(hf.ConfigurationError, match="would get the state of another"):
        started(pipeline(second, first), tmp_path)
    edited = rows.key_by("k").process(Counted(lambda v: v > 0 or v is None))
    started(pipeline(edited, second), tmp_path).stop()


def test_operators_that_nothing_tells_apart_are_told_of(
    rows: hf.Stream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keyed = rows.key_by("k")
    same = [keyed.process(Counted(object())) for _ in range(2)]
    named = [keyed.process(Counted(object())).named(name) for name in ("one", "two")]

    def warnings(*results: Any) -> list[str]:
        caplog.clear()
        outputs = [r.write_to(hf.sinks.noop()) for r in results]
        started(hf.pipeline(*outputs), tmp_path / str(len(results))).stop()
        return [line for line in caplog.messages if "nothing tells" in line]

    (said,) = warnings(*same)
    assert "'process' and 'process-2'" in said
    assert ".named(" in said
    assert warnings(*named, same[0]) == []


def test_a_source_more_than_the_checkpoint_has(
    rows: hf.Stream, timed: hf.Stream, source: EpochSource, tmp_path: Path
) -> None:
    counts = rows.key_by("k").aggregate(n=hf.count())
    query = started(counts.write_to(hf.sinks.noop()), tmp_path)
    source.add([("a", 1, None)])
    query.step()
    query.stop()
    before = sorted((tmp_path / "ck").rglob("*"))
    windows = timed.key_by("k").window(hf.tumbling("1 s")).aggregate(n=hf.count())
    more = hf.pipeline(counts.write_to(hf.sinks.noop()), windows.write_to(hf.sinks.noop()))
    with pytest.raises(
        hf.ConfigurationError, match="positions of 1 sources, and the program reads 2"
    ):
        started(more, tmp_path)
    assert sorted((tmp_path / "ck").rglob("*")) == before, "a failed start changes nothing"


@pytest.mark.parametrize("output_mode", ["complete", "Append", None])
def test_an_output_mode_that_there_is_not(timed: hf.Stream, output_mode: Any) -> None:
    for refuse in (
        lambda: timed.key_by("k").window(hf.tumbling("10 s"), output_mode=output_mode),
        lambda: timed.window(hf.tumbling("10 s"), output_mode=output_mode),
        lambda: timed.key_by("k").top(3, "v", output_mode=output_mode),
    ):
        with pytest.raises(hf.InputError, match="output_mode can't be") as refused:
            refuse()
        assert '"retract"' in str(refused.value)


def test_what_is_no_stream(timed: hf.Stream, spark: SparkSession) -> None:
    table: Any = spark.range(1).withColumnRenamed("id", "v")
    with pytest.raises(hf.InputError, match="join takes a stream, not a DataFrame") as refused:
        timed.join(table, "v")
    assert "transform(lambda df: df.join(table" in str(refused.value)
    timed.transform(lambda df: df.join(table, "v"))  # as it says
    for refuse in (timed.connect, timed.key_by("k").connect, lambda t: timed.join_as_of(t, "v")):
        with pytest.raises(hf.InputError, match="takes a stream"):
            refuse(table)
    with pytest.raises(hf.InputError, match=r"hf.stream takes a streaming DataFrame, not 'in'"):
        hf.stream("in")  # type: ignore[arg-type]


def test_what_is_no_sink(timed: hf.Stream) -> None:
    counts = timed.key_by("k").aggregate(n=hf.count())
    for refuse in (timed.write_to, counts.write_to):
        with pytest.raises(hf.InputError, match="write_to takes sinks, not 'out'"):
            refuse("out")  # type: ignore[arg-type]
    windows = timed.key_by("k").window(hf.tumbling("10 s")).aggregate(n=hf.count())
    with pytest.raises(hf.InputError, match="write_to takes sinks, not 'late'"):
        windows.write_to(hf.sinks.noop(), late="late")  # type: ignore[arg-type]


def test_words_of_start_that_there_are_not(timed: hf.Stream, tmp_path: Path) -> None:
    counts = timed.key_by("k").aggregate(n=hf.count()).write_to(hf.sinks.noop())
    for trigger in ("availablenow", "once"):
        with pytest.raises(hf.InputError, match=f"trigger can't be '{trigger}'") as refused:
            counts.start("p", tmp_path / "ck", trigger=trigger)
        assert '"available-now"' in str(refused.value)
    with pytest.raises(hf.InputError, match="from_entry must be the number of an entry, not '1'"):
        counts.start("p", tmp_path / "ck", from_entry="1")  # type: ignore[arg-type]
    assert not (tmp_path / "ck").exists()
