"""The rows of an epoch's join: which key each is of, and when it happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.operators.columns import Bits, column, is_valid, numbers
from holdfast.operators.input_rows import SOURCE, TAG, Fields
from holdfast.operators.join.matching import Micros, order_by_time
from holdfast.operators.join.packing import Packing, SideName
from holdfast.state.columns import Indices, concat, hash_values, one_array, take_all
from holdfast.state.hashing import Hashes
from holdfast.state.keys import SortedRows, group_stretches
from holdfast.state.schema import KEY_HASH

__all__ = ["Arrived", "KeySpace", "SideRows", "arrived", "key_space", "take_rows"]


@dataclass(frozen=True, slots=True)
class KeySpace:
    """The distinct keys that an epoch looks at: those of its rows, and those that hints name."""

    hashes: Hashes
    keys: pa.Table
    """The keys, sorted by (hash, key)."""
    null: Bits
    """Keys with a null in them: they match nothing."""
    of_rows: Indices
    """For each row of the epoch the number of its key, ascending."""
    of_hints: tuple[Indices, ...]
    """For each table of hints the numbers of the keys that it names."""

    def __len__(self) -> int:
        return len(self.hashes)

    def marked(self, *numbers: Indices) -> Bits:
        """Which keys are among these numbers."""
        marks = np.zeros(len(self), np.bool_)
        for each in numbers:
            marks[each] = True
        return marks


@dataclass(frozen=True, slots=True)
class SideRows:
    """Rows of one side, sorted by key and time."""

    columns: pa.Table
    """All of the side's columns; also of rows that are not among these."""
    places: Indices
    """For each row its place in the columns."""
    groups: Indices
    """For each row the number of its key."""
    micros: Micros
    """When each row happened, in µs."""

    def __len__(self) -> int:
        return len(self.places)

    def at(self, picked: Indices | Bits, names: Sequence[str]) -> list[pa.Array]:
        """Some columns of the rows picked."""
        places = self.places[picked]
        return take_rows([one_array(self.columns.column(name)) for name in names], places)


@dataclass(frozen=True, slots=True)
class Arrived:
    """The rows of one side that came in this epoch."""

    rows: SideRows
    timeless: SideRows
    """Those that don't say when they happened: they match nothing."""


def key_space(rows: SortedRows, on: Fields, hints: Sequence[pa.Table]) -> KeySpace:
    """The keys of these rows and of rows of timed tables."""
    table, starts = rows.table, rows.starts
    hashes = hash_values(table)[starts]
    keys = take_rows([column(table, name, kind) for name, kind in on], starts)
    of_rows = np.repeat(np.arange(len(starts)), np.diff(starts, append=table.num_rows))
    of_hints: list[Indices] = [np.empty(0, np.int64)] * len(hints)
    if any(hint.num_rows for hint in hints):
        parts = [hashes, *(one_array(h.column(KEY_HASH)).to_numpy() for h in hints)]
        hashes = np.concatenate(parts)
        keys = [
            concat([key, *(one_array(h.column(name)) for h in hints)], kind)
            for key, (name, kind) in zip(keys, on, strict=True)
        ]
        found = group_stretches(hashes, keys)
        order = np.arange(len(hashes)) if found.order is None else found.order
        sizes = np.diff(found.starts, append=len(hashes))
        ids = np.empty(len(hashes), np.int64)
        ids[order] = np.repeat(np.arange(len(sizes)), sizes)
        first, *of_hints = np.split(ids, np.cumsum([len(part) for part in parts])[:-1])
        of_rows = first[of_rows]
        chosen = order[found.starts]
        hashes, keys = hashes[chosen], take_all(keys, chosen)
    null = np.zeros(len(hashes), np.bool_)
    for key in keys:
        if key.null_count:
            null |= key.is_null().to_numpy(zero_copy_only=False)
    named = pa.Table.from_arrays(keys, names=[name for name, _ in on])
    return KeySpace(hashes, named, null, of_rows, tuple(of_hints))


def arrived(
    rows: pa.Table, space: KeySpace, packing: Packing, side: SideName, time: str
) -> Arrived:
    """The rows of one side, of an epoch's sorted rows."""
    number = 0 if side == "left" else 1
    mine = numbers(one_array(rows.column(SOURCE))) == number
    columns = packing.unpack(rows, side)
    times = one_array(columns.column(time))
    known = is_valid(times)
    timeless = np.empty(0, np.int64) if known is None else np.flatnonzero(mine & ~known)
    places = np.flatnonzero(mine if known is None else mine & known)
    groups, micros = space.of_rows[places], numbers(times)[places]
    tags = numbers(one_array(rows.column(TAG)))[places]
    order = order_by_time(groups, micros, tags)
    if order is not None:
        places, groups, micros = places[order], groups[order], micros[order]
    nowhen = np.zeros(len(timeless), np.int64)
    return Arrived(
        SideRows(columns, places, groups, micros),
        SideRows(columns, timeless, space.of_rows[timeless], nowhen),
    )


def take_rows(columns: Sequence[pa.Array], places: Indices) -> list[pa.Array]:
    """The columns at these places, without copying if that is all of them in order."""
    count = len(columns[0]) if columns else 0
    ascending = bool((places[1:] >= places[:-1]).all())
    if ascending and len(places) == count and (not count or _once(places)):
        return list(columns)
    return take_all(columns, places, ascending=ascending)


def _once(places: Indices) -> bool:
    return bool(places[0] == 0 and (np.diff(places) == 1).all())
