"""Mutants: faults that the driver, the log and the sinks once had, as the code was then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.checkpoint import coordinator
from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.retention import list_collectable
from holdfast.checkpoint.time import PipelineTime
from holdfast.driver import background
from holdfast.driver.checkpoint_thread import CheckpointThread
from holdfast.driver.epoch_calls import EpochCalls
from holdfast.driver.host_follower import HostFollower
from holdfast.driver.own_folders import OwnFolders
from holdfast.driver.running import RunningPipeline
from holdfast.driver.site import LocalSite
from holdfast.tasks.merging import Piece
from tests.testing.simulation.mutants import mutant

# ---- what is collected


@mutant(Coordinator, "_unnamed", lambda s: s.course.is_cluster)
def collects_what_tasks_have_just_stored(real: Any) -> Any:
    """Runs that the epoch in hand has stored go if nobody has reported them when objects are listed."""

    def unnamed(self: Coordinator, *, over: bool) -> list[str]:
        if over:
            return list_collectable(self.storage)
        self._since_listing += 1
        if self._since_listing % coordinator._LIST_EVERY != 1:
            return []
        mine = f"staged/{self.log.claim_number}-"
        return [name for name in list_collectable(self.storage) if not name.startswith(mine)]

    return unnamed


@mutant(Coordinator, "_unnamed")
def leaves_what_failed_attempts_stored(real: Any) -> Any:
    """Objects of the own claim that no entry ever named stay for ever."""

    def unnamed(self: Coordinator, *, over: bool) -> list[str]:
        mine = f"/{self.log.claim_number}-"
        return [name for name in real(self, over=over) if mine not in name]

    return unnamed


# ---- waiting under locks


@mutant(EpochCalls, "_is_durable", lambda s: s.course.every_epoch)
def waits_for_an_entry_that_a_loss_prevents(real: Any) -> Any:
    """With an entry for each epoch, the epoch waits for its own though state was lost meanwhile."""

    def is_durable(self: EpochCalls, epoch: int) -> bool:
        running = self._running
        while not self._holds(epoch) and not running.done.is_set():
            running.requests.ask(running.done.is_set)
        running.raise_failure()
        return self._holds(epoch)

    return is_durable


@mutant(HostFollower, "_hand_over", lambda s: s.course.is_cluster)
def hands_over_without_a_limit(real: Any) -> Any:
    """A handover holds the lock of the epochs until there is a checkpoint, whoever stops meanwhile."""

    def hand_over(self: HostFollower, cluster: Any) -> None:
        running = self._running
        with running.epoch_lock:
            running.checkpoint()
            while cluster.fetch_missing(running.ledger.version):
                pass
            cluster.switch(running.ledger.version)

    return hand_over


# ---- layers that are stored in part


@mutant(background, "_fresh_pieces", lambda s: s.course.is_cluster)
def stores_layers_in_part(real: Any) -> Any:
    """What isn't stored of a range becomes one piece, also where layers are stored in part."""

    def fresh_pieces(version: Any, table: str, within: Any) -> list[Piece]:
        present = version.segments(table, within)
        fresh = tuple(s for s in present if s.run.stored is None)
        oldest = len(fresh) == len(present)
        return [Piece(table, within, fresh, oldest=oldest)] if fresh else []

    return fresh_pieces


# ---- leaks


@mutant(LocalSite, "learn", lambda s: not s.course.is_cluster)
def forgets_files_of_dropped_changes(real: Any) -> Any:
    """Local files of runs whose change was dropped stay."""
    return lambda self, changes, fetched: None


@mutant(OwnFolders, "sweep")
def leaves_folders_of_killed_starts(real: Any) -> Any:
    """What starts that were killed have prepared stays."""
    return lambda self: None


# ---- stops, sinks, clocks


@mutant(CheckpointThread, "take_last")
def stops_as_if_committed(real: Any) -> Any:
    """stop() returns as if all were well though the last checkpoint failed."""

    def take_last(self: CheckpointThread) -> None:
        running: Any = self._running
        failed, running.fail = running.fail, lambda error, **_: None
        try:
            real(self)
        finally:
            running.fail = failed

    return take_last


@mutant(coordinator, "_sink_errors")
def takes_foreign_errors_of_sinks_as_fatal(real: Any) -> Any:
    """What a sink raises that isn't ours ends the pipeline, instead of being tried again."""

    @contextmanager
    def sink_errors(sink: str, doing: str) -> Iterator[None]:
        yield

    return sink_errors


@mutant(PipelineTime, "begin")
def lets_processing_time_go_back(real: Any) -> Any:
    """An epoch's processing time is what the clock says, also if that was set back."""

    def begin(self: PipelineTime, epoch: int, now_ms: int, *rest: Any, **more: Any) -> Any:
        self._processing_ms = 0
        return real(self, epoch, now_ms, *rest, **more)

    return begin


@mutant(RunningPipeline, "checkpoint")
def takes_a_checkpoint_in_vain(real: Any) -> Any:
    """checkpoint() with a time-out returns the epoch of before when that has passed."""

    def checkpoint(
        self: RunningPipeline, timeout: float | None = None, *, unless_ending: bool = False
    ) -> int | None:
        self.requests.ask(lambda: self.done.is_set() or (unless_ending and self.ending), timeout)
        return self.last_checkpoint_epoch()

    return checkpoint


# The ledger's part of the first: whoever writes is taken for nobody.
@mutant(Ledger, "writers")
def collects_beside_writers(real: Any) -> Any:
    """What is listed and nobody names goes at once, whoever may be about to name it."""
    return lambda self: frozenset()
