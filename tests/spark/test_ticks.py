"""Ticks go on whatever the machine's clock does: it may be set back while nobody looks."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.driver.scratch import ScratchReader, build_scratch, source_offsets, ticking_on
from holdfast.spark.ticks import Ticks, with_ticks
from holdfast.testing import EpochSource

pytestmark = pytest.mark.spark
# As a clock would say a thousand days from now.
LATER_MS = 4_000_000_000_000


def test_ticks_go_on_after_the_clock_was_set_back(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, "n long", tmp_path / "in")
    source.add([(1,)])
    seen: dict[int, str] = {}
    kept: dict[int, dict[str, bytes]] = {}

    def run(folder: Path, epochs: int) -> None:
        reader, ticks = ScratchReader(folder), Ticks()

        def on_batch(batch: DataFrame, epoch: int) -> None:
            kept[epoch] = reader.read(epoch)
            offsets = source_offsets(reader.offsets(epoch))
            assert offsets is not None
            seen[epoch] = offsets[-1]

        writer = with_ticks(source.df).writeStream.foreachBatch(on_batch)
        query = writer.option("checkpointLocation", str(folder)).start()
        ticks.follow(query)
        try:
            while len(seen) < epochs:
                query.processAllAvailable()
                ticks.tick()
        finally:
            query.stop()

    run(tmp_path / "first", 3)
    last = max(kept)
    # What a source that went by the machine's clock has left, before that was set back.
    begin = f"v1\n{LATER_MS}".encode()
    old = {**kept[last], "sources/1/0": begin}
    ahead = f"offsets/{last}"
    old[ahead] = old[ahead].rpartition(b"\n")[0] + b"\n5000"
    seen.clear()
    build_scratch(tmp_path / "second", ticking_on(old, last))
    run(tmp_path / "second", 2)
    assert int(seen[last + 1]) == 5001 < int(seen[last + 2])
