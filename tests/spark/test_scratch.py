"""Spark's checkpoint location is scratch: what is kept of it is enough to go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.errors import CorruptionError
from holdfast.spark.scratch import ScratchReader, build_scratch, renumbered
from holdfast.testing import EpochSource

pytestmark = pytest.mark.spark


def run(df: DataFrame, scratch: Path, keep: dict[int, dict[str, bytes]]) -> list[tuple[int, int]]:
    """Run what is available; keep the position of each epoch; (epoch, n) of every row."""
    seen: list[tuple[int, int]] = []
    reader = ScratchReader(scratch)

    def on_batch(batch: DataFrame, epoch: int) -> None:
        keep[epoch] = reader.read(epoch)
        seen.extend((epoch, row.n) for row in batch.collect())

    query = df.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(scratch))
    query.trigger(availableNow=True).start().awaitTermination()
    return seen


Ran = tuple[EpochSource, dict[int, dict[str, bytes]]]


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A source whose first 14 epochs a query has read, with their positions; epoch 14 is new."""
    folder = tmp_path_factory.mktemp("scratch")
    source = EpochSource(spark, "n long", folder / "in")
    for n in range(14):
        source.add([(n,)])
    kept: dict[int, dict[str, bytes]] = {}
    assert run(source.df, folder / "first", kept) == [(n, n) for n in range(14)]
    source.add([(99,)])
    return source, kept


@pytest.mark.parametrize("after", [0, 1, 9, 10, 13])
def test_a_query_continues_after_any_epoch(after: int, ran: Ran, tmp_path: Path) -> None:
    """Past 10 epochs too, where Spark compacts a file source's log."""
    source, kept = ran
    build_scratch(tmp_path / "second", kept[after])
    expected = [(n, n) for n in range(after + 1, 14)] + [(14, 99)]
    assert run(source.df, tmp_path / "second", {}) == expected


@pytest.mark.parametrize("after", [0, 3])
def test_a_query_continues_under_higher_numbers(
    after: int, spark: SparkSession, tmp_path: Path
) -> None:
    source = EpochSource(spark, "n long", tmp_path / "in")
    for n in range(5):
        source.add([(n,)])
    kept: dict[int, dict[str, bytes]] = {}
    run(source.df, tmp_path / "first", kept)
    build_scratch(tmp_path / "second", renumbered(kept[after], after, 700))
    expected = [(701 + i, n) for i, n in enumerate(range(after + 1, 5))]
    assert run(source.df, tmp_path / "second", {}) == expected


def test_two_sources_continue(spark: SparkSession, tmp_path: Path) -> None:
    left = EpochSource(spark, "n long", tmp_path / "left")
    right = EpochSource(spark, "n long", tmp_path / "right")
    for n in range(3):
        left.add([(n,)])
        right.add([(100 + n,)])
    kept: dict[int, dict[str, bytes]] = {}
    both = left.df.union(right.df)
    first = run(both, tmp_path / "first", kept)
    build_scratch(tmp_path / "second", kept[1])
    rest = run(both, tmp_path / "second", {})
    assert sorted(rest) == sorted(pair for pair in first if pair[0] > 1)


def test_paths_from_an_entry_are_checked(tmp_path: Path) -> None:
    for path in ("../evil", "/etc/evil", ""):
        with pytest.raises(CorruptionError, match="Spark"):
            build_scratch(tmp_path / "scratch", {path: b"x"})
    assert not (tmp_path / "scratch").exists()
