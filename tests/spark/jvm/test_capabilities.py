"""What Spark has inside: looked up before anything is claimed, and done without where that is possible."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from py4j.clientserver import JavaClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.driver.pacing import Pacing, StageShape
from holdfast.spark.jvm import grouping, probing
from holdfast.spark.jvm.capabilities import ALWAYS, EVERY, OPTIONAL, check, slower
from holdfast.spark.jvm.gateway import running_context
from holdfast.spark.jvm.grouping import GROUPING
from holdfast.spark.jvm.probing import (
    Capability,
    OtherPlanError,
    has,
    require,
    switched_off,
    turn_off,
    why_off,
)
from holdfast.spark.jvm.streams import TICKS
from holdfast.testing import EpochSource

pytestmark = pytest.mark.spark

SCHEMA = "k string, v long, unread string, ts timestamp"
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)


def by_name(capability: Capability) -> str:
    return capability.name.replace(" ", "-")


def some_rows(epoch: int) -> list[tuple[Any, ...]]:
    times = [BEGIN + timedelta(seconds=20 * epoch + i % 10) for i in range(12)]
    return [(f"k{i % 3}", epoch * i, "never", at) for i, at in enumerate(times)]


class Pipelines:
    """Pipelines that use all that is optional, and what batch makes of the same rows."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder
        self.one = EpochSource(spark, SCHEMA, folder / "one")
        self.two = EpochSource(spark, SCHEMA, folder / "two")

    def pipeline(self) -> hf.Pipeline:
        one = hf.stream(self.one.df).with_watermark("ts", "0 s")
        two = hf.stream(self.two.df.filter("v >= 0")).with_column("twice", F.col("v") * 2)
        sums = two.key_by("k").aggregate(n=hf.count(), total=hf.sum("twice")).named("sums")
        windows = one.key_by("k").window(hf.session("3 s")).aggregate(n=hf.count()).named("windows")
        last = one.key_by("k").top(1, by=[("ts", "desc"), ("v", "desc")]).named("last")
        renamed = sums.select(F.col("k").alias("word"), F.col("n").alias("times"))
        return hf.pipeline(
            sums.write_to(hf.sinks.memory("sums")),
            renamed.write_to(hf.sinks.memory("renamed")),
            windows.write_to(hf.sinks.memory("windows")),
            last.write_to(hf.sinks.memory("last")),
        )

    def start(self) -> Any:
        return self.pipeline().start(
            "internals",
            self.folder / "ck",
            trigger="available-now",
            end_of_input=True,
            partitions=2,
            local_dir=self.folder / "local",
        )

    def run(self) -> Any:
        for epoch in range(3):
            self.one.add(some_rows(epoch))
            self.two.add(some_rows(epoch))
        query = self.start()
        query.await_termination()
        return query

    def check(self) -> None:
        """Compare results with batch."""
        one, two = self.one.rows_so_far(), self.two.rows_so_far()
        sums = two.groupBy("k").agg(F.count("*"), F.sum(F.col("v") * 2)).collect()
        assert newest("sums", 1) == {row[0]: tuple(row[1:]) for row in sums}
        assert newest("renamed", 1) == {row[0]: (row[1],) for row in sums}
        sessions = one.groupBy("k", F.session_window("ts", "3 seconds")).count().collect()
        found = [row["n"] for row in hf.sinks.memory_table("windows").to_pylist()]
        assert sorted(found) == sorted(row["count"] for row in sessions)
        assert len(found) > 3
        changes: dict[tuple[Any, ...], int] = {}
        for row in hf.sinks.memory_table("last").to_pylist():
            key = (row["k"], row["v"], row["ts"].replace(tzinfo=timezone.utc))
            changes[key] = changes.get(key, 0) + row["change"]
        latest = one.groupBy("k").agg(F.max(F.struct("ts", "v")).alias("m")).select("k", "m.*")
        expected = {(k, v, ts.astimezone(timezone.utc)) for k, ts, v in latest.collect()}
        assert {key for key, count in changes.items() if count} == expected


def newest(name: str, keys: int) -> dict[Any, tuple[Any, ...]]:
    rows = (tuple(row.values()) for row in hf.sinks.memory_table(name).to_pylist())
    return {row[0]: row[keys:] for row in rows}


