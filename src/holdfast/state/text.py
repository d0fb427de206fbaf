"""Text as Spark has it: any bytes, which need not be UTF-8.

Spark doesn't look into its strings (``CAST(value AS STRING)`` of what came from Kafka may hold
anything), Arrow's kernels don't either, but its checks and its way to Python do. Here text is looked at
as bytes where only its form counts, and what isn't UTF-8 becomes Python's way to say so (lone
surrogates, as in file names: PEP 383), from which the very same bytes are made again.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import pyarrow as pa

__all__ = [
    "as_bytes",
    "as_text",
    "on_one_line",
    "printable",
    "python_rows",
    "python_values",
    "text_array",
]

_ERRORS = "surrogateescape"
# Controls, ends of lines, and what turns the direction of writing.
_OBEYED = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_BYTES = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}


@lru_cache(maxsize=256)
def bytes_type(kind: pa.DataType) -> pa.DataType:
    """The same type with bytes for text, at any depth.

    >>> bytes_type(pa.list_(pa.string()))
    ListType(list<item: binary>)
    """
    if kind in _BYTES:
        return _BYTES[kind]
    if pa.types.is_struct(kind):
        return pa.struct([_bytes_field(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(_bytes_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_bytes_field(kind.key_field), _bytes_field(kind.item_field))
    return kind


def _bytes_field(field: pa.Field) -> pa.Field:
    return field.with_type(bytes_type(field.type))


class _Seen:
    """Arrow's buffers seen as another type of the same layout: nothing is copied or looked at."""

    def __init__(self, data: pa.Array | pa.RecordBatch, kind: pa.DataType | pa.Schema) -> None:
        self._data = data
        self._kind = kind

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        del requested_schema
        return self._kind.__arrow_c_schema__(), self._data.__arrow_c_array__()[1]


def as_bytes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with bytes for text."""
    return pa.record_batch(_Seen(batch, pa.schema([_bytes_field(f) for f in batch.schema])))


def as_text(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array of type ``kind`` whose text has these bytes."""
    return pa.array(_Seen(array, kind))


def python_values(array: pa.Array | pa.ChunkedArray, **options: Any) -> list[Any]:
    """Arrow's ``to_pylist`` for any text.

    >>> python_values(pa.array([b"a\\xff", None]).view(pa.string()))
    ['a\\udcff', None]
    """
    try:
        return list(array.to_pylist(**options))
    except UnicodeDecodeError:
        kind = array.type
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        plain = [pa.array(_Seen(chunk, bytes_type(kind))) for chunk in chunks]
        return [_decoded(v, kind) for chunk in plain for v in chunk.to_pylist(**options)]


def python_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Arrow's ``to_pylist`` of whole rows, for any text."""
    names = rows.schema.names
    columns = [python_values(column) for column in rows.columns]
    if not names:
        return [{} for _ in range(rows.num_rows)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def text_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Arrow's ``array`` for any text: dicts for structs, pairs or dicts for maps.

    >>> text_array(["a\\udcff"], pa.string()).view(pa.binary()).to_pylist()
    [b'a\\xff']
    """
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        encoded = [_encoded(value, kind) for value in values]
        return as_text(pa.array(encoded, bytes_type(kind)), kind)


def printable(text: str) -> str:
    """Text that any stream of UTF-8 takes: what isn't UTF-8 as in Python's source.

    >>> printable("a\\udcff")
    'a\\\\udcff'
    """
    return text.encode(errors="backslashreplace").decode()


def on_one_line(text: str) -> str:
    """The same for a terminal, which would obey some characters instead of showing them.

    >>> on_one_line("two\\nlines, \\x1b[31mred, and \\u202e turned round")
    'two\\\\nlines, \\\\x1b[31mred, and \\\\u202e turned round'
    """
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], printable(text))


def _decoded(value: Any, kind: pa.DataType) -> Any:
    """A value that was read with bytes for text."""
    if value is None:
        return None
    if kind in _BYTES:
        return value.decode(errors=_ERRORS)
    if pa.types.is_struct(kind):
        return {name: _decoded(inner, kind.field(name).type) for name, inner in value.items()}
    if pa.types.is_list(kind):
        return [_decoded(inner, kind.value_type) for inner in value]
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        made = [(_decoded(k, kind.key_type), _decoded(v, kind.item_type)) for k, v in pairs]
        return dict(made) if isinstance(value, dict) else made
    return value


def _encoded(value: Any, kind: pa.DataType) -> Any:
    """A value to be written with bytes for text."""
    if value is None:
        return None
    if kind in _BYTES:
        return value.encode(errors=_ERRORS) if isinstance(value, str) else value
    if pa.types.is_struct(kind):
        return {name: _encoded(inner, kind.field(name).type) for name, inner in value.items()}
    if pa.types.is_list(kind):
        return [_encoded(inner, kind.value_type) for inner in value]
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return [(_encoded(k, kind.key_type), _encoded(v, kind.item_type)) for k, v in pairs]
    return value
