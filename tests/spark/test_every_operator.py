"""A little of every operator: what is run on every version of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.operators.base import Operator
from holdfast.spark.flow.graph import build_graph
from holdfast.testing import EpochSource
from tests.spark.support import step_on

pytestmark = pytest.mark.spark

SCHEMA = "k string, v long, ts timestamp"


def at(second: int) -> datetime:
    return datetime(2026, 1, 1, 12, 0, second, tzinfo=timezone.utc)


class Totals(hf.KeyedProcess):
    output = "k string, total long, seen long"
    total = hf.ValueState("long", default=0)
    seen = hf.MapState("long", "long")

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[Any]:
        for row in rows:
            self.total.value += row.v
            self.seen[row.v] = self.seen.get(row.v, 0) + 1
        yield key.k, self.total.value, len(self.seen)


class Sums(hf.BatchProcess):
    output = "k string, total long"
    total = hf.ValueState("long", default=0)

    def process(self, batch: Any) -> hf.BatchResult:
        total = batch.state["total"].to_numpy() + batch.reduce(np.add, "v")
        return hf.BatchResult(state={"total": total}, rows={"k": batch.keys["k"], "total": total})


class Counted(hf.Process):
    output = "n long"
    counts = hf.OperatorList("long")

    def process(self, rows: Any, ctx: Any) -> Iterator[Any]:
        n = sum(self.counts) + len(list(rows))
        self.counts.set([n])
        yield {"n": n}


class Limits(hf.KeyedProcess):
    output = "k string, v long"
    limits = hf.BroadcastState("string", "long")

    def process_broadcast(self, rows: Any, ctx: Any) -> None:
        for row in rows:
            self.limits[row.name] = row.least

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[Any]:
        for row in rows:
            if all(row.v >= least for _, least in self.limits.items()):
                yield key.k, row.v


def longest(rows: pa.Table) -> pa.Table:
    groups = rows.group_by(["k", "window_end"], use_threads=False)
    return groups.aggregate([("v", "max")]).rename_columns(["k", "window_end", "most"])


class Everything:
    """Two pipelines with every operator, of a few sources."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder
        self.left = EpochSource(spark, SCHEMA, folder / "left")
        self.right = EpochSource(spark, "k string, w long, since timestamp", folder / "right")
        self.rules = EpochSource(spark, "name string, least long", folder / "rules")
        left = hf.stream(self.left.df).with_watermark("ts", "0 s")
        right = hf.stream(self.right.df).with_watermark("since", "0 s")
        by = left.key_by("k")
        tumbling = by.window(hf.tumbling("10 s")).aggregate(n=hf.count(), v=hf.avg("v"))
        self.timed = {
            "tumbling": tumbling.named("tumbling"),
            "again": tumbling.window(hf.tumbling("10 s")).aggregate(keys=hf.count()).named("again"),
            "sliding": by.window(hf.sliding("10 s", "5 s"))
            .aggregate(v=hf.max("v"))
            .named("sliding"),
            "session": by.window(hf.session("3 s")).aggregate(n=hf.count()).named("session"),
            "global": by.window(hf.global_window(), output_mode="update")
            .aggregate(n=hf.count())
            .named("global"),
            "apply": by.window(hf.tumbling("10 s"))
            .apply(longest, "k string, window_end timestamp, most long")
            .named("apply"),
            "joined": left.join(right, on="k", between=("0 s", "5 s")).named("joined"),
            "as-of": left.join_as_of(right, on="k", how="left").named("as-of"),
            "within": by.drop_duplicates(within_watermark=True).named("within"),
            "sql": hf.sql(
                "SELECT k, window_start, window_end, count(*) AS n "
                "FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) "
                "GROUP BY k, window_start, window_end",
                t=left,
            ),
        }
        plain = hf.stream(self.left.df.select("k", "v"))
        self.untimed = {
            "counts": plain.key_by("k").aggregate(
                n=hf.count(), total=hf.sum("v"), about=hf.approx_count_distinct("v")
            ),
            "keyed": plain.key_by("k").process(Totals()),
            "batch": plain.key_by("k").process(Sums()),
            "counted": plain.process(Counted()),
            "limits": plain.key_by("k").connect(hf.stream(self.rules.df)).broadcast(Limits()),
            "once": plain.key_by("k").drop_duplicates(),
            "top": plain.key_by("k").top(1, by=[("v", "desc")]),
            "loop": plain.iterate(around, name="loop"),
            "plain": plain.filter("v > 3"),
        }

    def pipeline(self, results: dict[str, Any]) -> hf.Pipeline:
        return hf.pipeline(
            *(stream.write_to(hf.sinks.memory(name)) for name, stream in results.items())
        )

    def start(self, name: str, results: dict[str, Any]) -> Any:
        return self.pipeline(results).start(
            name,
            self.folder / name,
            trigger="manual",
            local_dir=self.folder / "local",
            partitions=2,
        )


