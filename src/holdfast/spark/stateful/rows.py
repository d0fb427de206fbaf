"""The Row form: what a processor for ``transformWithState`` gets, and what it puts out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from holdfast.errors import ProcessingError
from holdfast.operators.process.convert import to_python
from holdfast.operators.process.output import Collector, key_words
from holdfast.operators.process.program import Chunk
from holdfast.spark.stateful.values import row_maker
from holdfast.state.columns import one_array
from holdfast.state.text import python_values

__all__ = ["RowForm"]

# Rows are made in blocks, so that a key with millions of them doesn't make millions of objects.
_BLOCK = 32_768


class RowForm:
    """Keys are tuples; rows are Rows with all columns, timestamps in the session's time zone."""

    def __init__(self, output: pa.Schema, zone: str, author: object, epoch: int) -> None:
        self._zone = zone
        self._names = output.names
        self._nested = [i for i, f in enumerate(output) if pa.types.is_nested(f.type)]
        self._collector = Collector("", output, author, epoch)

    def keys(self, chunk: Chunk) -> list[tuple[Any, ...]]:
        """The keys of a chunk."""
        return list(zip(*(_values(c, self._zone) for c in chunk.keys.columns), strict=True))

    def inputs(self, chunk: Chunk) -> Iterator[Iterator[Row]]:
        """The rows of each key of a chunk, in order of the keys."""
        blocks = _Blocks(chunk.rows, self._zone)
        start = 0
        for end in chunk.offsets[1:]:
            yield blocks.between(start, end)
            start = end

    def initial(self, chunk: Chunk) -> Iterator[Iterator[Row]]:
        """The rows of initial state of each key: each is handled alone."""
        return self.inputs(chunk)

    def put_out(self, rows: Any, key: int) -> None:
        """Keep what user code put out for a key."""
        kept, owners = self._collector.rows, self._collector.owners
        kept.extend(rows)
        owners += [key] * (len(kept) - len(owners))

    def output(self, chunk: Chunk) -> pa.Table:
        """All that was put out since the last call, by the names of its fields."""
        collector = self._collector

        def words(i: int) -> str:
            return key_words(chunk.keys, i)

        names, owners = self._names, collector.owners
        rows = [
            row
            if type(row) is Row and getattr(row, "__fields__", None) == names  # made by keywords
            else self._by_name(row, words, owner)
            for row, owner in zip(collector.rows, owners, strict=True)
        ]
        for place in self._nested:
            rows = [(*row[:place], _as_dicts(row[place]), *row[place + 1 :]) for row in rows]
        collector.rows = rows
        return collector.table(words)

    def _by_name(self, row: Any, words: Callable[[int], str], owner: int) -> tuple[Any, ...]:
        if not isinstance(row, Row) or not hasattr(row, "__fields__"):
            by, epoch = self._collector.author, self._collector.epoch
            raise ProcessingError(
                f"{by} put out {row!r} ({type(row).__name__}) for {words(owner)} in epoch {epoch}, "
                "which is no Row with names",
                hint=f"yield Row({self._names[0] if self._names else 'name'}=…)",
            )
        given = dict(zip(row.__fields__, row, strict=True))
        # As in PySpark: what is missing is null, what isn't declared is left out.
        return tuple(given.get(name) for name in self._names)


def _as_dicts(value: Any) -> Any:
    """Rows within a value as dicts, by the names of their fields."""
    if isinstance(value, Row) and hasattr(value, "__fields__"):
        return {n: _as_dicts(v) for n, v in zip(value.__fields__, value, strict=True)}
    if isinstance(value, list):
        return [_as_dicts(v) for v in value]
    if isinstance(value, dict):
        return {k: _as_dicts(v) for k, v in value.items()}
    return value


class _Blocks:
    """Rows of a table, made block by block as they are asked for, in order."""

    def __init__(self, table: pa.Table, zone: str) -> None:
        self._table, self._zone = table, zone
        self._row = row_maker(tuple(table.column_names))
        self._start, self._rows = 0, self._made(0)

    def between(self, start: int, end: int) -> Iterator[Row]:
        first = self._start
        if start >= first and end <= first + len(self._rows):
            return iter(self._rows[start - first : end - first])
        return chain.from_iterable(self._parts(start, end))

    def _parts(self, start: int, end: int) -> Iterator[Sequence[Row]]:
        while start < end:
            if not self._start <= start < self._start + len(self._rows):
                self._start, self._rows = start, self._made(start)
            first = start - self._start
            part = self._rows[first : first + end - start]
            yield part
            start += len(part)

    def _made(self, start: int) -> list[Row]:
        block = self._table.slice(start, _BLOCK)
        columns = [_values(column, self._zone) for column in block.columns]
        return list(map(self._row, zip(*columns, strict=True)))


def _values(column: pa.ChunkedArray, zone: str) -> list[Any]:
    """The values of a column as PySpark's Row form has them: Arrow's own Python values."""
    array = one_array(column)
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        there = pa.lib.string_to_tzinfo(zone)
        return [None if v is None else v.astimezone(there) for v in to_python(array)]
    if pa.types.is_nested(kind):
        return python_values(array.cast(_in_zone(kind, zone)))
    return to_python(array)


def _in_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    """The same type with its timestamps in another zone."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, zone)
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([pa.field(f.name, _in_zone(f.type, zone)) for f in fields])
    if pa.types.is_list(kind):
        return pa.list_(_in_zone(kind.value_type, zone))
    if pa.types.is_map(kind):
        return pa.map_(_in_zone(kind.key_type, zone), _in_zone(kind.item_type, zone))
    return kind
