"""A process equals a plain Python loop with dicts, whatever P, chunks, hashes, merges and restarts."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.checkpoint.time import Watermark
from holdfast.operators.process import entries, operator, passes
from tests.operators.everything import ACTS, Everything, at
from tests.operators.process_harness import HASHES, Harness
from tests.operators.process_oracle import Oracle, by_key

KEYS = (("user", pa.string()), ("part", pa.int32()))
COLUMNS = (
    *KEYS,
    ("op", pa.int64()),
    ("a", pa.int64()),
    ("b", pa.int64()),
    ("ts", pa.timestamp("us", "UTC")),
)
NAMES = [name for name, _ in COLUMNS]

rows = st.tuples(
    st.sampled_from(["u", "v", "w", None]),
    st.sampled_from([0, 0, 1, None]),
    st.integers(0, len(ACTS) - 1),
    st.integers(0, 10),
    st.integers(0, 4),
    st.one_of(
        st.none(),
        st.integers(0, 400).map(at),
        st.integers(100, 110).map(at),
        st.integers(100, 110).map(lambda ms: at(ms) + timedelta(microseconds=1)),
    ),
)
epochs = st.fixed_dictionaries(
    {
        "rows": st.lists(rows, max_size=14),
        "later_ms": st.sampled_from([0, 1, 5, 10, 15, 20, 25, 60]),
        "partitions": st.sampled_from([1, 1, 2, 3]),
        "before": st.sampled_from(["", "", "", "restart", "compact", "merge two"]),
    }
)


@pytest.mark.slow
@settings(max_examples=100, report_multiple_bugs=False)
@given(
    plan=st.lists(epochs, min_size=1, max_size=9),
    hashes=st.sampled_from(sorted(HASHES)),
    delay=st.sampled_from([0, 5, 40]),
    lateness=st.sampled_from([0, 0, 30]),
    chunk=st.sampled_from([1, 2, 8192]),
    large=st.sampled_from([0, 2, 256]),
    memory=st.sampled_from([1 << 30, 600]),
)
def test_a_process_with_all_state_equals_a_loop_with_dicts(
    plan: list[dict[str, Any]],
    hashes: str,
    delay: int,
    lateness: int,
    chunk: int,
    large: int,
    memory: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "CHUNK_KEYS", chunk)
        patch.setattr(operator, "_TIMER_KEYS", chunk)
        patch.setattr(entries, "LARGE", large)
        harness = Harness(
            Everything,
            Path(folder),
            KEYS,
            COLUMNS,
            watermark=Watermark(delay),
            lateness_ms=lateness,
            hashed=HASHES[hashes],
            memory_bytes=memory,
        )
        oracle = Oracle(Everything(), NAMES, ["user", "part"], lateness)
        now = 1000
        for epoch in plan:
            if epoch["before"] == "restart":
                harness.restart()
            elif epoch["before"] and harness.records:
                harness.compact(None if epoch["before"] == "compact" else 2)
            now += epoch["later_ms"]
            run = harness.run(epoch["rows"], now, epoch["partitions"])
            expected = oracle.epoch(epoch["rows"], run.record)
            keys = ["user", "part"]
            assert by_key(run.output, keys) == by_key(expected.output, keys)
            late = [tuple(row.values()) for row in run.sides["late"]]
            assert sorted(late, key=repr) == sorted(expected.late, key=repr)
            notes = sorted(map(repr, run.sides["notes"]))
            assert notes == sorted(map(repr, expected.sides.get("notes", [])))
            assert run.metrics == expected.metrics
