"""Processes of every kind through Spark: on columns, without a key, with a control stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.checkpoint.log import read_log
from holdfast.checkpoint.reader import stored_tables
from holdfast.storage import open_storage
from holdfast.testing import EpochSource

pytestmark = pytest.mark.slow


class Totals(hf.BatchProcess):
    """Count and sum on columns."""

    output = "word string, n long, total long"
    n = hf.ValueState("long", default=0)
    total = hf.ValueState("long", default=0)

    def process(self, batch: hf.KeyedBatch) -> hf.BatchResult:
        """Count and add up."""
        n = batch.state["n"].to_numpy() + batch.counts
        total = batch.state["total"].to_numpy() + batch.reduce(np.add, "amount")
        return hf.BatchResult(
            {"n": n, "total": total}, {"word": batch.keys["word"], "n": n, "total": total}
        )


class Tally(hf.Process):
    """Counts rows per partition, and remembers who saw what."""

    output = "word string, limit long"
    side_outputs = {"seen": "partition int, items long"}  # noqa: RUF012 - never changed
    counts = hf.OperatorList("long")
    notes = hf.UnionList("struct<partition:int,rows:long>")
    limits = hf.BroadcastState("string", "long")

    def process_broadcast(self, rows: Any, ctx: Any) -> None:
        """New limits."""
        for row in rows:
            self.limits[row.word] = row.limit

    def process(self, rows: Any, ctx: Any) -> Iterator[Any]:
        """Let rows through that have a limit."""
        self.counts.append(len(rows))
        self.notes.append((ctx.partition, len(rows)))
        ctx.side_output("seen", (ctx.partition, len(self.notes.all())))
        for row in rows:
            if row.word in self.limits:
                yield row.word, self.limits[row.word]


def run(stream: Any, work: Path, partitions: int, **sides: Any) -> Any:
    sink = hf.sinks.memory("kinds")
    query = stream.write_to(sink, **sides).start(
        "kinds",
        work / "ck",
        local_dir=work / "local",
        trigger="available-now",
        checkpoint_interval=None,
        partitions=partitions,
    )
    query.await_termination()
    return sink


def test_a_batch_process_equals_the_aggregate(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, "word string, amount long", tmp_path / "in")
    random = np.random.default_rng(7)
    for partitions in (3, 1, 2):
        rows = [(f"w{w}", int(a)) for w, a in random.integers(0, 40, (300, 2))]
        source.add(rows)
        stream = hf.stream(source.df).key_by("word").process(Totals())
        out = run(stream, tmp_path, partitions)
    last = {row["word"]: (row["n"], row["total"]) for row in out.rows()}
    sums = source.rows_so_far().groupBy("word").agg(F.count("*"), F.sum("amount"))
    expected = sums.collect()
    assert last == {row[0]: (row[1], row[2]) for row in expected}


def test_operator_state_is_shared_out_when_p_changes(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, "word string, amount long", tmp_path / "in")
    control = EpochSource(spark, "word string, limit long", tmp_path / "control")
    let_through: Counter[tuple[str, int]] = Counter()
    total = 0
    for epoch, partitions in enumerate((1, 3, 2)):
        control.add([(f"w{epoch}", epoch)])
        rows = [(f"w{i % 5}", i) for i in range(30)]
        source.add(rows)
        total += len(rows)
        let_through.update((f"w{w}", w) for w in range(epoch + 1) for _ in range(6))
        stream = hf.stream(source.df).connect(hf.stream(control.df)).broadcast(Tally())
        out = run(stream, tmp_path, partitions, seen=hf.sinks.memory("seen"))
    assert Counter((row["word"], row["limit"]) for row in out.rows()) == let_through
    entry = read_log(open_storage(str(tmp_path / "ck"))).last_checkpoint
    assert entry is not None
    views = stored_tables(entry, open_storage(str(tmp_path / "ck")))
    counts = [
        n for p in views["process.operator-list.counts"].scan() for n in p["value"].to_pylist()
    ]
    assert sum(counts) == total


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (hf.OperatorList("int"), "'value' was bigint in entry .* and is now int"),
        (hf.UnionList("long"), "'counts' was a operator-list in entry .* and is now a union-list"),
    ],
)
def test_operator_lists_whose_type_or_kind_changed_are_refused(
    spark: SparkSession, tmp_path: Path, changed: Any, words: str
) -> None:
    def counting(state: Any) -> hf.Process:
        class Counts(hf.Process):
            output = "n long"
            counts = state

            def process(self, rows: Any, ctx: Any) -> Iterator[Any]:
                self.counts.append(len(rows))
                yield (len(rows),)

        return Counts()

    source = EpochSource(spark, "word string", tmp_path / "in")
    source.add([("a",)])
    run(hf.stream(source.df).process(counting(hf.OperatorList("long"))), tmp_path, 2)
    with pytest.raises(hf.ConfigurationError, match=words):
        run(hf.stream(source.df).process(counting(changed)), tmp_path, 2)


def test_a_process_without_a_key_refuses_keyed_state(spark: SparkSession, tmp_path: Path) -> None:
    class Keyed(hf.Process):
        output = "word string"
        n = hf.ValueState("long")

    source = EpochSource(spark, "word string", tmp_path / "in")
    source.add([("a",)])
    with pytest.raises(hf.InputError, match="needs a key"):
        hf.stream(source.df).process(Keyed())


@pytest.mark.parametrize("partitions", [1, 3])
def test_the_first_row_of_each_key_goes_on(
    spark: SparkSession, tmp_path: Path, partitions: int
) -> None:
    source = EpochSource(spark, "word string, amount long", tmp_path / "in")
    for start in (0, 50, 70):
        source.add([(f"w{i % 60}", i) for i in range(start, start + 80)])
        stream = hf.stream(source.df).key_by("word").drop_duplicates()
        out = run(stream, tmp_path, partitions)
    assert {row["word"]: row["amount"] for row in out.rows()} == {f"w{i}": i for i in range(60)}
    assert len(out.rows()) == 60
