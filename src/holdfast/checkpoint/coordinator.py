"""The coordinator: turns the newest epoch into a log entry, then lets the sinks publish it.

The order is the whole point (invariants 2, 3, 6): store every run, store Spark's position, make the
sinks' output durable, write the entry — that single write *is* the checkpoint — and only then
publish, collect what no entry needs any more, and tell listeners.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from holdfast import runtime
from holdfast.checkpoint.blobs import blob_digest, blob_name
from holdfast.checkpoint.entry import Checkpoint, SegmentRef, StagedOutput
from holdfast.checkpoint.ledger import Ledger, Snapshot
from holdfast.checkpoint.log import Log
from holdfast.checkpoint.pins import live_pins
from holdfast.checkpoint.retention import (
    CollectPlan,
    Retention,
    claim_of,
    collect,
    finish_collection,
    list_collectable,
    plan_collection,
)
from holdfast.errors import FencedError, HoldfastError, InternalError, StorageError
from holdfast.failpoints import failpoint
from holdfast.state.expiry import TableClock
from holdfast.state.schema import SchemaRecord
from holdfast.state.version import Change, Version
from holdfast.storage import Storage
from holdfast.storage.probe import remove_old_probes

__all__ = ["CheckpointEvent", "Coordinator", "Publisher", "StoreResult", "Storer"]

logger = logging.getLogger("holdfast.checkpoint")

_LIST_EVERY = 100
_AT_ONCE = 8
# A writer that is this late is dead.
_LEFT_ALONE_S = 3600.0


@dataclass(frozen=True, slots=True)
class StoreResult:
    """What storing came to: the changes that name stored runs, and the first error, if any."""

    changes: tuple[Change, ...]
    error: HoldfastError | None = None


class Storer(Protocol):
    """Makes stored forms of runs; ``driver/background.py`` implements it with background jobs."""

    def store(self, version: Version, clock: TableClock | None) -> StoreResult:
        """Give every run of ``version`` that has none a stored form, as far as it goes.

        What has expired by the version's clock need not be stored.
        """


class Publisher(Protocol):
    """What the coordinator asks of a sink."""

    def pre_commit(self, staged: Sequence[StagedOutput]) -> None:
        """Make staged output durable."""

    def commit(self, staged: Sequence[StagedOutput], *, maybe_repeated: bool) -> None:
        """Publish it; repeating changes nothing."""

    @property
    def repeats_show(self) -> bool:
        """Whether somebody sees it if output is published again."""


@dataclass(frozen=True, slots=True)
class CheckpointEvent:
    """What ``on_checkpoint`` callbacks are given.

    >>> def tell(event: CheckpointEvent) -> None:
    ...     print("failed" if event.error else f"epoch {event.epoch} is safe")
    >>> tell(CheckpointEvent(epoch=7, entry=3, duration_ms=120))
    epoch 7 is safe
    """

    epoch: int
    entry: int | None
    """The log entry's number, or None if the checkpoint failed."""
    duration_ms: int
    new_bytes: int = 0
    shared_bytes: int = 0
    error: HoldfastError | None = None
    """Why it failed; None when it is complete."""


