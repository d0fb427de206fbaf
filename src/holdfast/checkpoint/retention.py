"""Which checkpoints stay, and how the rest is deleted: first said in the log, then done.

Deletion can be repeated, late, by anyone, because names are never used again: numbers of entries
only grow, and the names of objects begin with the number of their driver's claim and end in
something random. What a collect entry named is garbage for ever. So a driver that dies between its
collect entry and the deletion does no harm (its successor deletes), nor does one that sleeps there
and wakes up when others have gone on (they don't use what the entry names).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from holdfast.checkpoint.entry import Collect, StagedOutput, entry_name
from holdfast.checkpoint.log import Log, LogState
from holdfast.checkpoint.names import OBJECT_FOLDERS
from holdfast.checkpoint.pins import Pin, read_pins
from holdfast.errors import ConfigurationError
from holdfast.failpoints import failpoint
from holdfast.storage import Storage

__all__ = [
    "CollectPlan",
    "Retention",
    "claim_of",
    "collect",
    "finish_collection",
    "list_collectable",
    "plan_collection",
]

logger = logging.getLogger("holdfast.checkpoint")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long checkpoints are kept: the newest ``keep_last``, and all younger than ``keep_for_s``.

    Savepoints and pinned checkpoints are kept besides.
    """

    keep_last: int = 10
    keep_for_s: float | None = None

    def __post_init__(self) -> None:
        if self.keep_last < 1:
            raise ConfigurationError(
                f"keep_last must be at least 1, not {self.keep_last}",
                hint="the newest checkpoint is where a restart begins",
            )
        if self.keep_for_s is not None and not 0 <= self.keep_for_s < math.inf:
            raise ConfigurationError(
                f"keep_for must be a time that is not negative, not {self.keep_for_s} seconds",
                hint="leave it out to keep by number alone",
            )


@dataclass(frozen=True, slots=True)
class CollectPlan:
    """What a collect entry is to name."""

    entries: tuple[int, ...] = ()
    objects: tuple[str, ...] = ()
    last_number: int | None = None
    """The last entry when this was decided; if there are more by now, it must be decided again."""

    def __bool__(self) -> bool:
        return bool(self.entries or self.objects)


def plan_collection(
    state: LogState,
    retention: Retention,
    pins: Mapping[str, Pin],
    *,
    live_objects: Collection[str],
    now_ms: int,
    in_flight: Collection[str] = (),
    unnamed: Iterable[str] = (),
) -> CollectPlan:
    """Decide what can go.

    ``live_objects`` are those that the running driver uses (its newest version, output that waits
    for an entry or a sink), ``in_flight`` those that running attempts are writing. ``unnamed`` are
    objects found in storage (:func:`list_collectable`); those that nothing names go if their claim
    is this driver's or a lower one. Names of the own claim may be given only if whatever was
    running when they were listed has ended since: it could be about to name them.
    """
    pinned = {pin.entry for pin in pins.values()}
    newest = state.last_checkpoint.number if state.last_checkpoint is not None else -1
    if any(number > newest for number in state.left_over):
        # Somebody has left them for an older entry: until he has a checkpoint of his own, nothing goes.
        return CollectPlan()
    retired = _retired(state, retention, pinned, now_ms)
    retired |= set(state.left_over) - pinned
    retained = pinned.intersection(state.left_over).union(state.numbers) - retired
    unreadable = sorted(n for n in retained if not state.reader.summary(n).readable)
    if unreadable:
        # Whatever it names must stay, and nobody knows what that is (invariant 9).
        logger.warning(
            "nothing is collected: log entry %d can't be read; restore it from a copy, or start with "
            "from_entry=… to leave it",
            unreadable[0],
        )
        return CollectPlan()
    candidates: set[str] = set()
    for number in retired:
        candidates |= state.reader.summary(number).objects
    claim = state.last_entry.claim if state.last_entry is not None else -1
    candidates.update(name for name in unnamed if 0 <= claim_of(name) <= claim)
    if candidates:
        for number in retained:
            candidates -= state.reader.summary(number).objects
        candidates -= {*live_objects, *in_flight}
    if not candidates and not any(state.reader.summary(n).is_checkpoint for n in retired):
        return CollectPlan()  # a few old claims aren't worth a collect entry
    return CollectPlan(tuple(sorted(retired)), tuple(sorted(candidates)), state.last_number)


