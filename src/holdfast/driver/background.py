"""Background jobs: give runs their stored form, and keep the number of runs small.

Each job is a handful of short tasks on the executors, in a scheduler pool of their own. A task takes
one *piece* (the segments of one table in one hash range), merges it to one run and writes that to
storage and to the host's disk. Pieces succeed or fail one by one: a failed attempt leaves runs that
the next one need not store again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from holdfast.checkpoint.coordinator import StoreResult
from holdfast.checkpoint.ledger import Ledger
from holdfast.driver.engine import Engine, HostGoneError, JobFailedError
from holdfast.driver.site import Site
from holdfast.errors import StorageError
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE, HashRange, partition_range
from holdfast.state.run import Segment
from holdfast.state.schema import TableSchema
from holdfast.state.tiers import free_stretches, plan_merge
from holdfast.state.version import Change, Version
from holdfast.storage import Storage
from holdfast.tasks.here import Here
from holdfast.tasks.merging import MergeWork, Piece, PieceResult
from holdfast.tiers.opener import RunOpener

__all__ = ["BackgroundJobs", "plan_compaction", "plan_store"]

logger = logging.getLogger("holdfast.background")

# About a second of merging and writing: a longer task would keep an epoch waiting for its core.
_PIECE_BYTES = 48 << 20
# Twice that of tasks' own merges: a stored run is decoded, encoded and written again, on cores that epochs
# want, while one run more to look keys up in costs little.
_FANOUT = 8
# Below this a table is stored by one task.
_SMALL_BYTES = 4 << 20


def plan_store(version: Version, partitions: int, *, one_host: bool = True) -> list[Piece]:
    """The pieces that give every run without a stored form one.

    Unless all runs are on one host, no piece goes beyond a partition: its runs are together.
    """
    pieces: list[Piece] = []
    for table, segments in version.tables.items():
        unsaved = sum(s.size_bytes for s in segments if _is_fresh(s))
        for within in _ranges(unsaved, partitions, one_host):
            pieces += _fresh_pieces(version, table, within)
    return pieces


def _fresh_pieces(version: Version, table: str, within: HashRange) -> list[Piece]:
    """The unsaved segments of a range, as few pieces as fit the version.

    Where a layer is stored in part (a result of the job before was dropped, or a piece failed), the
    range is cut until no layer is: a hash has at most one segment of a layer.
    """
    present = version.segments(table, within)
    stretches, mixed = free_stretches(present, _is_fresh)
    if mixed:
        cut = _boundary(present, within)
        halves = (HashRange(within.first, cut - 1), HashRange(cut, within.last))
        return [piece for half in halves for piece in _fresh_pieces(version, table, half)]
    return [
        Piece(table, within, present[part], oldest=part.stop == len(present)) for part in stretches
    ]


def _boundary(segments: Sequence[Segment], within: HashRange) -> int:
    """Where to cut a range between segments: at the beginning of one, in the middle of all."""
    edges = {edge for s in segments for edge in (s.range.first, s.range.last + 1)}
    inside = sorted(edge for edge in edges if within.first < edge <= within.last)
    return inside[len(inside) // 2]


def _is_fresh(segment: Segment) -> bool:
    return not segment.run.is_durable


def plan_compaction(version: Version, partitions: int, *, one_host: bool = True) -> list[Piece]:
    """The pieces that merge stored runs wherever too many of a size have gathered."""
    pieces = []
    for table, segments in version.tables.items():
        size = sum(s.size_bytes for s in segments)
        for within in _ranges(size, partitions, one_host):
            present = version.segments(table, within)
            stretches, _ = free_stretches(present, lambda s: not _is_fresh(s))
            for stretch in stretches:
                chosen = plan_merge(present[stretch], _FANOUT)
                if chosen is not None:
                    picked = present[stretch][chosen]
                    pieces.append(
                        Piece(table, within, picked, oldest=present[-len(picked) :] == picked)
                    )
    return pieces


def _ranges(size_bytes: int, partitions: int, one_host: bool) -> list[HashRange]:
    if one_host and size_bytes <= _SMALL_BYTES:
        return [FULL_RANGE]
    ranges = [partition_range(p, partitions) for p in range(partitions)]
    each = max(1, -(-size_bytes // (_PIECE_BYTES * partitions)))
    return [part for whole in ranges for part in whole.split(each)]


@dataclass(kw_only=True)
class BackgroundJobs:
    """Stores and merges runs of one pipeline."""

    engine: Engine
    ledger: Ledger
    storage: Storage
    schemas: dict[str, TableSchema]
    claim: int
    site: Site
    partitions: int
    behind_ms: Mapping[str, int] = field(default_factory=dict)
    """Per table how far its event time is behind the pipeline's, if it is."""

    def cancel(self) -> None:
        """End the jobs that run now: what they would store is gone."""
        self.engine.cancel_background()

    def store(self, version: Version, clock: TableClock | None) -> StoreResult:
        """See :class:`holdfast.checkpoint.coordinator.Storer`."""
        return self._run(self._pieces(plan_store, version), "store", clock)

    def compact(self) -> int:
        """Merge stored runs of the newest version where worthwhile; how many runs were made."""
        # The clock first: a version may be newer than it, never older.
        clock = self.ledger.clock
        pieces = self._pieces(plan_compaction, self.ledger.version)
        with self.ledger.writing():
            result = self._run(pieces, "merge", clock)
            self.ledger.install(result.changes)
        if result.error is not None:
            logger.warning("merging runs failed and will be tried again: %s", result.error)
        return len(result.changes)

    def _pieces(self, plan: Callable[..., list[Piece]], version: Version) -> list[Piece]:
        return plan(version, self.partitions, one_host=self.site.one_host)

    def _run(self, pieces: Sequence[Piece], what: str, clock: TableClock | None) -> StoreResult:
        if not pieces:
            return StoreResult(())
        names = {s.run.name for piece in pieces for s in piece.segments}
        try:
            with self.ledger.busy(names):
                results = self._job(pieces, what, clock)
        except (JobFailedError, HostGoneError) as error:
            reason = str(error).strip().partition("\n")[0]
            return StoreResult((), StorageError(f"the Spark job to {what} runs failed: {reason}"))
        changes, errors = [], []
        for result in results:
            piece = pieces[result.index]
            if result.run is None:
                errors.append(f"{piece.table}: {result.error}")
                continue
            inputs = tuple(dict.fromkeys(s.run.name for s in piece.segments))
            changes.append(
                Change(piece.table, piece.range, inputs, result.run, parts=piece.segments)
            )
        self.ledger.expect(changes)
        self.site.learn(changes, {})
        failed = StorageError("; ".join(errors)) if errors else None
        return StoreResult(tuple(changes), failed)

    def _job(
        self, pieces: Sequence[Piece], what: str, clock: TableClock | None
    ) -> list[PieceResult]:
        work = MergeWork(
            pieces=tuple(pieces),
            schemas=self.schemas,
            storage=self.storage,
            folder=self.site.folder,
            claim=self.claim,
            host=self.engine.host,
            clock=clock,
            behind_ms=self.behind_ms,
        )
        size = sum(s.size_bytes for piece in pieces for s in piece.segments)
        if size <= _SMALL_BYTES and self.site.one_host:
            # Cheaper here than a Spark job, and the driver is on the host that holds the runs.
            try:
                return [work.do(index) for index in range(len(pieces))]
            finally:
                # No task will do it here, and each open run is a file descriptor.
                RunOpener(work.folder, self.storage).keep_only(())
        described = f"{what} {len(pieces)} pieces, {size >> 20} MiB"

        def do(index: int, here: Here) -> bytes:
            return msgspec.json.encode(work.at(here).do(index))

        hosts = [self.site.host_for((s.run for s in p.segments), p.range) for p in pieces]
        said = self.engine.on_hosts(hosts, do, described)
        return [msgspec.json.decode(each, type=PieceResult) for each in said]
