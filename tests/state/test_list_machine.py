"""Lists on disk against lists: append, replace, clear, expire; items stay in their order."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.state.expiry import TableClock
from holdfast.state.hashing import HashRange, partition_range
from holdfast.state.schema import Column, TableSchema
from holdfast.state.view import TableView
from tests.state.disk import TableOnDisk, covers, partition_counts, partition_ranges
from tests.state.entries import (
    LOW_HASHES,
    USER_HASHES,
    Changes,
    Entry,
    Hashing,
    User,
    entries_table,
    looked_up,
    scanned,
)

SCHEMA = TableSchema(
    "process.list.visits",
    (Column(1, "user", pa.string()), Column(2, "sequence", pa.int64())),
    (Column(3, "value", pa.string(), 4, "processing"), Column(4, "expires", pa.int64())),
    prefix=1,
)
USERS: list[User] = [None, "ann", "bob", "cy"]
# Per user: whether the list is cleared first, then what is appended, with which TTL.
appends = st.dictionaries(
    st.sampled_from(USERS),
    st.tuples(
        st.booleans(),
        st.lists(st.sampled_from([None, "", "a", "b"]), max_size=9),
        st.one_of(st.none(), st.integers(1, 20)),
    ),
)


class ListsOnDisk(RuleBasedStateMachine):
    """Whatever is done to the runs, each user's list is what a list says, in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.table = TableOnDisk(SCHEMA)
        self.model: dict[User, list[Entry]] = {user: [] for user in USERS}
        self.hashing = Hashing(USER_HASHES["strong"], LOW_HASHES["strong"])
        self.now = 100

    def teardown(self) -> None:
        self.table.close()

    @initialize(name=st.sampled_from(list(USER_HASHES)))
    def choose_hash(self, name: str) -> None:
        # Items appended in one epoch share a hash, the next epoch's has a higher one.
        self.hashing = Hashing(USER_HASHES[name], lambda sequence: sequence >> 16)

    @rule(lists=appends, partitions=partition_counts, merging=st.booleans())
    def epoch(
        self,
        lists: Mapping[User, tuple[bool, list[str | None], int | None]],
        partitions: int,
        merging: bool,
    ) -> None:
        first = (self.table.version.epoch + 2) << 16
        changes = {}
        for user, (cleared, values, ttl) in lists.items():
            expires = None if ttl is None else self.now + ttl
            entries = [Entry(value, expires) for value in values]
            self.model[user] = entries if cleared else self.model[user] + entries
            changes[user] = Changes(cleared, {first + i: e for i, e in enumerate(entries)})
        tables = []
        for number in range(partitions):
            within = partition_range(number, partitions)
            own = {u: c for u, c in changes.items() if covers(within, self.hashing.user(u))}
            tables.append((within, entries_table(SCHEMA, own, self.hashing)))
        self.table.epoch(tables, merging=merging, clock=TableClock(self.now))

    @rule(ms=st.integers(1, 15))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @rule(within=partition_ranges, start=st.integers(0, 5), length=st.integers(1, 5))
    def merge(self, within: HashRange, start: int, length: int) -> None:
        self.table.merge(within, start, length, TableClock(self.now))

    @rule()
    def merge_as_planned(self) -> None:
        self.table.merge_as_planned(TableClock(self.now))

    @rule()
    def store_and_lose_the_host(self) -> None:
        self.table.store_and_lose_the_host()

    @rule()
    def reopen_local_runs(self) -> None:
        self.table.reopen_local_runs()

    @rule(limit=st.integers(0, 9))
    def read_up_to_a_limit(self, limit: int) -> None:
        found, large = looked_up(self._view(), USERS, self.hashing, limit)
        for user in USERS:
            live = self._live(user)
            assert user in large or len(live) <= limit
            assert [e for _, e in found.get(user, [])] == ([] if user in large else live)

    @invariant()
    def lists_are_what_lists_say(self) -> None:
        found, large = looked_up(self._view(), USERS, self.hashing)
        assert not large
        for user in USERS:
            assert [entry for _, entry in found.get(user, [])] == self._live(user)
            assert scanned(self._view(), user, self.hashing) == found.get(user, [])

    def _view(self) -> TableView:
        return self.table.view(clock=TableClock(self.now))

    def _live(self, user: User) -> list[Entry]:
        return [e for e in self.model[user] if e.expires is None or e.expires > self.now]


TestListsOnDisk = ListsOnDisk.TestCase
TestListsOnDisk.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
