"""Spark's checkpoint location is scratch: what is kept of it is enough to go on."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.driver.scratch import ScratchReader, build_scratch, renumbered
from holdfast.errors import ConfigurationError, CorruptionError
from holdfast.spark.jvm.streams import source_numbers
from holdfast.testing import EpochSource

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def run(df: DataFrame, scratch: Path, keep: dict[int, dict[str, bytes]]) -> list[tuple[int, int]]:
    """Run what is available; keep the position of each epoch; (epoch, n) of every row."""
    seen: list[tuple[int, int]] = []
    reader = ScratchReader(scratch)

    def on_batch(batch: DataFrame, epoch: int) -> None:
        keep[epoch] = reader.read(epoch)
        seen.extend((epoch, row.n) for row in batch.collect())

    writer = df.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(scratch))
    started: Future[StreamingQuery] = Future()
    reader.numbers = lambda: source_numbers(started.result())
    started.set_result(writer.trigger(availableNow=True).start())
    started.result().awaitTermination()
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


def test_a_source_that_is_read_twice_continues(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's offsets have a line for each time that a source is read, its folders are one for each."""
    left = EpochSource(spark, "n long", tmp_path / "left")
    right = EpochSource(spark, "n long", tmp_path / "right")
    for n in range(3):
        left.add([(n,)])
    for n in range(6):
        right.add([(100 + n,)])
    kept: dict[int, dict[str, bytes]] = {}
    all_of_it = left.df.union(left.df).union(right.df)
    first = run(all_of_it, tmp_path / "first", kept)
    for after in (1, 4):
        build_scratch(tmp_path / f"after-{after}", kept[after])
        rest = run(all_of_it, tmp_path / f"after-{after}", {})
        assert sorted(rest) == sorted(pair for pair in first if pair[0] > after)


def test_without_a_query_to_ask_what_cannot_be_told_is_an_error(tmp_path: Path) -> None:
    files = {"metadata": b"{}", "commits/0": b"v1\n{}", "offsets/0": b"v1\n{}"}
    for source, last in enumerate((0, 4)):
        for number in range(last + 1):
            files[f"sources/{source}/{number}"] = b"v1"
    build_scratch(tmp_path, files)

    def sources(*last: int) -> set[str]:
        lines = [f'{{"logOffset":{number}}}' for number in last]
        (tmp_path / "offsets/0").write_text("\n".join(["v1", "{}", *lines]))
        return {path for path in ScratchReader(tmp_path).read(0) if path.startswith("sources/")}

    assert sources(0, 1) == {"sources/0/0", "sources/1/0", "sources/1/1"}
    assert sources(0, 2, 2) == {"sources/0/0", "sources/1/0", "sources/1/1", "sources/1/2"}
    with pytest.raises(ConfigurationError, match=r"source 1.*reads one twice"):
        sources(0, 0, 2)


def test_paths_from_an_entry_are_checked(tmp_path: Path) -> None:
    for path in ("../evil", "/etc/evil", ""):
        with pytest.raises(CorruptionError, match="Spark"):
            build_scratch(tmp_path / "scratch", {path: b"x"})
    assert not (tmp_path / "scratch").exists()
