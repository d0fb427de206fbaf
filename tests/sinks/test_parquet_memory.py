from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.sinks import SinkContext, parquet

MakeContext = Callable[..., SinkContext]


def test_a_task_holds_about_a_row_group_however_much_it_writes(
    make_context: MakeContext, tmp_path: Path
) -> None:
    schema = pa.schema([("n", pa.int64())])
    sink = parquet(tmp_path / "out")
    sink.open(make_context(schema=schema))
    noise = np.random.default_rng(7).integers(0, 2**62, 2**20)
    writer = sink.stager().open(0, 0, "big", schema)
    before = pa.total_allocated_bytes()
    highest = 0
    for _ in range(32):  # 256 MiB
        writer.write(pa.table({"n": noise}))
        highest = max(highest, pa.total_allocated_bytes() - before)
    staged = writer.close()
    assert staged is not None
    assert staged.rows == 2**25
    assert highest < 128 * 2**20
    file = pq.ParquetFile(tmp_path / "out" / "_holdfast" / "staged" / staged.name)
    assert file.metadata.num_rows == 2**25
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_small_writes_share_a_row_group(make_context: MakeContext, tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    sink = parquet(tmp_path / "out")
    sink.open(make_context(schema=schema))
    writer = sink.stager().open(0, 0, "small", schema)
    for n in range(100):
        writer.write(pa.table({"n": [n]}))
    staged = writer.close()
    assert staged is not None
    file = pq.ParquetFile(tmp_path / "out" / "_holdfast" / "staged" / staged.name)
    assert file.num_row_groups == 1
    assert file.read()["n"].to_pylist() == list(range(100))