def collect(
    log: Log,
    storage: Storage,
    plan: CollectPlan,
    pending: Mapping[str, tuple[StagedOutput, ...]] | None = None,
) -> Collect:
    """Write the collect entry, then delete what it names (invariant 9).

    ``pending`` is what sinks have not acknowledged yet.
    ``LogMovedError`` if the log has gone on since the plan was made: nothing is deleted then.
    """
    failpoint("collect.before_entry")
    entry = log.append_collect(
        plan.entries, plan.objects, expect_last=plan.last_number, pending=pending
    )
    failpoint("collect.after_entry")
    _delete(log, storage, entry)
    return entry


def finish_collection(log: Log, storage: Storage) -> None:
    """Delete what the last collect entry names, in case whoever wrote it didn't get that far."""
    last = log.state().last_collect
    if last is not None:
        _delete(log, storage, last)


def list_collectable(storage: Storage) -> list[str]:
    """Every object that a driver wrote and only log entries keep alive."""
    return [info.name for folder in OBJECT_FOLDERS for info in storage.list(folder)]


def _retired(state: LogState, retention: Retention, pinned: set[int], now_ms: int) -> set[int]:
    newest = state.last_checkpoint
    if newest is None:
        return set()
    summaries = [state.reader.summary(number) for number in state.numbers]
    ordinary = [s for s in summaries if s.is_checkpoint and s.savepoint is None]
    kept = {s.number for s in ordinary[-retention.keep_last :]} | {newest.number}
    if retention.keep_for_s is not None:
        since_ms = now_ms - retention.keep_for_s * 1000
        kept |= {s.number for s in ordinary if s.written_ms >= since_ms}
    # From the oldest of these on the log stays dense.
    below = [s for s in summaries if s.number < min(kept)]
    # What was kept once was a savepoint or pinned, also if that can't be read any more.
    spared = pinned.union(state.last_collect.kept if state.last_collect is not None else ())
    return {
        s.number
        for s in below
        if s.savepoint is None and s.number not in (pinned if s.readable else spared)
    }


def claim_of(name: str) -> int:
    """The claim under which an object was written; -1 if its name doesn't tell (never collect it)."""
    folder, _, base = name.rpartition("/")
    digits, dash, _ = base.partition("-")
    known = (
        f"{folder}/".startswith(OBJECT_FOLDERS) and dash and digits.isascii() and digits.isdecimal()
    )
    return int(digits) if known else -1


def _delete(log: Log, storage: Storage, entry: Collect) -> None:
    # Pins are looked at again, now that everybody can see the entry: whoever pins after this finds
    # the entry and gives up, whoever pinned before is found here.
    pinned = {pin.entry for pin in read_pins(storage).values()}
    spared = pinned.intersection(entry.entries)
    state = log.state()
    # Should a later entry name an object again in spite of all, its word counts.
    used_by = spared.union(number for number in state.numbers if number > entry.number)
    using = [state.reader.summary(number) for number in used_by]
    if not all(summary.readable for summary in using):
        return  # what the unreadable one uses is not known; the entry goes on naming what is garbage
    used = {name for summary in using for name in summary.objects}
    log.check_not_fenced()
    storage.delete(name for name in entry.objects if name not in used)
    failpoint("collect.after_objects")
    # Entries last: as long as one is there, what only it names is found and deleted again.
    gone = [number for number in entry.entries if number not in spared]
    log.check_not_fenced()
    storage.delete(map(entry_name, gone))
    log.collected(gone)