@dataclass(kw_only=True)
class Coordinator:
    """One pipeline's checkpoints. Only one runs at a time."""

    log: Log
    storage: Storage
    ledger: Ledger
    storer: Storer
    sinks: Mapping[str, Publisher]
    schemas: tuple[SchemaRecord, ...]
    program: dict[str, str]
    retention: Retention
    now_ms: Callable[[], int]
    callbacks: list[Callable[[CheckpointEvent], None]] = field(default_factory=list)
    last: Checkpoint | None = None
    last_error: HoldfastError | None = None
    publish_error: HoldfastError | None = None
    _one: runtime.Lock = field(default_factory=runtime.lock)
    _blobs: dict[str, str] = field(default_factory=dict)
    _restored: dict[str, set[StagedOutput]] = field(default_factory=dict)
    """Per sink what it may have published without our knowing. Two may have staged one object."""
    _since_listing: int = 0
    _listed: tuple[list[str], frozenset[int]] = ([], frozenset())
    """Objects found in storage, and who was writing then."""

    def checkpoint(self) -> Checkpoint | None:
        """Write an entry for the newest epoch, unless one holds it; then publish and collect."""
        with self._one:
            began = runtime.monotonic()
            with self.ledger.held_snapshot() as snapshot:
                if snapshot is not None:
                    try:
                        self.last = self._write(snapshot, began)
                    except FencedError:
                        raise
                    except (HoldfastError, OSError) as error:
                        self._failed(snapshot.version.epoch, began, error)
                        return None
            self.publish()
            if snapshot is None:
                self.record_acknowledged()
                return None
            self._collect()
            assert self.last is not None
            self._tell_complete(self.last)
            return self.last

    def finish_collection(self) -> None:
        """Delete what the last collect entry names, in case whoever wrote it didn't get that far."""
        try:
            finish_collection(self.log, self.storage)
        except FencedError:
            raise
        except (HoldfastError, OSError) as error:
            self._not_collected(error)

    def end(self) -> None:
        """Let go of all that no entry names: the last epoch has ended, and whatever ran beside it.

        What sinks have acknowledged is recorded too: whoever starts next owes them nothing.
        """
        with self._one:
            self._collect(over=True)

    def record_acknowledged(self) -> None:
        """Have an entry say what sinks have acknowledged, if publishing it again would show."""
        if self._unrecorded(over=False):
            self._try_to_collect(None)

    def publish(self, *, restored: bool = False) -> None:
        """Let sinks publish everything that entries cover and they have not acknowledged."""
        failed: HoldfastError | None = None
        for sink, outputs in self.ledger.pending().items():
            maybe = self._restored.setdefault(sink, set())
            if restored:
                maybe.update(outputs)
            publisher = self.sinks[sink]
            try:
                with _sink_errors(sink, "publish"):
                    # In here, for what can't be listed now can be listed soon.
                    self.log.check_not_fenced()
                    publisher.commit(outputs, maybe_repeated=not maybe.isdisjoint(outputs))
            except FencedError:
                raise
            except HoldfastError as error:
                # The entry keeps listing them, so nothing is lost: the next round tries again.
                maybe.update(outputs)
                failed = error
                logger.error("sink %s could not publish, will be tried again: %s", sink, error)
                continue
            failpoint("checkpoint.before_acknowledge")
            maybe.difference_update(outputs)
            self.ledger.acknowledged(sink, outputs)
        # Only now: whoever looks meanwhile must not take an attempt for a success.
        self.publish_error = failed

    def _write(self, snapshot: Snapshot, began: float) -> Checkpoint:
        failpoint("checkpoint.start")
        with self.ledger.writing():
            return self._written(snapshot, began)

    def _written(self, snapshot: Snapshot, began: float) -> Checkpoint:
        with runtime.beside(lambda: self._store_position(snapshot.position)) as position:
            stored = self.storer.store(snapshot.version, snapshot.clock)
            failpoint("checkpoint.after_store")
            # Also after an error: what was stored is not stored again by the next attempt.
            self.ledger.install(stored.changes)
            if stored.error is not None:
                raise stored.error
            spark = position.result()
        version = snapshot.version.apply(stored.changes)
        for sink, outputs in snapshot.staged.items():
            publisher = self.sinks[sink]
            with _sink_errors(sink, "make its output durable"):
                publisher.pre_commit(outputs)
        failpoint("checkpoint.after_pre_commit")
        entry = self._append(snapshot, version, spark, began)
        failpoint("checkpoint.after_entry")
        self.ledger.covered(entry)
        self.last_error = None
        return entry

    def _append(
        self,
        snapshot: Snapshot,
        version: Version,
        spark: dict[str, str],
        began: float,
    ) -> Checkpoint:
        runs = version.runs()
        if unsaved := version.unsaved():  # invariant 2
            raise InternalError(f"runs {[*unsaved]} have no stored form after storing")
        sizes = {run.stored.object: run.stored.size_bytes for run in runs.values() if run.stored}
        before = self.last.objects() if self.last is not None else set()
        new = set(sizes) - before
        pending = self.ledger.pending()
        return self.log.append_checkpoint(
            epoch=version.epoch,
            runs=tuple(runs.values()),
            tables={
                table: tuple(SegmentRef(s.run.name, s.range) for s in segments)
                for table, segments in version.tables.items()
            },
            schemas=self.schemas,
            program=self.program,
            spark=spark,
            epochs=snapshot.epochs,
            pending={
                sink: (*pending.get(sink, ()), *snapshot.staged.get(sink, ()))
                for sink in {*pending, *snapshot.staged}
            },
            staged=dict(snapshot.staged),
            state_rows=snapshot.state_rows,
            new_bytes=sum(size for name, size in sizes.items() if name in new),
            shared_bytes=sum(size for name, size in sizes.items() if name not in new),
            duration_ms=round((runtime.monotonic() - began) * 1000),
            placement=snapshot.placement,
        )

    def _store_position(self, position: Mapping[str, bytes]) -> dict[str, str]:
        """Store Spark's files under their content's name; what the last entry has is not repeated."""
        known, named, new = {}, {}, {}
        for path, data in position.items():
            digest = blob_digest(data)
            name = self._blobs.get(digest)
            if name is None:
                name = blob_name(self.log.claim_number, self.log.last_number + 1, digest)
                new[name] = data
            known[digest] = named[path] = name
        # At once: they are small, and each waits for the storage.
        runtime.each(lambda blob: self.storage.put(*blob), new.items(), _AT_ONCE)
        self._blobs = known
        return named

    def _failed(self, epoch: int, began: float, error: Exception) -> None:
        self.last_error = _as_error(error)
        logger.error(
            "checkpoint of epoch %d failed and will be tried again; processing goes on: %s",
            epoch,
            error,
        )
        took = round((runtime.monotonic() - began) * 1000)
        self._tell(CheckpointEvent(epoch, None, took, error=self.last_error))

    def _collect(self, *, over: bool = False) -> None:
        """Delete what no retained entry needs. A failure here costs space, never data."""
        plan: CollectPlan | None = None
        try:
            unnamed = self._unnamed(over=over)
            # After the listing: what was written by then and is not here is nobody's.
            in_use = self.ledger.live_objects() | set(self._blobs.values())
            now_ms = self.now_ms()
            plan = plan_collection(
                self.log.state(),
                self.retention,
                live_pins(self.storage, now_ms),
                live_objects=() if over else in_use,
                now_ms=now_ms,
                unnamed=unnamed,
            )
        except FencedError:
            raise
        except (HoldfastError, OSError) as error:
            self._not_collected(error)
        if plan or self._unrecorded(over=over):
            self._try_to_collect(plan or None)

    def _try_to_collect(self, plan: CollectPlan | None) -> None:
        owed = self.ledger.pending()
        try:
            if plan is None:
                self.log.append_collect((), (), pending=owed)
            else:
                collect(self.log, self.storage, plan, owed)
        except FencedError:
            raise
        except (HoldfastError, OSError) as error:
            self._not_collected(error)

    def _not_collected(self, error: Exception) -> None:
        logger.warning("old checkpoints could not be collected, will be tried again: %s", error)

    def _unrecorded(self, *, over: bool) -> bool:
        """Whether an entry should say what sinks have acknowledged since the last that does.

        While a pipeline runs, only for the sake of sinks that can't tell by themselves.
        """
        owed, known = self.ledger.pending(), self.log.state().pending
        return any(
            outputs != owed.get(sink, ()) and (over or self.sinks[sink].repeats_show)
            for sink, outputs in known.items()
        )

    def _unnamed(self, *, over: bool) -> list[str]:
        """Objects that attempts which failed may have left; listed rarely, since it takes a while.

        Whoever was writing when they were listed may be about to name some of this claim: they wait
        until all of those have ended. What they came to is in the ledger then, or in an entry.
        """
        self._since_listing += 1
        if over or self._since_listing % _LIST_EVERY == 1:
            self.storage.sweep(_LEFT_ALONE_S)
            remove_old_probes(self.storage)
            self._listed = (list_collectable(self.storage), self.ledger.writers())
        names, writing = self._listed
        if writing & self.ledger.writers():
            mine = self.log.claim_number
            return [name for name in names if claim_of(name) != mine]
        self._listed = ([], frozenset())
        return names

    def _tell_complete(self, entry: Checkpoint) -> None:
        logger.info(
            "checkpoint %d: epoch %d, %d bytes new, %d shared, %d ms",
            entry.number,
            entry.epoch,
            entry.new_bytes,
            entry.shared_bytes,
            entry.duration_ms,
        )
        self._tell(
            CheckpointEvent(
                entry.epoch, entry.number, entry.duration_ms, entry.new_bytes, entry.shared_bytes
            )
        )

    def _tell(self, event: CheckpointEvent) -> None:
        for callback in self.callbacks:
            try:
                callback(event)
            except Exception:
                # User code must not be able to stop checkpoints; it is told in the log.
                logger.exception("an on_checkpoint callback raised for epoch %d", event.epoch)


@contextmanager
def _sink_errors(sink: str, doing: str) -> Iterator[None]:
    """A sink is anybody's code: whatever it raises is tried again, so it must be one of ours."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        kind = StorageError if isinstance(error, OSError) else HoldfastError
        raise kind(
            f"sink {sink} could not {doing}: {type(error).__name__}: {error}",
            hint="mend what the message names; it is tried again, and nothing is lost meanwhile",
        ) from error


def _as_error(error: Exception) -> HoldfastError:
    return error if isinstance(error, HoldfastError) else StorageError(str(error))
