"""The keys that a piece of a task works on, and what the state has under them.

Windows without key columns have a key all the same, which is the same for all rows: a prefixed
table needs one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.operators.base import Clock, StateReader
from holdfast.operators.columns import column
from holdfast.operators.input_rows import Fields
from holdfast.state.columns import Indices, concat, hash_values, one_array, take_all
from holdfast.state.hashing import Hashes, HashRange
from holdfast.state.keys import SortedRows, sort_rows
from holdfast.state.schema import (
    HASH,
    Column,
    TableSchema,
    order_to_time,
    time_to_order,
)
from holdfast.state.text import python_rows

__all__ = [
    "EVERYTHING",
    "NEVER",
    "Hints",
    "KeySet",
    "ceil_ms",
    "keys_of",
    "read_under",
    "same_key_for_all",
    "together",
]

EVERYTHING = "_holdfast_all"
"""The one key of windows that have no key columns."""
NEVER = -(2**62)
"""Before any time: the watermark while there is none."""
# Keys with more rows than this are read one by one: each is work enough.
_LARGE = 1 << 14
_ROW = "_holdfast_row"


def same_key_for_all(keys: Fields) -> Fields:
    """The columns that state is keyed by: these, or one that is the same for all rows."""
    return tuple(keys) or ((EVERYTHING, pa.int8()),)


def ceil_ms(micros: Indices) -> Indices:
    """Times in µs as ms, rounded up: only then has a watermark in ms passed them.

    >>> ceil_ms(np.array([1, 1000, -1])).tolist()
    [1, 1, 0]
    """
    ms: Indices = -(-micros // 1000)
    return ms


@dataclass(frozen=True, slots=True)
class KeySet:
    """Distinct keys, sorted by (hash, key)."""

    hashes: Hashes
    keys: pa.Table

    def __len__(self) -> int:
        return len(self.hashes)

    def columns_at(self, places: Indices) -> list[pa.Array]:
        """The key columns of these keys."""
        return take_all([one_array(c) for c in self.keys.columns], places, ascending=True)

    def at(self, places: Indices) -> KeySet:
        """Some of the keys, which must ascend."""
        names = self.keys.column_names
        return KeySet(
            self.hashes[places], pa.Table.from_arrays(self.columns_at(places), names=names)
        )

    def words(self, place: int) -> dict[str, object]:
        """One key, for messages."""
        (row,) = python_rows(self.keys.slice(place, 1))
        return row


def keys_of(rows: SortedRows, keys: Fields) -> pa.Table:
    """Hash and key columns of each distinct key."""
    columns = [column(rows.table, HASH, pa.uint64())]
    columns += [column(rows.table, name, kind) for name, kind in keys]
    if len(rows.starts) < rows.table.num_rows:
        columns = take_all(columns, rows.starts, ascending=True)
    return pa.Table.from_arrays(columns, names=[HASH, *(name for name, _ in keys)])


def together(fresh: pa.Table, others: pa.Table) -> tuple[KeySet, Indices, Indices]:
    """All keys of two tables of hash and keys, and where among them each table's are.

    The first table's are distinct and sorted; the others come in any order, and repeat.
    """
    if not others.num_rows:
        count = fresh.num_rows
        return KeySet(_hashes(fresh), fresh.drop_columns([HASH])), np.arange(count), np.arange(0)
    both = pa.concat_tables([fresh, others.cast(fresh.schema)]).combine_chunks()
    both = both.append_column(_ROW, pa.array(np.arange(both.num_rows)))
    ordered = sort_rows(both, fresh.num_columns - 1)
    numbers = np.zeros(both.num_rows, np.int64)
    numbers[ordered.starts[1:]] = 1
    places = np.empty(both.num_rows, np.int64)
    places[one_array(ordered.table.column(_ROW)).to_numpy()] = np.cumsum(numbers)
    names = fresh.column_names[1:]
    arrays = take_all([one_array(c) for c in ordered.table.columns[:-1]], ordered.starts)
    keys = KeySet(arrays[0].to_numpy(), pa.Table.from_arrays(arrays[1:], names=names))
    return keys, places[: fresh.num_rows], places[fresh.num_rows :]


def read_under(state: StateReader, schema: TableSchema, keys: KeySet) -> tuple[Indices, pa.Table]:
    """All rows under these keys, and whose each is."""
    if not len(keys):
        return np.empty(0, np.int64), schema.arrow.empty_table()
    found = state.lookup_prefix(schema.table, keys.hashes, keys.keys, _LARGE)
    if not len(found.large):
        return found.query, found.rows
    owners, tables = [found.query], [found.rows]
    for place in found.large.tolist():
        key = keys.keys.slice(place, 1).combine_chunks()
        for piece in state.scan_prefix(schema.table, int(keys.hashes[place]), key):
            owners.append(np.full(piece.num_rows, place))
            tables.append(piece)
    columns = [
        concat([one_array(table.column(i)) for table in tables], field.type)
        for i, field in enumerate(schema.arrow)
    ]
    return np.concatenate(owners), pa.Table.from_arrays(columns, schema=schema.arrow)


@dataclass(frozen=True, slots=True)
class Hints:
    """A timed table that says when to look at which key.

    >>> Hints.of("visits", [("user", pa.string())]).schema.arrow.names
    ['_holdfast_hash', '_holdfast_key_hash', 'user']
    """

    schema: TableSchema

    @classmethod
    def of(cls, id: str, keys: Fields) -> Hints:  # noqa: A002 - the operator's word for it
        """The hints of an operator with these keys."""
        columns = tuple(Column(i, name, kind) for i, (name, kind) in enumerate(keys, 1))
        return cls(TableSchema(f"{id}.ends", columns, (), timed="event"))

    def due(self, state: StateReader, clock: Clock, within: HashRange) -> pa.Table:
        """Hash and key of what is to be looked at in this epoch; keys may repeat."""
        names = [HASH, *self.schema.key_names]
        if clock.watermark_ms is None:
            rows = self.schema.arrow.empty_table()
        else:
            rows = state.due(self.schema.table, clock.watermark_ms, within)
        before = clock.previous_watermark_ms
        if before is not None and rows.num_rows:
            # Hints that are dead may be there or not, as merges go: none must be followed.
            live = order_to_time(hash_values(rows)) > before
            rows = rows if live.all() else rows.filter(pa.array(live))
        plain = rows.drop_columns([HASH]).rename_columns(names)
        return pa.Table.from_arrays(plain.columns, names=names)

    def make(self, times_ms: Indices, keys: KeySet, places: Indices) -> pa.Table:
        """Hints to look at the keys at these places at these times."""
        arrays = [pa.array(time_to_order(times_ms)), pa.array(keys.hashes[places])]
        return pa.Table.from_arrays([*arrays, *keys.columns_at(places)], schema=self.schema.arrow)


def _hashes(table: pa.Table) -> Hashes:
    return hash_values(table) if table.num_rows else np.empty(0, np.uint64)
