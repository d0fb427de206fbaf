"""State on disk against a dict: epochs at any P, merges, both forms, weak hashes, in any order."""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from holdfast.state.hashing import FULL_RANGE, HashRange, partition_range
from tests.state.disk import TableOnDisk, covers, partition_counts, partition_ranges
from tests.state.model import (
    HASHES,
    SCHEMA,
    Hash,
    Key,
    Row,
    found_rows,
    state_rows,
    state_table,
    strong_hash,
)

WORDS = [None, "", "a", "b", "a\0", "longer than a view holds", *"cdefgh"]
DAYS = [None, 0, 1]
ALL_KEYS: list[Key] = list(itertools.product(WORDS, DAYS))
keys = st.sampled_from(ALL_KEYS)
rows = st.tuples(
    st.integers(0, 9), st.sampled_from([None, 0.5, -1.0]), st.sampled_from([None, "x", "note" * 9])
)
ranges = st.one_of(
    partition_ranges,
    st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)).map(
        lambda pair: HashRange(min(pair), max(pair))
    ),
)


class StateOnDisk(RuleBasedStateMachine):
    """Whatever is done to the runs, the table is what the dict says."""

    def __init__(self) -> None:
        super().__init__()
        self.table = TableOnDisk(SCHEMA)
        self.hash_of: Hash = strong_hash
        self.model: dict[Key, Row] = {}

    def teardown(self) -> None:
        self.table.close()

    @initialize(name=st.sampled_from(sorted(HASHES)))
    def choose_hash(self, name: str) -> None:
        self.hash_of = HASHES[name]

    @rule(
        changes=st.dictionaries(keys, st.one_of(st.none(), rows), max_size=25),
        partitions=partition_counts,
        merging=st.booleans(),
    )
    def epoch(self, changes: dict[Key, Row | None], partitions: int, merging: bool) -> None:
        written = []
        for number in range(partitions):
            within = partition_range(number, partitions)
            own = {k: r for k, r in changes.items() if covers(within, self.hash_of(k))}
            written.append((within, state_table(own, self.hash_of)))
        self.table.epoch(written, merging=merging)
        for key, row in changes.items():
            self.model.pop(key, None)
            if row is not None:
                self.model[key] = row

    @rule(within=ranges, start=st.integers(0, 5), length=st.integers(1, 5))
    def merge(self, within: HashRange, start: int, length: int) -> None:
        self.table.merge(within, start, length)

    @rule()
    def merge_as_planned(self) -> None:
        self.table.merge_as_planned()

    @rule()
    def store_and_lose_the_host(self) -> None:
        self.table.store_and_lose_the_host()

    @rule()
    def reopen_local_runs(self) -> None:
        self.table.reopen_local_runs()

    @rule(asked=st.lists(keys, unique=True, max_size=20))
    def look_up_some(self, asked: list[Key]) -> None:
        found = found_rows(self.table.view(), asked, self.hash_of)
        assert found == {k: self.model[k] for k in asked if k in self.model}

    @rule(key=keys)
    def look_up_one(self, key: Key) -> None:
        found = found_rows(self.table.view(), [key], self.hash_of)
        assert found == ({key: self.model[key]} if key in self.model else {})

    @rule(within=ranges)
    def look_up_in_a_range(self, within: HashRange) -> None:
        inside = {k: r for k, r in self.model.items() if covers(within, self.hash_of(k))}
        assert found_rows(self.table.view(within), ALL_KEYS, self.hash_of) == inside

    @precondition(lambda self: self.model)
    @rule(within=ranges)
    def scan(self, within: HashRange) -> None:
        view = self.table.view(FULL_RANGE)
        expected = {k: r for k, r in self.model.items() if covers(within, self.hash_of(k))}
        assert state_rows(view.scan(within)) == expected
        assert view.count(within) == len(expected)

    @invariant()
    def table_is_what_the_dict_says(self) -> None:
        view = self.table.view()
        assert state_rows(view.scan()) == self.model
        assert found_rows(view, ALL_KEYS, self.hash_of) == self.model


TestStateOnDisk = StateOnDisk.TestCase
TestStateOnDisk.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
