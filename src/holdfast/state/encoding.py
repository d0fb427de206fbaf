"""How each kind of column is encoded in a stored run: measured, see docs/encodings.md.

Everything is compressed with zstd level 1: higher levels cost a multiple of the time and save
nothing on columns that are encoded to suit them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.state.schema import HASH

__all__ = ["parquet_options"]

_SAMPLE_ROWS = 4096


def parquet_options(first: pa.RecordBatch) -> dict[str, Any]:
    """Options of ``pyarrow.parquet.ParquetWriter`` for a run that begins with these rows.

    Rows are in the order of their hashes, so the first ones are a random sample.
    """
    dictionary, encodings = [], {}
    for field, column in zip(first.schema, first.columns, strict=True):
        encoding = _encoding(field, column.slice(0, _SAMPLE_ROWS))
        if encoding == "DICTIONARY":
            dictionary.append(field.name)
        elif encoding != "PLAIN":
            encodings[field.name] = encoding
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": dictionary,
        "column_encoding": encodings,
        # Other engines can skip row groups by hash; no one asks for the bounds of other columns.
        "write_statistics": [HASH],
    }


def _encoding(field: pa.Field, sample: pa.Array) -> str:
    kind, is_ = field.type, pa.types
    if field.name == HASH or is_.is_unsigned_integer(kind):
        # Spark's fast reader knows no other encoding of unsigned numbers.
        return "DELTA_BINARY_PACKED"
    if is_.is_string(kind) or is_.is_binary(kind):
        return "DICTIONARY" if _repeats(sample) else "DELTA_BYTE_ARRAY"
    if is_.is_floating(kind):
        return "DICTIONARY" if _repeats(sample) else "BYTE_STREAM_SPLIT"
    if is_.is_integer(kind) or is_.is_temporal(kind) or is_.is_decimal(kind):
        return "BYTE_STREAM_SPLIT"
    return "PLAIN"


def _repeats(sample: pa.Array) -> bool:
    """Whether values come again so often that a dictionary of them pays."""
    return bool(pc.count_distinct(sample, mode="all").as_py() * 4 <= len(sample))
