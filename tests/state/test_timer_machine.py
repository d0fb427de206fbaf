"""Timers on disk against a heap: due once, in order, whatever P is and whatever was merged."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE, HashRange, partition_range
from holdfast.state.schema import ClockName, Column, TableSchema
from tests.state.disk import TableOnDisk, covers, partition_counts, partition_ranges
from tests.state.model import HASHES, Hash, strong_hash
from tests.state.timers import Timer, timer_rows, timer_table

USERS = [None, "", "ann", "bob", "cy", "a user with a rather long name"]
timers = st.tuples(st.integers(-5, 60), st.sampled_from(USERS))


def timer_schema(clock: ClockName) -> TableSchema:
    return TableSchema("process.due", (Column(1, "user", pa.string()),), (), timed=clock)


class TimersOnDisk(RuleBasedStateMachine):
    """Rows come due when the heap says so, in the order of time and key hash."""

    def __init__(self) -> None:
        super().__init__()
        self.hash_of: Hash = strong_hash
        self.heap: list[tuple[int, int, str, Timer]] = []
        self.now = 0

    @initialize(name=st.sampled_from(list(HASHES)), clock=st.sampled_from(["event", "processing"]))
    def choose(self, name: str, clock: ClockName) -> None:
        self.hash_of = HASHES[name]
        self.clock_name = clock
        self.table = TableOnDisk(timer_schema(clock))

    def teardown(self) -> None:
        if hasattr(self, "table"):
            self.table.close()

    @property
    def clock(self) -> TableClock:
        if self.clock_name == "processing":
            return TableClock(self.now, None)
        return TableClock(10**9, self.now)

    @rule(offsets=st.lists(timers, max_size=20), partitions=partition_counts, merging=st.booleans())
    def set_timers(
        self, offsets: list[tuple[int, str | None]], partitions: int, merging: bool
    ) -> None:
        """Some may be in the past, and set already: then they are never due again."""
        wanted = {Timer(self.now + offset, user) for offset, user in offsets}
        tables = []
        for number in range(partitions):
            within = partition_range(number, partitions)
            own = [timer for timer in wanted if covers(within, self.hash_of((timer.user,)))]
            tables.append((within, timer_table(self.table.schema, own, self.hash_of)))
        self.table.epoch(tables, merging=merging, clock=self.clock)
        known = {entry[-1] for entry in self.heap}
        for timer in sorted(wanted - known, key=repr):
            if timer.time > self.now:
                place = self.hash_of((timer.user,))
                heapq.heappush(self.heap, (timer.time, place, repr(timer.user), timer))

    @rule(ms=st.integers(0, 30))
    def time_passes(self, ms: int) -> None:
        before, self.now = self.now, self.now + ms
        expected: list[Timer] = []
        while self.heap and self.heap[0][0] <= self.now:
            expected.append(heapq.heappop(self.heap)[-1])
        found = timer_rows(self.table.view().due(before, self.now))
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        assert [t.time for t in found] == [t.time for t in expected]

    @rule(partitions=partition_counts, ms=st.integers(0, 60))
    def every_partition_reads_its_own(self, partitions: int, ms: int) -> None:
        until = self.now + ms
        for number in range(partitions):
            within = partition_range(number, partitions)
            found = timer_rows(self.table.view(within).due(self.now, until))
            assert_timers(found, (t for t in self._waiting(within) if t.time <= until))

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

    @rule(within=partition_ranges)
    def the_first_of_a_partition(self, within: HashRange) -> None:
        waiting = self._waiting(within)
        first = min((timer.time for timer in waiting), default=None)
        assert self.table.view(within).first_time(self.now) == first

    @invariant()
    def what_waits_is_what_the_heap_holds(self) -> None:
        if not hasattr(self, "table"):
            return
        view = self.table.view(clock=self.clock)
        assert_timers([t for p in view.scan() for t in timer_rows(p)], self._waiting(FULL_RANGE))
        assert view.count() == len(self.heap)
        assert view.first_time(self.now) == (self.heap[0][0] if self.heap else None)

    def _waiting(self, within: HashRange) -> list[Timer]:
        return [timer for _, value, _, timer in self.heap if covers(within, value)]


def assert_timers(found: list[Timer], expected: Iterable[Timer]) -> None:
    assert [t.time for t in found] == sorted(t.time for t in found)
    assert sorted(found, key=repr) == sorted(expected, key=repr)


TestTimersOnDisk = TimersOnDisk.TestCase
TestTimersOnDisk.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