def around(rows: hf.Stream) -> tuple[hf.Stream, hf.Stream]:
    less = rows.with_column("v", F.col("v") - 4)
    return less.filter("v > 0"), less.filter("v <= 0")


@pytest.fixture
def everything(spark: SparkSession, tmp_path: Path) -> Everything:
    return Everything(spark, tmp_path)


def seen(name: str, *columns: str) -> list[tuple[Any, ...]]:
    rows = hf.sinks.memory_table(name).to_pylist()
    return sorted(tuple(row[c] for c in columns) for row in rows)


def every_operator(kind: type[Operator] = Operator) -> Iterator[type[Operator]]:
    for below in kind.__subclasses__():
        yield from every_operator(below)
        if not below.__abstractmethods__ and below.__module__.startswith("holdfast."):
            yield below


def test_none_is_left_out(everything: Everything) -> None:
    graphs = [build_graph(everything.pipeline(r)) for r in (everything.timed, everything.untimed)]
    used = {type(node.operator) for graph in graphs for node in graph.nodes}
    assert used == set(every_operator())


def test_operators_that_go_by_event_time(everything: Everything) -> None:
    left, right = everything.left, everything.right
    query = everything.start("timed", everything.timed)
    left.add([("a", 1, at(1)), ("a", 3, at(2)), ("b", 5, at(8))])
    right.add([("a", 10, at(0)), ("a", 11, at(4))])
    query.step()
    # The same state, read back: a restart in between.
    query.checkpoint()
    query.stop()
    query = everything.start("timed", everything.timed)
    left.add([("a", 2, at(12))])
    right.add([("b", 12, at(30))])
    query.step()
    left.add([("c", 9, at(40))])
    right.add([("c", 13, at(40))])
    query.step()
    left.add([("c", 9, at(55))])
    right.add([("c", 13, at(55))])
    for _ in range(2):
        step_on(query)
    query.stop()
    windows = [("a", at(0), 2), ("a", at(10), 1), ("b", at(0), 1), ("c", at(40), 1)]
    assert [row for row in seen("tumbling", "k", "window_start", "n") if row[1] < at(50)] == windows
    assert [row for row in seen("sql", "k", "window_start", "n") if row[1] < at(50)] == windows
    assert seen("again", "window_start", "keys")[:2] == [(at(0), 2), (at(10), 1)]
    assert seen("sliding", "k", "window_start", "v")[1] == ("a", at(0), 3)
    assert ("a", at(1), 2) in seen("session", "k", "window_start", "n")
    assert seen("global", "k", "n")[:3] == [("a", 2), ("a", 3), ("b", 1)]
    assert ("a", 3) in seen("apply", "k", "most")
    assert seen("joined", "k", "v", "w")[:2] == [("a", 1, 11), ("a", 3, 11)]
    assert ("a", 1, 10) in seen("as-of", "k", "v", "w")
    assert ("b", 5, None) in seen("as-of", "k", "v", "w")
    assert seen("within", "k", "v")[:1] == [("a", 1)]


def test_operators_that_do_not(everything: Everything) -> None:
    left, rules = everything.left, everything.rules
    query = everything.start("untimed", everything.untimed)
    left.add([("a", 1, at(1)), ("a", 5, at(2)), ("b", 2, at(3))])
    rules.add([("least", 2)])
    step_on(query)
    query.checkpoint()
    query.stop()
    query = everything.start("untimed", everything.untimed)
    left.add([("a", 5, at(4))])
    step_on(query)
    step_on(query)
    query.stop()
    assert seen("counts", "k", "n", "total", "about") == [
        ("a", 2, 6, 2), ("a", 3, 11, 2), ("b", 1, 2, 1)
    ]  # fmt: skip
    assert seen("keyed", "k", "total", "seen") == [("a", 6, 2), ("a", 11, 2), ("b", 2, 1)]
    assert seen("batch", "k", "total") == [("a", 6), ("a", 11), ("b", 2)]
    assert sum(n for (n,) in seen("counted", "n")) >= 4
    assert seen("limits", "k", "v") == [("a", 5), ("a", 5), ("b", 2)]
    assert len(seen("once", "k")) == 2
    assert ("a", 5, 1) in seen("top", "k", "v", "change")
    assert sorted(v for _, v in seen("loop", "k", "v")) == [-3, -3, -3, -2]
    assert seen("plain", "k", "v") == [("a", 5), ("a", 5)]
