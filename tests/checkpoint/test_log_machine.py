"""Several drivers on one storage, in every order that Hypothesis can think of.

Before any storage call of one driver others may run (as if it had been paused there), and a creation
may fail, lose its reply, be answered "exists" though it succeeded, or be carried out later.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.checkpoint.entry import Claim, Entry
from holdfast.checkpoint.log import Log, read_log
from holdfast.checkpoint.log_state import list_entries
from holdfast.checkpoint.pins import pin, read_pins, unpin
from holdfast.checkpoint.retention import (
    Retention,
    collect,
    finish_collection,
    list_collectable,
    plan_collection,
)
from holdfast.errors import ConfigurationError, FencedError, StorageError
from holdfast.storage import MemoryStorage
from tests.checkpoint.log_support import (
    FlakyStorage,
    check_log,
    check_nothing_is_left_over,
    checkpoint_fields,
    counting_nonces,
    open_log,
)

_machines = itertools.count()
DRIVERS = 3
ACTIONS = ("claim", "checkpoint", "collect", "check", "pin", "past retention")
FAULTS = ("fail", "lose", "late", "repeat")


class Driver:
    """A driver that does one thing at a time and says what it believes to have committed."""

    def __init__(
        self,
        name: str,
        space: str,
        commit: Callable[[Log, Entry | None], None],
        pinned: dict[str, int],
    ) -> None:
        self.name = name
        self.pinned = pinned
        self.storage = FlakyStorage(space)
        self.log: Log | None = None
        self.objects: list[str] = []
        self.commit = commit
        self.nonces = counting_nonces(name)
        self.names = itertools.count()
        self.busy = False

    def act(self, action: str) -> None:
        if action == "past retention":
            for step in ("claim", "checkpoint", "checkpoint", "collect"):
                self.act(step)
            return
        if self.busy:
            return  # paused in the middle of something: it can't begin another thing
        self.busy = True
        try:
            if action == "claim":
                self.claim()
            elif action == "pin":
                self.pin()
            elif self.log is not None:
                {"checkpoint": self.checkpoint, "collect": self.collect, "check": self.check}[
                    action
                ](self.log)
        except FencedError:
            self.log = None
        except StorageError:
            pass  # it may try again
        finally:
            self.busy = False

    def claim(self) -> None:
        self.log = None
        log = open_log(self.storage, self.name, nonce=self.nonces)
        self.commit(log, log.state().last_entry)
        self.log = log
        newest = log.find_checkpoint()
        self.objects = [r.stored.object for r in newest.runs if r.stored] if newest else []
        finish_collection(log, self.storage)

    def checkpoint(self, log: Log) -> None:
        new = f"runs/{log.claim_number}-{self.name}{next(self.names)}"
        self.storage.put(new, b"x")
        objects = [*self.objects[-2:], new]
        epoch = max((c.epoch for c in log.checkpoints()), default=-1) + 1
        savepoint = "s" if epoch % 5 == 4 else None
        entry = log.append_checkpoint(**checkpoint_fields(epoch, objects, savepoint=savepoint))
        self.commit(log, entry)
        self.objects = objects

    def collect(self, log: Log) -> None:
        plan = plan_collection(
            log.state(),
            Retention(keep_last=1),
            read_pins(self.storage),
            live_objects=self.objects,
            now_ms=0,
            unnamed=list_collectable(self.storage),
        )
        if plan:
            collect(log, self.storage, plan)

    def check(self, log: Log) -> None:
        log.check_not_fenced()
        self.commit(log, None)

    def pin(self) -> None:
        """Pin the oldest checkpoint, the one most likely to go; release an older pin."""
        if len(self.pinned) > 1:
            released = min(self.pinned)
            del self.pinned[released]
            unpin(self.storage, released)
        for checkpoint in list(read_log(self.storage).checkpoints())[-1:]:
            pin_id = f"{self.name}-{next(self.names)}"
            with contextlib.suppress(ConfigurationError):  # too late, and it says so
                pin(self.storage, checkpoint.number, self.name, pin_id=pin_id, now_ms=0)
                self.pinned[pin_id] = checkpoint.number


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.space = f"machine-{next(_machines)}"
        self.plain = MemoryStorage(self.space)
        self.pinned: dict[str, int] = {}
        self.drivers = [self.driver(f"d{i}") for i in range(DRIVERS)]
        self.last_commit = -1
        self.highest_claim = -1

    def driver(self, name: str) -> Driver:
        return Driver(name, self.space, self.committed, self.pinned)

    def committed(self, log: Log, entry: Entry | None) -> None:
        """A driver was told that its entry (or its right to act) stands, just now."""
        assert log.claim_number >= self.highest_claim, "a fenced driver went on"
        self.highest_claim = log.claim_number
        visible = list_entries(self.plain)
        assert visible[-1] == log.last_number, "committed below another's entry"
        if entry is not None:
            assert entry.number > self.last_commit, "a number was committed twice"
            self.last_commit = entry.number
            stored = read_log(self.plain).entry(entry.number)
            assert stored == entry
            assert stored.claim == log.claim_number

    @rule(who=st.integers(0, DRIVERS - 1), actions=st.lists(st.sampled_from(ACTIONS), max_size=4))
    def act(self, who: int, actions: list[str]) -> None:
        for action in actions:
            self.drivers[who].act(action)

    @rule(
        who=st.integers(0, DRIVERS - 1),
        faults=st.lists(st.sampled_from(("", *FAULTS)), min_size=1, max_size=3),
        action=st.sampled_from(ACTIONS),
    )
    def act_with_faults(self, who: int, faults: list[str], action: str) -> None:
        self.drivers[who].storage.faults = list(faults)
        self.drivers[who].act(action)
        self.drivers[who].storage.faults = []

    @rule(
        who=st.integers(0, DRIVERS - 1),
        action=st.sampled_from(ACTIONS),
        pause_at=st.integers(0, 14),
        fault=st.sampled_from(("", *FAULTS)),
        meanwhile=st.lists(
            st.tuples(st.integers(0, DRIVERS - 1), st.sampled_from(ACTIONS)), max_size=4
        ),
    )
    def act_while_others_do(
        self,
        who: int,
        action: str,
        pause_at: int,
        fault: str,
        meanwhile: list[tuple[int, str]],
    ) -> None:
        """Pause a driver before one of its storage calls and let others act."""
        sleeper = self.drivers[who]
        calls = itertools.count()

        def before() -> None:
            if next(calls) == pause_at:
                for other, other_action in meanwhile:
                    self.drivers[other].act(other_action)

        sleeper.storage.before = before
        sleeper.storage.faults = [fault]
        sleeper.act(action)
        sleeper.storage.before = lambda: None
        sleeper.storage.faults = []

    @precondition(lambda self: any(driver.storage.late for driver in self.drivers))
    @rule()
    def deliver_what_is_late(self) -> None:
        for driver in self.drivers:
            driver.storage.deliver()

    @rule(who=st.integers(0, DRIVERS - 1))
    def crash(self, who: int) -> None:
        self.drivers[who].log = None

    @invariant()
    def the_log_is_whole(self) -> None:
        if not hasattr(self, "plain"):
            return
        check_log(self.plain)
        assert set(self.pinned.values()) <= set(list_entries(self.plain)), "a pinned entry is gone"
        # At most one driver's entries go on behind the highest claim.
        state = read_log(self.plain)
        entries = [state.entry(number) for number in state.numbers]
        claims = [entry.number for entry in entries if isinstance(entry, Claim)]
        behind = {entry.claim for entry in entries if claims and entry.number > max(claims)}
        assert behind <= set(claims[-1:])

    def teardown(self) -> None:
        """In the end a last driver collects all that nothing names."""
        if not hasattr(self, "plain"):
            return
        for made in read_pins(self.plain):
            unpin(self.plain, made)
        last = self.driver("last")
        for action in ("claim", "checkpoint", "checkpoint", "collect"):
            last.act(action)
        assert last.log is not None
        check_log(self.plain)
        check_nothing_is_left_over(self.plain)


TestLogMachine = pytest.mark.timeout(300)(LogMachine.TestCase)
TestLogMachine.settings = settings(
    max_examples=150,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
