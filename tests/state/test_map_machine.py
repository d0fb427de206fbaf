"""Maps on disk against dicts: set, remove, clear, expire, in any order, with weak hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.state.expiry import TableClock
from holdfast.state.hashing import HashRange, partition_range
from holdfast.state.keys import sort_rows
from holdfast.state.schema import HASH, ClockName, Column, TableSchema
from holdfast.state.view import TableView
from tests.state.disk import TableOnDisk, covers, partition_counts, partition_ranges
from tests.state.entries import (
    LOW_HASHES,
    USER_HASHES,
    Changes,
    Entry,
    Hashing,
    User,
    entries_of,
    entries_table,
    frozen,
    looked_up,
    scanned,
)

USERS: list[User] = [None, "", "ann", "a user with a rather long name"]
COMPOSITE = pa.struct([("sku", pa.string()), ("size", pa.float64())])
NAMES: dict[pa.DataType, list[Any]] = {
    pa.string(): [None, "", "a", "b", "c", "d", "a name that is not inlined"],
    COMPOSITE: [
        None,
        {"sku": None, "size": None},
        {"sku": "a", "size": None},
        {"sku": "a", "size": 1.5},
        {"sku": "b", "size": -0.5},
        {"sku": "", "size": 0.0},
    ],
}
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [None, 0, 7],
    pa.map_(pa.string(), pa.list_(pa.int32())): [None, [], [("x", [1, None]), ("y", None)]],
    pa.list_(pa.struct([("n", pa.int64()), ("s", pa.string())])): [
        None,
        [],
        [{"n": 1, "s": None}, None, {"n": None, "s": "text"}],
    ],
}


def map_schema(name: pa.DataType, value: pa.DataType, clock: ClockName) -> TableSchema:
    return TableSchema(
        "process.map.items",
        (Column(1, "user", pa.string()), Column(2, "map_key", name)),
        (Column(3, "value", value, 4, clock), Column(4, "expires", pa.int64())),
        prefix=1,
    )


# What one epoch does, in order: (user, what, the entry's number, the value's number, TTL).
steps = st.lists(
    st.tuples(
        st.sampled_from(USERS),
        st.sampled_from(["set", "set", "set", "remove", "clear"]),
        st.integers(0, 6),
        st.integers(0, 2),
        st.one_of(st.none(), st.integers(1, 20)),
    ),
    max_size=25,
)
Step = tuple[User, str, int, int, int | None]


class MapsOnDisk(RuleBasedStateMachine):
    """Whatever is done to the runs, each user's map is what a dict says."""

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[User, dict[Any, Entry]] = {user: {} for user in USERS}
        self.now = 100

    @initialize(
        user=st.sampled_from(list(USER_HASHES)),
        low=st.sampled_from(list(LOW_HASHES)),
        name=st.sampled_from(list(NAMES)),
        value=st.sampled_from(list(VALUES)),
        clock=st.sampled_from(["processing", "event"]),
    )
    def choose(
        self, user: str, low: str, name: pa.DataType, value: pa.DataType, clock: ClockName
    ) -> None:
        self.hashing = Hashing(USER_HASHES[user], LOW_HASHES[low])
        self.names, self.values = NAMES[name], VALUES[value]
        self.clock_name = clock
        self.table = TableOnDisk(map_schema(name, value, clock))

    def teardown(self) -> None:
        if hasattr(self, "table"):
            self.table.close()

    @property
    def clock(self) -> TableClock:
        if self.clock_name == "processing":
            return TableClock(self.now, None)
        return TableClock(0, self.now)

    @rule(steps=steps, partitions=partition_counts, merging=st.booleans())
    def epoch(self, steps: Sequence[Step], partitions: int, merging: bool) -> None:
        cleared: set[User] = set()
        written: dict[User, dict[int, Entry | None]] = {}
        for user, what, name, value, ttl in steps:
            number = name % len(self.names)
            entries = written.setdefault(user, {})
            if what == "set":
                expires = None if ttl is None else self.now + ttl
                entries[number] = Entry(self.values[value], expires)
            elif what == "remove":
                entries[number] = None
            else:
                cleared.add(user)
                entries.clear()
        changes = {user: Changes(user in cleared, entries) for user, entries in written.items()}
        self._write(changes, partitions, merging)
        for user, change in changes.items():
            self._apply(user, change)

    def _write(self, changes: dict[User, Changes], partitions: int, merging: bool) -> None:
        tables = []
        for number in range(partitions):
            within = partition_range(number, partitions)
            own = {u: c for u, c in changes.items() if covers(within, self.hashing.user(u))}
            tables.append((within, self._rows(own)))
        self.table.epoch(tables, merging=merging, clock=self.clock)

    def _rows(self, changes: dict[User, Changes]) -> pa.Table:
        """A composite key is a dict, which no dict can have as its key: it goes by its number."""
        numbered = TableSchema(
            self.table.schema.table,
            (self.table.schema.keys[0], Column(2, "map_key", pa.int64())),
            self.table.schema.values,
            prefix=1,
        )
        hashing = Hashing(self.hashing.user, lambda n: self.hashing.low(self.names[n]))
        rows = entries_table(numbered, changes, hashing)
        names = [None if n is None else self.names[n] for n in rows.column(2).to_pylist()]
        kind = self.table.schema.keys[1].type
        field = self.table.schema.arrow.field(2)
        return sort_rows(rows.set_column(2, field, pa.array(names, kind)), 2).table

    def _apply(self, user: User, change: Changes) -> None:
        entries = self.model[user]
        if change.cleared:
            entries.clear()
        for number, entry in change.entries.items():
            name = frozen(self.names[number])
            entries.pop(name, None)
            if entry is not None:
                entries[name] = entry

    @rule(users=st.sets(st.sampled_from(USERS), min_size=1), ttl=st.sampled_from([None, 1, 9]))
    def fill(self, users: set[User], ttl: int | None) -> None:
        """Every entry is set: maps of several blocks and merge pieces."""
        numbers = range(len(self.names))
        self.epoch([(user, "set", n, n % 3, ttl) for user in users for n in numbers], 1, False)

    @rule(users=st.sets(st.sampled_from(USERS), min_size=1), number=st.integers(0, 6))
    def clear_and_set_one(self, users: set[User], number: int) -> None:
        clears: list[Step] = [(user, "clear", 0, 0, None) for user in users]
        sets: list[Step] = [(user, "set", number, 1, None) for user in users if user != ""]
        self.epoch(clears + sets, 1, False)

    @rule(ms=st.integers(1, 15))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @rule(
        within=partition_ranges,
        start=st.integers(0, 5),
        length=st.integers(1, 5),
        expiring=st.booleans(),
    )
    def merge(self, within: HashRange, start: int, length: int, expiring: bool) -> None:
        self.table.merge(within, start, length, self.clock if expiring else None)

    @rule()
    def merge_as_planned(self) -> None:
        self.table.merge_as_planned(self.clock)

    @rule()
    def store_and_lose_the_host(self) -> None:
        self.table.store_and_lose_the_host()

    @rule()
    def reopen_local_runs(self) -> None:
        self.table.reopen_local_runs()

    @rule(user=st.sampled_from(USERS), numbers=st.sets(st.integers(0, 6), min_size=1))
    def get_some(self, user: User, numbers: set[int]) -> None:
        names = [name for i, name in enumerate(self.names) if i in numbers]
        self._check_entries([(user, name) for name in names])

    @rule(user=st.sampled_from(USERS))
    def get_one_by_one(self, user: User) -> None:
        for name in self.names:
            self._check_entries([(user, name)])

    @rule(limit=st.integers(0, 6))
    def read_whole_maps_up_to_a_limit(self, limit: int) -> None:
        found, large = looked_up(self._view(), USERS, self.hashing, limit)
        for user in USERS:
            live = self._live(user)
            assert user in large or len(live) <= limit
            assert dict(found.get(user, [])) == ({} if user in large else live)

    @rule(within=partition_ranges)
    def read_a_partition(self, within: HashRange) -> None:
        view = self.table.view(within, self.clock)
        found, _ = looked_up(view, USERS, self.hashing)
        for user in USERS:
            inside = covers(within, self.hashing.user(user))
            assert dict(found.get(user, [])) == (self._live(user) if inside else {})

    @invariant()
    def maps_are_what_dicts_say(self) -> None:
        if not hasattr(self, "table"):
            return
        view = self._view()
        expected = {(u, n): e for u in USERS for n, e in self._live(u).items()}
        everything = entries_of(self.table.schema, view.scan())
        assert {(u, n): e for u, n, e in everything} == expected
        assert len(everything) == view.count() == len(expected)
        found, large = looked_up(view, USERS, self.hashing)
        assert not large
        for user in USERS:
            assert dict(found.get(user, [])) == self._live(user)
            assert scanned(view, user, self.hashing) == found.get(user, [])
        self._check_entries([(user, name) for user in USERS for name in self.names])

    def _view(self) -> TableView:
        return self.table.view(clock=self.clock)

    def _live(self, user: User) -> dict[Any, Entry]:
        entries = self.model[user].items()
        return {n: e for n, e in entries if e.expires is None or e.expires > self.now}

    def _check_entries(self, asked: list[tuple[User, Any]]) -> None:
        schema = self.table.schema
        hashes = [self.hashing.entry(user, name) for user, name in asked]
        columns = [
            pa.array(hashes, pa.uint64()),
            pa.array([user for user, _ in asked], pa.string()),
            pa.array([name for _, name in asked], schema.keys[1].type),
        ]
        query = pa.Table.from_arrays(columns, names=[HASH, *schema.key_names])
        query = sort_rows(query, 2).table
        found = self._view().lookup(query.column(0).to_numpy(), query.select(schema.key_names))
        assert found.rows.schema.equals(schema.arrow, check_metadata=True)
        assert np.array_equal(found.query, np.unique(found.query))
        rows = entries_of(schema, [found.rows])
        live = ((user, frozen(name)) for user, name in asked)
        expected = {(u, n): self._live(u)[n] for u, n in live if n in self._live(u)}
        assert {(u, n): e for u, n, e in rows} == expected


TestMapsOnDisk = MapsOnDisk.TestCase
TestMapsOnDisk.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
