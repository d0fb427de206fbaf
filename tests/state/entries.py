"""Rows of prefixed tables as plain Python: users with many entries, and hashes good and bad."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from holdfast.state.hashing import Hashes, entry_hashes, marker_hashes, prefix_range
from holdfast.state.keys import keys_equal, sort_rows
from holdfast.state.schema import HASH, TOMBSTONE, TableSchema
from holdfast.state.view import TableView
from tests.state.model import strong_hash

User = str | None
UserHash = Callable[[User], int]
LowHash = Callable[[Any], int]

USER_HASHES: dict[str, UserHash] = {
    "strong": lambda user: strong_hash((user,)),
    "one prefix": lambda user: (7 << 32) | (strong_hash((user,)) >> 32),
    "two prefixes": lambda user: (strong_hash((user,)) % 2) << 63,
    "always the last": lambda user: 2**64 - 1,
}
LOW_HASHES: dict[str, LowHash] = {
    "strong": lambda entry: strong_hash((repr(entry),)) >> 32,
    "one of three": lambda entry: strong_hash((repr(entry),)) % 3,
    "always the last": lambda entry: 2**32 - 1,
}


class Entry(NamedTuple):
    """What a row holds behind its keys."""

    value: Any
    expires: int | None = None


class Changes(NamedTuple):
    """What an epoch does to one user's entries: first it may clear them."""

    cleared: bool
    entries: Mapping[Any, Entry | None]
    """None: removed."""


class Hashing(NamedTuple):
    """How rows are hashed."""

    user: UserHash
    low: LowHash

    def entry(self, user: User, entry: Any) -> int:
        low = np.array([self.low(entry)], np.uint32)
        return int(entry_hashes(np.array([self.user(user)], np.uint64), low)[0])

    def marker(self, user: User) -> int:
        return int(marker_hashes(np.array([self.user(user)], np.uint64))[0])


STRONG = Hashing(USER_HASHES["strong"], LOW_HASHES["strong"])


def entries_table(
    schema: TableSchema, changes: Mapping[User, Changes], hashing: Hashing = STRONG
) -> pa.Table:
    """Sorted rows; a removed entry and a cleared user have a tombstone."""
    rows: list[tuple[Any, ...]] = []
    for user, change in changes.items():
        if change.cleared:
            rows.append((hashing.marker(user), user, None, None, None, True))
        for name, entry in change.entries.items():
            value = entry or Entry(None)
            place = hashing.entry(user, name)
            rows.append((place, user, name, value.value, value.expires, entry is None))
    arrow = schema.arrow_with_tombstones
    arrays = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(arrow)]
    table = sort_rows(pa.Table.from_arrays(arrays, schema=arrow), len(schema.keys)).table
    return table if any(row[-1] for row in rows) else table.drop_columns([TOMBSTONE])


def entries_of(schema: TableSchema, tables: Iterable[pa.Table]) -> list[tuple[User, Any, Entry]]:
    """Rows as plain Python, in order."""
    user, name, value, expires = schema.arrow.names[1:]
    return [
        (row[user], frozen(row[name]), Entry(row[value], row[expires]))
        for table in tables
        for row in table.to_pylist()
    ]


def frozen(name: Any) -> Any:
    """An entry's key as something that a dict can have as its own."""
    return tuple(name.values()) if isinstance(name, dict) else name


def users_query(
    schema: TableSchema, users: Sequence[User], hashing: Hashing
) -> tuple[Hashes, pa.Table]:
    """Distinct users as a look-up asks for them."""
    hashes = pa.array([hashing.user(user) for user in users], pa.uint64())
    names = [HASH, schema.keys[0].name]
    table = pa.Table.from_arrays([hashes, pa.array(users, pa.string())], names=names)
    table = sort_rows(table, 1).table
    return table.column(0).to_numpy(), table.select([1])


def looked_up(
    view: TableView, users: Sequence[User], hashing: Hashing, limit: int = 10**6
) -> tuple[dict[User, list[tuple[Any, Entry]]], set[User]]:
    """All entries of some users in order, and those users that have too many."""
    hashes, keys = users_query(view.schema, users, hashing)
    found = view.lookup_prefix(hashes, keys, limit)
    assert found.rows.schema.equals(view.schema.arrow, check_metadata=True)
    assert (found.query[1:] >= found.query[:-1]).all()
    assert (found.large[1:] > found.large[:-1]).all()
    assert keys_equal(keys.take(pa.array(found.query)), found.rows.select([1])).all()
    entries: dict[User, list[tuple[Any, Entry]]] = {}
    for user, name, entry in entries_of(view.schema, [found.rows]):
        entries.setdefault(user, []).append((name, entry))
    return entries, {keys.column(0)[int(i)].as_py() for i in found.large}


def scanned(view: TableView, user: User, hashing: Hashing) -> list[tuple[Any, Entry]]:
    """The entries of one user, as a scan of a large key gives them."""
    key = pa.table({view.schema.keys[0].name: pa.array([user], pa.string())})
    pieces = list(view.scan_prefix(hashing.user(user), key))
    within = prefix_range(hashing.user(user))
    for piece in pieces:
        assert all(within.first < h <= within.last for h in piece.column(0).to_pylist())
    found = entries_of(view.schema, pieces)
    assert {name for name, _, _ in found} <= {user}
    return [(name, entry) for _, name, entry in found]