@pytest.fixture
def pipelines(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipelines:
    shape = StageShape(2, preaggregate=True, shuffle=True)
    monkeypatch.setattr(Pacing, "next", lambda self, inputs=1: shape)
    return Pipelines(spark, tmp_path)


def test_this_spark_has_it_all(spark: SparkSession) -> None:
    found = {each.name: each.probe(spark.sparkContext) for each in EVERY}
    assert {name: missing for name, missing in found.items() if missing is not None} == {}
    assert slower(spark.sparkContext) == ()
    check(spark.sparkContext, EVERY, "everything")


def test_names_are_their_own() -> None:
    assert len({each.name for each in EVERY}) == len(EVERY)
    assert all(each.slower for each in OPTIONAL)
    assert not any(each.slower for each in ALWAYS)


def test_every_capability_is_in_the_architecture() -> None:
    text = (Path(__file__).parents[3] / "ARCHITECTURE.md").read_text()
    assert [each.name for each in EVERY if f"| {each.name} |" not in text] == []


def test_with_everything_on_nothing_is_slower(pipelines: Pipelines) -> None:
    query = pipelines.run()
    assert query.status.slower == ()
    assert "Slower" not in pipelines.pipeline().explain()
    assert any(progress.preaggregated for progress in query.progress)
    pipelines.check()


@pytest.mark.slow
@pytest.mark.parametrize("capability", OPTIONAL, ids=by_name)
def test_without_a_fast_way_the_slow_one_gives_the_same(
    pipelines: Pipelines, capability: Capability
) -> None:
    with switched_off(capability):
        query = pipelines.run()
        said = f"{capability.name}: it was switched off; {capability.slower}"
        assert query.status.slower == (said,)
        assert said in pipelines.pipeline().explain()
    pipelines.check()
    if capability is GROUPING:
        # The first rows of each key are another thing.
        assert any(progress.preaggregated for progress in query.progress)


def test_without_any_fast_way_the_slow_ones_give_the_same(pipelines: Pipelines) -> None:
    with ExitStack() as held:
        for capability in OPTIONAL:
            held.enter_context(switched_off(capability))
        query = pipelines.run()
        assert len(query.status.slower) == len(OPTIONAL)
        assert not any(progress.preaggregated for progress in query.progress)
    pipelines.check()


def test_a_plan_of_another_form_turns_the_fast_way_off_for_good(
    pipelines: Pipelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(*_: Any) -> Any:
        raise OtherPlanError("Spark's aggregate doesn't begin with what it should")

    monkeypatch.setattr(grouping, "_without_requirement", other)
    try:
        query = pipelines.run()
        assert query.status.slower == (
            f"{GROUPING.name}: Spark's aggregate doesn't begin with what it should; {GROUPING.slower}",
        )
        assert not has(GROUPING)
    finally:
        turn_on(GROUPING)
    pipelines.check()


def turn_on(capability: Capability) -> None:
    """Have it looked up again."""
    context = running_context()
    assert context is not None
    probing._application(context).off.pop(capability)
    assert has(capability)


@pytest.mark.parametrize("capability", ALWAYS, ids=by_name)
def test_a_start_without_what_it_needs_changes_nothing(
    pipelines: Pipelines, capability: Capability
) -> None:
    pipeline = pipelines.pipeline()
    with switched_off(capability, "Spark 9.9 has no org.apache.spark.Such"):
        with pytest.raises(hf.ConfigurationError) as refused:
            pipeline.start("needs", pipelines.folder / "ck", local_dir=pipelines.folder / "local")
        with pytest.raises(hf.ConfigurationError, match=capability.name):
            hf.stream(pipelines.one.df)
    assert f"for {capability.name} Spark 9.9 has no org.apache.spark.Such" in str(refused.value)
    assert "4.1, 4.2 and 4.3" in str(refused.value)
    assert not (pipelines.folder / "ck").exists()
    assert not (pipelines.folder / "local").exists()


def test_what_only_some_pipelines_need_is_refused_to_those_alone(pipelines: Pipelines) -> None:
    rows = hf.stream(pipelines.two.df).key_by("k")
    plain = rows.aggregate(n=hf.count()).write_to(hf.sinks.noop())
    sketch = rows.aggregate(n=hf.approx_count_distinct("v")).write_to(hf.sinks.noop())
    folder = pipelines.folder
    with switched_off(TICKS), switched_off(GROUPING):
        with pytest.raises(hf.ConfigurationError, match=TICKS.name):
            looped(pipelines).start("ticks", folder / "ck")
        with pytest.raises(hf.ConfigurationError, match=GROUPING.name):
            sketch.start("sketch", folder / "ck")
        assert not (folder / "ck").exists()
        query = plain.start("plain", folder / "ck", trigger="available-now")
        query.await_termination()
    assert query.status.state == "stopped"


def looped(pipelines: Pipelines) -> hf.Pipeline:
    rows = hf.stream(pipelines.two.df)
    return rows.iterate(lambda r: (r.filter("v > 9"), r), name="none").write_to(hf.sinks.noop())


def test_what_is_missing_is_named(spark: SparkSession) -> None:
    wanted = Capability(
        "a fast way",
        {
            "org.apache.spark.SparkContext": ["conf/0", "conf/3", "noSuch/0"],
            "org.apache.spark.NoSuch": ["new/0"],
            "org.apache.spark.SparkConf": ["new/0", "new/7"],
        },
        python=(
            "pyspark.no.such",
            "pyspark.nothing:x",
            "pyspark.sql:Nobody",
            "pyspark.sql:DataFrame",
        ),
        versions="4.7",
    )
    missing = (
        "org.apache.spark.SparkContext.conf/3, org.apache.spark.SparkContext.noSuch/0, "
        "org.apache.spark.NoSuch, org.apache.spark.SparkConf.new/7, pyspark.no.such, "
        "pyspark.nothing:x, pyspark.sql:Nobody"
    )
    assert wanted.probe(spark.sparkContext) == missing
    assert why_off(wanted) == f"Spark {spark.version} has no {missing}"
    with pytest.raises(hf.ConfigurationError, match="for a fast way Spark") as refused:
        require(wanted, "hf.sql")
    assert refused.value.hint == "use a version of Spark that has it: 4.7 do"


def test_what_is_turned_off_stays_off(spark: SparkSession) -> None:
    mine = Capability("a way of the test's", {}, slower="nothing")
    assert has(mine)
    turn_off(mine, "it was something else")
    assert why_off(mine, spark.sparkContext) == "it was something else"


def test_looking_is_one_call_for_each_and_only_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(spark.sparkContext, ALWAYS, "all of it")
    calls: list[str] = []
    send = JavaClient.send_command

    def counted(self: JavaClient, command: str, *rest: Any, **named: Any) -> Any:
        # What Python no longer holds is let go in between.
        calls.extend([command] * (not command.startswith("m\n")))
        return send(self, command, *rest, **named)

    monkeypatch.setattr(JavaClient, "send_command", counted)
    for capability in EVERY:
        capability.probe(spark.sparkContext)
    assert len(calls) == len(EVERY)
    calls.clear()
    check(spark.sparkContext, ALWAYS, "all of it")
    assert calls == []
