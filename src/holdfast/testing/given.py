"""What users give to tests of their processes: columns, keys and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from holdfast.errors import InputError
from holdfast.operators.process.convert import MISFITS, to_python
from holdfast.state.text import python_values, text_array
from holdfast.types import type_words

__all__ = [
    "check_columns",
    "check_event_time",
    "column_of",
    "dicts_of",
    "hashes_of",
    "names_of",
    "table_of",
]


def names_of(option: str, given: str | Sequence[str]) -> list[str]:
    """Names of columns that an option gives, one or several."""
    names = [given] if isinstance(given, str) else list(given)
    if not names:
        raise InputError(
            f"a process needs keys, and {option}={given!r} names no column",
            hint="name one; for one state over all rows name one that is the same in all of them",
        )
    return names


def check_columns(what: str, keys: Sequence[str], schema: pa.Schema) -> None:
    """Raise unless the columns are there."""
    missing = [name for name in keys if name not in schema.names]
    if missing:
        raise InputError(
            f"the {what} have no column {missing[0]!r}",
            hint=f"choose keys from: {', '.join(schema.names)}",
        )


def check_event_time(name: str, schema: pa.Schema) -> None:
    """Raise unless there is such a column, and it has times."""
    times = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    if name not in times:
        raise InputError(
            f"the rows have no timestamp column {name!r}, which event_time names",
            hint=f"choose one of: {', '.join(times)}" if times else "declare one in columns",
        )


def table_of(rows: Sequence[Any], schema: pa.Schema, what: str) -> pa.Table:
    """Rows, dicts or tuples, as a table of these columns."""
    dicts: list[Mapping[str, Any]] = []
    for row in rows:
        if not isinstance(row, Mapping) and len(row) != len(schema):
            raise InputError(
                f"a {what} has {len(row)} values, and {len(schema)} columns are declared: {row!r}"
            )
        given = row if isinstance(row, Mapping) else dict(zip(schema.names, row, strict=True))
        unknown = set(given) - set(schema.names)
        if unknown:
            raise InputError(f"a {what} has columns {sorted(unknown)}, which are not declared")
        dicts.append(given)
    columns = [
        column_of(f"column {f.name!r}", [d.get(f.name) for d in dicts], f.type) for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def column_of(what: str, values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values as a column of a type."""
    try:
        return text_array(values, kind)
    except MISFITS as error:
        raise InputError(
            f"{what} is declared as {type_words(kind)}, and was given something else: {error}",
            hint="give values of the declared type",
        ) from error


def hashes_of(keys: pa.Table) -> Any:
    """Hashes that spread keys; Spark's own are not needed where nothing is kept."""
    digests = [
        xxhash.xxh3_64_intdigest(_encoded(row))
        for row in zip(*(python_values(column) for column in keys.columns), strict=True)
    ]
    return np.array(digests, np.uint64)


def _encoded(row: tuple[Any, ...]) -> bytes:
    try:
        return msgspec.msgpack.encode(row, enc_hook=str)
    except UnicodeEncodeError:  # text that is no UTF-8
        return repr(row).encode()


def dicts_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table, as users see them."""
    columns = [to_python(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
