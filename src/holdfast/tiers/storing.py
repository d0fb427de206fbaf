"""Gives a run its stored form."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pyarrow as pa

from holdfast import runtime
from holdfast.state.run import Run, StoredForm
from holdfast.state.stored import encode_stored
from holdfast.storage import Storage

__all__ = ["store_run"]


def store_run(storage: Storage, run: Run, tables: Iterable[pa.Table], schema: pa.Schema) -> Run:
    """Write the rows of a run to storage, under a name never used before; the run as it is then."""
    data, info = encode_stored(iter(tables), schema)
    name = f"runs/{run.name}-{runtime.new_id()[:8]}.parquet"
    storage.put(name, data)
    form = StoredForm(name, info.size_bytes, info.checksum, info.tail_bytes)
    return msgspec.structs.replace(run, stored=form, rows=info.rows, tombstones=info.tombstones)
