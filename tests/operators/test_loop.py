"""The end of a loop: what came in an epoch is what the next one finds, and nothing else."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.operators.base import Clock
from holdfast.operators.input_rows import SOURCE, TAG
from holdfast.operators.loop import LoopOperator
from holdfast.state.hashing import partition_range
from holdfast.state.schema import HASH
from tests.operators.epochs import Epochs

COLUMNS = [("k", pa.string()), ("n", pa.int64())]
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 9)), max_size=30)


def input_rows(rows: list[tuple[str | None, int]], partitions: int) -> pa.Table:
    """Rows without a key lie at the first hash of the partition that they come from."""
    firsts = [partition_range(i % partitions, partitions).first for i in range(len(rows))]
    columns = {
        HASH: pa.array(firsts, pa.uint64()),
        TAG: pa.array(range(len(rows)), pa.int64()),
        SOURCE: pa.array([0] * len(rows), pa.int8()),
        "k": pa.array([k for k, _ in rows], pa.string()),
        "n": pa.array([n for _, n in rows], pa.int64()),
    }
    schema = LoopOperator("loop", COLUMNS, most=1).input_schema
    return pa.table([columns[name] for name in schema.names], schema=schema)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ROWS, st.integers(1, 4)), max_size=8), st.integers(1, 3))
def test_an_epoch_finds_what_the_one_before_fed_back(
    epochs: list[tuple[list[tuple[str | None, int]], int]], pieces: int
) -> None:
    operator = LoopOperator("loop", COLUMNS, most=1000)
    driver = Epochs(operator, pieces=pieces)
    kept = 0
    for number, (rows, partitions) in enumerate(epochs):
        result = driver.run(input_rows(rows, partitions), Clock(number, 0), partitions=partitions)
        kept += result.new_keys
        found = driver.rows("loop.rows")
        assert Counter((row["k"], row["n"]) for row in found) == Counter(rows)
        assert result.metrics.get("loop.records", 0) == len(rows)
        assert kept == len(rows)
        assert not result.output.num_rows
