"""Writing a Parquet file of any length in bounded memory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.sinks._files import storage_errors
from holdfast.sinks._staged import conform

__all__ = ["RowGroupWriter"]

_ROW_GROUP_BYTES = 32 * 2**20
"""How much is held in memory before a row group is written."""


class RowGroupWriter:
    """Writes row groups as they fill. Without rows there is no file."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.rows = 0
        self._schema = schema.remove_metadata()
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Add rows."""
        if table.num_rows == 0:
            return
        self._held.append(conform(table, self._schema))
        self._held_bytes += table.nbytes
        self.rows += table.num_rows
        if self._held_bytes >= _ROW_GROUP_BYTES:
            self._write_row_group()

    def close(self) -> int | None:
        """Finish; gives the file's size, None if there is none."""
        self._write_row_group()
        if self._writer is None:
            return None
        with storage_errors(f"stage output in {self.path}"):
            self._writer.close()
            return self.path.stat().st_size

    def abort(self) -> None:
        """Remove what was written."""
        self._held = []
        if self._writer is not None:
            with storage_errors(f"remove {self.path}"):
                self._writer.close()
                self.path.unlink(missing_ok=True)

    def _write_row_group(self) -> None:
        if not self._held:
            return
        with storage_errors(f"stage output in {self.path}"):
            if self._writer is None:
                self._writer = pq.ParquetWriter(self.path, self._schema, compression="zstd")
            self._writer.write_table(pa.concat_tables(self._held))
        self._held, self._held_bytes = [], 0
