"""What the driver knows of its pipeline between two log entries.

Processing runs ahead of durability: the ledger holds the newest version, the epochs and staged
output that no entry covers yet, and the runs that somebody is reading. Every method is atomic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from holdfast import runtime
from holdfast.checkpoint.entry import (
    EPOCHS_PER_ENTRY,
    Checkpoint,
    EpochRecord,
    PlacedPartition,
    StagedOutput,
)
from holdfast.state.expiry import TableClock
from holdfast.state.version import Change, Version

__all__ = ["Ahead", "Ledger", "Snapshot"]

Staged = Mapping[str, tuple[StagedOutput, ...]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a checkpoint of one epoch needs, taken at one instant."""

    version: Version
    epochs: tuple[EpochRecord, ...]
    staged: Staged
    """Per sink the output of ``epochs``."""
    position: Mapping[str, bytes]
    """Spark's checkpoint files after the epoch."""
    state_rows: int
    clock: TableClock | None = None
    """The times of the version's epoch."""
    placement: tuple[PlacedPartition, ...] = ()
    """Where the epoch's partitions ran."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """How far processing is ahead of the log; ``query.status.ahead`` has it.

    >>> Ahead(epochs=2, unsaved_bytes=4096, oldest_ms=None).unsaved_bytes
    4096
    """

    epochs: int
    unsaved_bytes: int
    oldest_ms: int | None
    """Processing time of the oldest epoch that no entry covers."""
    numbers: int = 0
    """How many numbers of epochs were used since the last entry; idle epochs have numbers too."""


class Ledger:
    """The live state of a pipeline on its driver."""

    def __init__(
        self,
        version: Version,
        state_rows: int = 0,
        clock: TableClock | None = None,
        expiring: frozenset[str] = frozenset(),
    ) -> None:
        self._lock = runtime.rlock()
        self._version = version
        self._expiring = expiring
        """Tables whose rows go by themselves: they are counted in their runs, not as they come."""
        self._counted = max(0, state_rows - self._in_runs())
        self._epochs: list[EpochRecord] = []
        self._skipped: set[int] = set()
        self._idle = False
        """Whether the last of the epochs that no entry covers was an idle one."""
        self._staged: dict[str, list[StagedOutput]] = {}
        self._pending: dict[str, list[StagedOutput]] = {}
        self._position: Mapping[str, bytes] = {}
        self._busy: Counter[str] = Counter()
        self._epoch_reads: frozenset[str] | None = None
        self._queued: list[Change] = []
        self._expected: set[str] = set()
        self._clock = clock
        self._placement: tuple[PlacedPartition, ...] = ()
        self._covered = version.epoch
        """The epoch of the last entry, or the number after which this driver began."""
        self._writers: set[int] = set()
        self._last_writer = 0

    @property
    def placement(self) -> tuple[PlacedPartition, ...]:
        """Where the partitions of the newest epoch ran."""
        with self._lock:
            return self._placement

    @property
    def clock(self) -> TableClock | None:
        """The times of the newest version's epoch: what a merge may drop goes by them."""
        with self._lock:
            return self._clock

    @property
    def version(self) -> Version:
        """The newest version."""
        with self._lock:
            return self._version

    @property
    def state_rows(self) -> int:
        """Rows of state in the newest version; of what expires, those that are still in runs."""
        with self._lock:
            return self._counted + self._in_runs()

    def _in_runs(self) -> int:
        parts = (self._version.tables.get(table, ()) for table in self._expiring)
        # At most: a row that is deleted or has expired counts until it is merged away.
        return sum(max(0, s.rows - s.run.tombstones) for part in parts for s in part)

    def record_epoch(
        self,
        record: EpochRecord,
        changes: Iterable[Change],
        staged: Mapping[str, Sequence[StagedOutput]],
        position: Mapping[str, bytes],
        new_keys: int,
        placement: tuple[PlacedPartition, ...] = (),
    ) -> Version:
        """Version e−1 becomes version e: all of an epoch's reports at once, or none."""
        with self._lock:
            self._version = self._version.apply(changes, record.epoch)
            self._install_queued()
            self._epochs.append(record)
            self._idle = False
            for sink, outputs in staged.items():
                self._staged.setdefault(sink, []).extend(outputs)
            self._position = position
            self._counted += new_keys
            self._clock = _clock_of(record)
            self._placement = placement
            return self._version

    def skip_epoch(self, record: EpochRecord, position: Mapping[str, bytes]) -> None:
        """Version e−1 is version e too: nothing happened, and no entry need say so."""
        with self._lock:
            self._version = self._version.apply((), record.epoch)
            self._install_queued()
            self._clock = _clock_of(record)
            far = record.epoch - self._covered >= EPOCHS_PER_ENTRY // 2
            if self._epochs or far:
                # The next entry is for this epoch, so its records must end with it. Those of idle ones
                # before it tell nothing more, and until somebody asks for an entry they could be many.
                if self._epochs and self._idle:
                    self._skipped.discard(self._epochs.pop().epoch)
                self._epochs.append(record)
                self._idle = True
                self._position = position
            if self._epochs and not far:
                self._skipped.add(record.epoch)

    def expect(self, changes: Iterable[Change]) -> None:
        """Background changes that are about to be installed: their files are not to go."""
        with self._lock:
            self._expected |= {c.output.name for c in changes if c.output is not None}

    def install(self, changes: Iterable[Change]) -> None:
        """Apply background changes as far as they still fit (compare and swap).

        While an epoch runs they wait for its end: it may have merged the same inputs, and its
        result must fit the version that it was given.
        """
        changes = tuple(changes)
        with self._lock:
            self._queued += changes
            self._expected -= {c.output.name for c in changes if c.output is not None}
            if self._epoch_reads is None:
                self._install_queued()

    def _install_queued(self) -> None:
        self._version = self._with_queued()
        self._queued.clear()

    def _with_queued(self) -> Version:
        version = self._version
        for change in self._queued:
            if version.can_apply(change):
                version = version.apply([change])
        return version

    def snapshot(self) -> Snapshot | None:
        """What a checkpoint of the newest epoch must hold; None if an entry holds it already."""
        with self._lock:
            if not self._epochs:
                return None
            staged = {sink: tuple(outputs) for sink, outputs in self._staged.items()}
            return Snapshot(
                # What an attempt before has stored is not stored again because an epoch takes long.
                self._with_queued(),
                tuple(self._epochs),
                staged,
                self._position,
                self.state_rows,
                self._clock,
                self._placement,
            )

    @contextmanager
    def held_snapshot(self) -> Iterator[Snapshot | None]:
        """The same; what of its version is to be stored stays until the block ends.

        An epoch in hand may be merging it, and nobody but the checkpoint would want it then.
        """
        with ExitStack() as held:
            with self._lock:
                snapshot = self.snapshot()
                if snapshot is not None:
                    held.enter_context(self.busy(snapshot.version.unsaved()))
            yield snapshot

    def covered(self, entry: Checkpoint) -> None:
        """An entry now holds everything up to its epoch; its staged output awaits its sinks."""
        with self._lock:
            self._covered = entry.epoch
            self._epochs = [r for r in self._epochs if r.epoch > entry.epoch]
            self._skipped = {epoch for epoch in self._skipped if epoch > entry.epoch}
            if len(self._skipped) == len(self._epochs):
                # Nothing has happened since: ticks alone must not bring entry after entry.
                self._epochs, self._skipped = [], set()
            for sink, outputs in self._staged.items():
                self._staged[sink] = [o for o in outputs if o.epoch > entry.epoch]
            for sink, committed in entry.staged.items():
                known = self._pending.setdefault(sink, [])
                known += [o for o in committed if o not in known]

    def restore_pending(self, pending: Staged) -> None:
        """Take over what an earlier driver's entry lists as not acknowledged."""
        with self._lock:
            self._pending = {sink: list(outputs) for sink, outputs in pending.items()}

    def pending(self) -> dict[str, tuple[StagedOutput, ...]]:
        """Per sink the output that entries cover and the sink has not acknowledged."""
        with self._lock:
            return {sink: tuple(outputs) for sink, outputs in self._pending.items() if outputs}

    def acknowledged(self, sink: str, outputs: Sequence[StagedOutput]) -> None:
        """The sink has published these."""
        with self._lock:
            done = set(outputs)
            self._pending[sink] = [o for o in self._pending.get(sink, []) if o not in done]

    def ahead(self) -> Ahead:
        """How far processing is ahead of the log."""
        with self._lock:
            unsaved = sum(run.size_bytes for run in self._version.unsaved().values())
            waiting = sum(o.size_bytes for outputs in self._staged.values() for o in outputs)
            oldest = self._epochs[0].processing_time_ms if self._epochs else None
            numbers = self._version.epoch - self._covered
            return Ahead(len(self._epochs), unsaved + waiting, oldest, numbers)

    def staged(self) -> dict[str, tuple[StagedOutput, ...]]:
        """Per sink all output that waits, for an entry or for the sink."""
        with self._lock:
            sinks = {*self._staged, *self._pending}
            return {s: (*self._pending.get(s, ()), *self._staged.get(s, ())) for s in sorted(sinks)}

    @contextmanager
    def busy(self, names: Iterable[str]) -> Iterator[None]:
        """Keep runs from being merged by an epoch while a background job works on them."""
        mine = Counter(set(names))
        with self._lock:
            self._busy += mine
        try:
            yield
        finally:
            with self._lock:
                self._busy -= mine

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Objects and files may appear that nobody has reported yet, until the block ends.

        What came of it is in the ledger, or in an entry, before the block ends.
        """
        with self._lock:
            mine = self._last_writer = self._last_writer + 1
            self._writers.add(mine)
        try:
            yield
        finally:
            with self._lock:
                self._writers.discard(mine)

    def writers(self) -> frozenset[int]:
        """Who is writing now: whatever is in storage and not theirs is named, or is nobody's."""
        with self._lock:
            return frozenset(self._writers)

    @contextmanager
    def epoch(self) -> Iterator[tuple[Version, frozenset[str]]]:
        """The version an epoch starts from, and the runs that its tasks may merge.

        The version's local files stay until the block ends.
        """
        with self.writing(), self._epoch() as given:
            yield given

    @contextmanager
    def _epoch(self) -> Iterator[tuple[Version, frozenset[str]]]:
        with self._lock:
            self._epoch_reads = frozenset(self._version.runs())
            given = self._version, frozenset(self._version.unsaved()).difference(self._busy)
        try:
            yield given
        finally:
            with self._lock:
                self._epoch_reads = None
                self._install_queued()

    def live_runs(self) -> set[str]:
        """Names of all runs that the newest version, an epoch or a job may still open."""
        with self._lock:
            waiting = {c.output.name for c in self._queued if c.output is not None}
            reads = self._epoch_reads or frozenset()
            return {*self._version.runs(), *waiting, *self._expected, *self._busy, *reads}

    def live_objects(self) -> set[str]:
        """Stored runs and staged output that the newest version, or one about to be, needs."""
        with self._lock:
            runs = [*self._version.runs().values(), *(c.output for c in self._queued if c.output)]
            staged = (o.name for outputs in self.staged().values() for o in outputs)
            return {run.stored.object for run in runs if run.stored} | set(staged)


def _clock_of(record: EpochRecord) -> TableClock:
    return TableClock(record.processing_time_ms, record.expiry_ms)
