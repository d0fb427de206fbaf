"""What must be true of a checkpoint directory at every moment, whoever writes to it and however late.

Which check holds which of the invariants of ARCHITECTURE.md:

1. A run never changes: :meth:`SimulatedStore.put` refuses other bytes under a name, ``_check_runs``
   another description of a run.
2. Entries name what is whole: ``_check_whole``, when they are written; :meth:`History.verify` again.
3. One commit point: ``_written`` (each number once, none left out, none by who was fenced).
4. Versions by input and fixed clocks: state and rows equal the oracle's in the end, which knows the
   records alone; ``_check_times`` (no clock goes back).
5. Whoever is fenced stops: ``_written`` and ``_check_looked`` (who deletes has looked just before, and
   seen nobody above); of sinks :meth:`History.has_looked`.
6. Nothing leaves before its entry: :meth:`History.covers`; what was published again is the same
   (:class:`Outside`); in the end each epoch of each timeline is there once.
7. Nothing read is executed: entries, blobs and runs with wrong bits are errors, never other than that
   (``Mishaps``, ``Faults``); what reads them is Arrow, Parquet and JSON.
8. Partitions by hash alone: numbers of partitions are drawn anew again and again, and state is the same;
   a run's rows lie in its range, ``_verify``.
9. Deleted only when named by a collect entry, and by nobody else: ``_written``, ``_deleted``.
10. Bytes are checked before use: answers and objects have wrong bits, and rows are right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from holdfast.checkpoint.entry import (
    Checkpoint,
    Claim,
    Collect,
    Entry,
    EpochRecord,
    decode_entry,
    entry_name,
    entry_number,
)
from holdfast.checkpoint.names import OBJECT_FOLDERS
from holdfast.state.run import Run
from holdfast.state.schema import KEY_HASH
from holdfast.storage import Storage
from holdfast.testing.simulation.store import Change, SimulatedStore
from holdfast.tiers.opener import open_stored

__all__ = ["History"]


class History:
    """The log as it has been written, read from what was done to the store."""

    def __init__(self, store: SimulatedStore, fail: Callable[[str], Exception]) -> None:
        self._store = store
        self._fail = fail
        self._seen = 0
        self._decoded: dict[int, Entry] = {}
        self.entries: dict[int, Entry] = {}
        """All that were ever written, and count or did."""
        self.last: Checkpoint | None = None
        """The newest checkpoint."""
        self.doomed: set[int] = set()
        """Entries that don't count any more."""
        self.left_behind: set[int] = set()
        """Of those the ones that could not be read when a start went back behind them."""
        self._garbage: set[str] = set()
        self._runs: dict[str, Run] = {}
        self._verified: set[str] = set()
        self.from_entry: dict[str, int] = {}
        """Per process that was told so the entry to go back to."""
        self.bases: dict[int, int | None] = {}
        """Per claim of such a process the checkpoint that it goes on from."""
        self.counts: Counter[str] = Counter()
        """How often who was fenced has written something all the same."""
        self._claims: dict[str, list[int]] = {}
        self._peeked = 0
        self._covered: set[tuple[str, int]] = set()
        self._newest_claim = -1

    def advance(self) -> bool:
        """Look at what was done since; whether there is another checkpoint."""
        history = self._store.history
        if self._seen == len(history):
            return False
        before = self.last
        while self._seen < len(history):
            number = self._seen
            self._seen += 1
            change = history[number]
            if change.late:
                self.counts["storage_late"] += 1
                self.counts["storage_zombie"] += self.is_fenced(change.process)
            if change.verb == "put" and change.name.startswith("log/"):
                self._written(change, number)
            elif change.verb == "delete":
                self._deleted(change)
        return self.last is not before

    @property
    def retained(self) -> list[Checkpoint]:
        """The checkpoints that count, oldest first."""
        return [
            entry
            for number, entry in sorted(self.entries.items())
            if isinstance(entry, Checkpoint) and number not in self.doomed
        ]

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """All that there ever were."""
        found = (entry for _, entry in sorted(self.entries.items()))
        return [entry for entry in found if isinstance(entry, Checkpoint)]

    def current(self) -> Checkpoint | None:
        """The checkpoint that whoever has claimed the log goes on from, or has written."""
        claims = [n for n, e in self.entries.items() if isinstance(e, Claim)]
        newest = max(claims, default=-1)
        if self.last is None or self.last.claim == newest:
            return self.last
        base = self.bases[newest]
        found = None if base is None else self.entries[base]
        assert found is None or isinstance(found, Checkpoint)
        return found

    def ends(self) -> list[Checkpoint]:
        """The last checkpoint of each timeline, the one that counts last of all."""
        gone_on = {before.number for e in self.checkpoints if (before := self._before(e))}
        return [entry for entry in self.checkpoints if entry.number not in gone_on]

    def chain(self, entry: Checkpoint | None) -> list[EpochRecord]:
        """All epochs that led to a checkpoint."""
        records: list[EpochRecord] = []
        while entry is not None:
            # The one before may have been written late, when its driver thought that it wasn't: then
            # both hold the same epochs.
            first = records[0].epoch if records else entry.epoch + 1
            records[:0] = [record for record in entry.epochs if record.epoch < first]
            entry = self._before(entry)
        return records

    def _before(self, entry: Checkpoint) -> Checkpoint | None:
        """The checkpoint that another goes on from."""
        own = [e for e in self.checkpoints if e.claim == entry.claim and e.number < entry.number]
        if own:
            return max(own, key=lambda e: e.number)
        base = self.bases.get(entry.claim)
        found = None if base is None else self.entries[base]
        assert found is None or isinstance(found, Checkpoint)
        return found

    def has_claimed(self, process: str) -> bool:
        """Whether a process has taken the pipeline over."""
        return process in self._claims

    def is_fenced(self, process: str) -> bool:
        """Whether another has taken the pipeline over from it."""
        mine = self._claims.get(process, [])
        return bool(mine) and next(self._claims_above(max(mine)), None) is not None

    def collects_of_others(self, process: str) -> list[int]:
        """The collect entries of claims that aren't this process'."""
        mine = self._claims.get(process, [])
        found = self.entries.values()
        return [e.number for e in found if isinstance(e, Collect) and e.claim not in mine]

    # ---- what is asked in the middle of things, and raises nothing

    def has_looked(self) -> bool:
        """Whether the thread that goes on now has just seen that nobody has taken over."""
        return self._store.shown() is not None

    def covers(self, sink: str, epoch: int) -> bool:
        """Whether there is an entry for what a sink is given of an epoch."""
        self._peek()
        return (sink, epoch) in self._covered

    def newest_claim(self) -> int:
        """The number of the claim that counts."""
        self._peek()
        return self._newest_claim

    def _peek(self) -> None:
        history = self._store.history
        while self._peeked < len(history):
            entry = self._entry(history[self._peeked], self._peeked)
            self._peeked += 1
            if isinstance(entry, Claim):
                self._newest_claim = max(self._newest_claim, entry.number)
            elif isinstance(entry, Checkpoint) and entry.claim == self._newest_claim:
                for sink, outputs in entry.pending.items():
                    self._covered |= {(sink, output.epoch) for output in outputs}

    def _entry(self, change: Change, at: int) -> Entry | None:
        """The entry that was written, if it is one."""
        if change.verb != "put" or change.data is None or entry_number(change.name) is None:
            return None
        if at not in self._decoded:
            self._decoded[at] = decode_entry(change.data, change.name)
        return self._decoded[at]

    # ---- after every change

    def _written(self, change: Change, at: int) -> None:
        entry = self._entry(change, at)
        if entry is None:
            return  # a try whether the storage creates once
        number = entry.number
        if number in self.doomed:
            # A stray: the number was free because its entry had been deleted.
            self.counts["stray"] += 1
            return
        if number in self.entries:
            raise self._fail(f"entry {number} was written twice")
        newest = max(self.entries, default=-1)
        if number < newest:
            # Somebody who was fenced: it doesn't count, if nobody takes it for an entry.
            self.counts["stray"] += 1
            return
        if number != newest + 1:
            raise self._fail(f"entry {number} was written behind entry {newest}")
        claims = [e.number for e in self.entries.values() if isinstance(e, Claim)]
        if not isinstance(entry, Claim) and entry.claim != max(claims, default=-1):
            raise self._fail(f"entry {number} of claim {entry.claim} follows claim {max(claims)}")
        self.entries[number] = entry
        if isinstance(entry, Claim):
            self._claimed(entry, change.process)
        elif isinstance(entry, Checkpoint):
            self._check_times(entry)
            self._check_runs(entry)
            self._check_whole(entry)
            self.last = entry
        else:
            self._collected(entry)

    def _claimed(self, claim: Claim, process: str) -> None:
        """Note what the claim goes on from: what its driver was told, until it has an entry of its own."""
        mine = self._claims.setdefault(process, [])
        mine.append(claim.number)
        base = self.retained[-1] if self.retained else None
        if process in self.from_entry and (base is None or base.claim not in mine):
            self.bases[claim.number] = self.from_entry[process]
        else:
            self.bases[claim.number] = None if base is None else base.number

    def _collected(self, collect: Collect) -> None:
        left_out = {n for n in self.entries if n < collect.first and n not in collect.kept}
        self.left_behind |= left_out - self.doomed - set(collect.entries)
        self.doomed |= {*collect.entries, *left_out}
        self._garbage |= set(collect.objects)
        for kept in self.retained:
            if both := kept.objects() & set(collect.objects):
                raise self._fail(
                    f"collect entry {collect.number} names {sorted(both)[0]}, which entry {kept.number} needs"
                )

    def _check_times(self, entry: Checkpoint) -> None:
        """Invariant 4: from epoch to epoch no clock goes back, and numbers grow."""
        before = self._before(entry)
        known = before.epochs[-1] if before is not None and before.epochs else None
        for record in entry.epochs:
            if known is not None and record.epoch > known.epoch:
                if record.processing_time_ms < known.processing_time_ms:
                    raise self._fail(f"processing time goes back in epoch {record.epoch}")
                if (record.watermark_ms or 0) < (known.watermark_ms or 0):
                    raise self._fail(f"the watermark goes back in epoch {record.epoch}")
            known = record
        if entry.epochs and entry.epochs[-1].epoch != entry.epoch:
            raise self._fail(f"entry {entry.number} doesn't end with its epoch {entry.epoch}")

    def _check_runs(self, entry: Checkpoint) -> None:
        """Invariant 1: what is told of a run stays so."""
        for run in entry.runs:
            known = self._runs.setdefault(run.name, run)
            if _told(known) != _told(run):
                raise self._fail(
                    f"entry {entry.number} has run {run.name} as {run}, and was {known}"
                )

    def _check_whole(self, entry: Checkpoint) -> None:
        """Invariant 2: all that an entry names is there."""
        missing = sorted(name for name in entry.objects() if name not in self._store.objects)
        if missing:
            raise self._fail(f"entry {entry.number} names {missing[0]}, which isn't there")
        gone = sorted(entry.objects() & self._garbage)
        if gone:
            raise self._fail(f"entry {entry.number} names {gone[0]}, which was to be deleted")

    def _deleted(self, change: Change) -> None:
        """Invariant 9: it was named in a collect entry, and nobody needs it."""
        number = entry_number(change.name)
        if number is None and not change.name.startswith(OBJECT_FOLDERS):
            return
        self._check_looked(change)
        if number is not None:
            if number in self.entries and number not in self.doomed:
                raise self._fail(f"{change.process} deletes entry {number}, which counts")
        elif change.name not in self._garbage:
            raise self._fail(
                f"{change.process} deletes {change.name}, which no collect entry names"
            )

    def _check_looked(self, change: Change) -> None:
        """Invariant 5: who asked for it had just looked, and was shown no claim but his own."""
        if change.shown is None:
            raise self._fail(f"{change.process} deletes {change.name} without having looked")
        mine = self._claims.get(change.process, [-1])
        above = [n for n in self._claims_above(max(mine)) if n <= change.shown and n not in mine]
        if above:
            raise self._fail(
                f"{change.process} deletes {change.name} though it was shown claim {above[0]}"
            )

    def _claims_above(self, number: int) -> Iterator[int]:
        return (n for n, e in self.entries.items() if n > number and isinstance(e, Claim))

    # ---- at the end

    def verify(self, storage: Storage) -> None:
        """Every checkpoint that counts opens, and every byte of it is right."""
        for entry in self.retained:
            if entry_name(entry.number) not in self._store.objects:
                raise self._fail(f"entry {entry.number} counts and isn't there")
            for run in entry.runs:
                self._verify(run, storage)

    def _verify(self, run: Run, storage: Storage) -> None:
        if run.name not in self._verified:
            opened = open_stored(run, storage)
            opened.verify()
            # What is sorted by time has its rows' hashes elsewhere.
            blocks = () if KEY_HASH in opened.schema.names else opened.blocks
            if any(b.first < run.range.first or b.last > run.range.last for b in blocks):
                raise self._fail(f"run {run.name} has rows outside of {run.range}")
            self._verified.add(run.name)

    def nobodys(self) -> list[str]:
        """Objects that are there and that no checkpoint that counts names."""
        named = {name for entry in self.retained for name in entry.objects()}
        there = (name for name in self._store.objects if name.startswith(OBJECT_FOLDERS))
        return sorted(name for name in there if name not in named)


def _told(run: Run) -> tuple[object, ...]:
    """What never changes of a run, wherever its bytes are."""
    epochs = run.first_epoch, run.last_epoch
    return run.table, run.range, epochs, run.rows, run.tombstones
