"""Some partitions of an epoch can be computed apart, on Spark: rows of others are not sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.driver.compute import Computed, EpochComputer, Given
from holdfast.testing import EpochSource
from tests.spark.support import state_table

pytestmark = pytest.mark.spark

PARTITIONS = 3


def computed_apart(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Computed, list[Computed]]]:
    """Have each epoch computed partition by partition too, before it is computed to be recorded."""
    found: list[tuple[Computed, list[Computed]]] = []
    compute = EpochComputer.compute

    def both(self: EpochComputer, given: Given) -> Computed:
        (stateful,) = [node.id for node in self.graph.nodes if node.stateful]
        apart = [
            compute(self, replace(given, wanted={stateful: frozenset({number})}))
            for number in range(given.shapes[stateful].partitions)
        ]
        found.append((compute(self, given), apart))
        return found[-1][0]

    monkeypatch.setattr(EpochComputer, "compute", both)
    return found


def test_partitions_that_are_computed_apart_come_to_the_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = computed_apart(monkeypatch)
    source = EpochSource(spark, "word string")
    counts = hf.stream(source.df).key_by("word").aggregate(n=hf.count())
    query = counts.write_to(hf.sinks.noop()).start(
        "apart",
        tmp_path / "ck",
        trigger="manual",
        checkpoint_interval=None,
        partitions=PARTITIONS,
        local_dir=tmp_path / "local",
    )
    words = [f"w{i % 40}" for i in range(200)]
    for _ in range(2):
        source.add([(word,) for word in words])
        assert query.step()
    query.stop()
    assert len(found[0][1]) == PARTITIONS
    for whole, apart in found:
        reports = {r.partition: r for r in whole.every if r.changes}
        assert sum(r.rows for r in reports.values()) > 0
        for number, each in enumerate(apart):
            (only,) = [r for r in each.every if r.operator == whole.every[0].operator]
            assert only.partition == number
            assert (only.rows, only.keys) == (reports[number].rows, reports[number].keys)
            assert [(c.table, c.output.rows) for c in only.changes if c.output] == [
                (c.table, c.output.rows) for c in reports[number].changes if c.output
            ]
    counted = state_table(tmp_path)
    assert dict(zip(counted["word"].to_pylist(), counted["n.count"].to_pylist(), strict=True)) == {
        word: 2 * words.count(word) for word in words
    }
