"""What must be true of a checkpoint directory at every moment, whoever writes to it and however late."""

from __future__ import annotations

from collections.abc import Callable

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
        self.entries: dict[int, Entry] = {}
        """All that were ever written."""
        self.last: Checkpoint | None = None
        """The newest checkpoint."""
        self.doomed: set[int] = set()
        """Entries that a collect entry names."""
        self._garbage: set[str] = set()
        self._verified: set[str] = set()
        self.bases: dict[int, int | None] = {}
        """Per claim the checkpoint it goes on from, if that was told at its start."""

    def advance(self) -> bool:
        """Look at what was done since; whether there is another checkpoint."""
        history = self._store.history
        if self._seen == len(history):
            return False
        before = self.last
        while self._seen < len(history):
            change = history[self._seen]
            self._seen += 1
            if change.verb == "put" and change.name.startswith("log/"):
                self._written(change)
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
        checkpoints = [e for e in self.entries.values() if isinstance(e, Checkpoint)]
        own = [e for e in checkpoints if e.claim == entry.claim and e.number < entry.number]
        if own:
            return max(own, key=lambda e: e.number)
        if entry.claim in self.bases:
            base = self.bases[entry.claim]
            found = None if base is None else self.entries[base]
            assert found is None or isinstance(found, Checkpoint)
            return found
        below = [e for e in checkpoints if e.number < entry.claim]
        return max(below, key=lambda e: e.number, default=None)

    # ---- after every change

    def _written(self, change: Change) -> None:
        number = entry_number(change.name)
        if number is None:
            return  # a try whether the storage creates once
        assert change.data is not None
        entry = decode_entry(change.data, change.name)
        if number in self.doomed:
            return  # a stray: the number was free because its entry had been deleted
        if number in self.entries:
            raise self._fail(f"entry {number} was written twice")
        newest = max(self.entries, default=-1)
        stray = number < newest or entry.claim < max(
            (e.number for e in self.entries.values() if isinstance(e, Claim)), default=-1
        )
        if stray and not isinstance(entry, Claim):
            # Somebody who was fenced: it doesn't count, if nobody takes it for an entry.
            return
        self.entries[number] = entry
        if isinstance(entry, Checkpoint):
            self.last = entry
            self._check_whole(entry)
        elif isinstance(entry, Collect):
            self.doomed |= set(entry.entries)
            self._garbage |= set(entry.objects)
            for kept in self.retained:
                both = kept.objects() & set(entry.objects)
                if both:
                    raise self._fail(
                        f"collect entry {number} names {sorted(both)[0]}, which entry {kept.number} needs"
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
        if number is not None and number in self.entries and number not in self.doomed:
            raise self._fail(f"{change.process} deletes entry {number}, which counts")
        if not change.name.startswith(OBJECT_FOLDERS):
            return
        if change.name not in self._garbage:
            raise self._fail(
                f"{change.process} deletes {change.name}, which no collect entry names"
            )

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
            open_stored(run, storage).verify()
            self._verified.add(run.name)

    def nobodys(self) -> list[str]:
        """Objects that are there and that no checkpoint that counts names."""
        named = {name for entry in self.retained for name in entry.objects()}
        there = (name for name in self._store.objects if name.startswith(OBJECT_FOLDERS))
        return sorted(name for name in there if name not in named)
