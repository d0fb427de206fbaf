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
        encoding = _encoding(field, column)
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
        # So that one column of a block can be trusted without the others.
        "write_page_checksum": True,
    }


def _encoding(field: pa.Field, column: pa.Array) -> str:
    kind, is_ = field.type, pa.types
    if field.name == HASH or is_.is_unsigned_integer(kind):
        # Spark's fast reader knows no other encoding of unsigned numbers.
        return "DELTA_BINARY_PACKED"
    if is_.is_string(kind) or is_.is_binary(kind):
        return "DICTIONARY" if _repeats(column) else "DELTA_BYTE_ARRAY"
    if is_.is_floating(kind):
        return "DICTIONARY" if _repeats(column) else "BYTE_STREAM_SPLIT"
    if is_.is_integer(kind) or is_.is_temporal(kind) or is_.is_decimal(kind):
        return "BYTE_STREAM_SPLIT"
    return "PLAIN"


def _repeats(column: pa.Array) -> bool:
    """Whether values come again so often that a dictionary of them pays.

    The number of distinct values is estimated from a sample by how many were seen once and twice
    (Chao's estimator): a few frequent values among many rare ones must not mislead.
    """
    counts = pc.value_counts(column.slice(0, _SAMPLE_ROWS)).field("counts").to_numpy()
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    distinct = len(counts) + once * (once - 1) // (2 * (twice + 1))
    return distinct * 4 <= len(column)
