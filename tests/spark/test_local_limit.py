"""A limit for the local tier: what doesn't fit is read from checkpoint storage, and nothing changes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.testing import EpochSource

LIMIT = 1 << 20
KEYS = 60_000


@pytest.mark.slow
def test_state_beyond_the_limit_is_read_from_storage(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, "word string, n long", tmp_path / "in")
    counts = hf.stream(source.df).key_by("word").aggregate(n=hf.count(), total=hf.sum("n"))
    query = counts.write_to(hf.sinks.memory("limited")).start(
        "limited",
        tmp_path / "ck",
        checkpoint_interval=None,
        local_dir=tmp_path / "local",
        local_limit_bytes=LIMIT,
        partitions=2,
    )
    expected: Counter[str] = Counter()
    for epoch in range(5):
        first = KEYS // 3 * (epoch % 3)
        words = [f"word-{i:06}" for i in range(first, first + KEYS // 2)]
        source.add(pa.table({"word": words, "n": [epoch] * len(words)}))
        query.process_all_available()
        expected.update(words)
    # Files are dropped by the tasks of the epoch after, and missed by those of the next.
    for cold in ("word-069999", "word-065000"):
        source.add([(cold, 1)])
        query.process_all_available()
        expected[cold] += 1
    last = query.progress[-1]
    held = sum(path.stat().st_size for path in (tmp_path / "local").rglob("*.run"))
    query.stop()
    assert last.state_bytes > 2 * LIMIT
    assert held < 2 * LIMIT
    # Only blocks that hold these keys were read.
    assert 0 < sum(p.fetched_bytes for p in query.progress[-2:]) < last.state_bytes
    found = hf.sinks.memory("limited").rows()
    assert {row["word"]: row["n"] for row in found} == expected
