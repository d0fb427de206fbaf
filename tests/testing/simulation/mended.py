"""Mutants: faults that the driver, the log and the sinks once had, as the code was then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast import runtime
from holdfast.checkpoint import coordinator, log, log_state
from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.entry import Checkpoint
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.log_state import EntryReader, Summary
from holdfast.checkpoint.retention import list_collectable
from holdfast.checkpoint.time import PipelineTime
from holdfast.driver import background, claiming
from holdfast.driver.checkpoint_thread import CheckpointThread
from holdfast.driver.epoch_calls import EpochCalls
from holdfast.driver.host_follower import HostFollower
from holdfast.driver.own_folders import OwnFolders
from holdfast.driver.running import RunningPipeline
from holdfast.errors import StateLostError
from holdfast.failpoints import failpoint
from holdfast.sinks._publish import OutputFolder
from holdfast.tasks.merging import Piece
from holdfast.tiers import opener
from holdfast.tiers.opener import RunOpener
from tests.testing.simulation.mutants import mutant

# ---- what is collected


@mutant(Coordinator, "_unnamed", lambda s: s.course.is_cluster, program="steered")
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


@mutant(EpochCalls, "_is_durable", lambda s: s.course.every_epoch and s.course.is_cluster)
def waits_for_an_entry_that_a_loss_prevents(real: Any) -> Any:
    """With an entry for each epoch, the epoch waits for its own though state was lost meanwhile."""

    def is_durable(self: EpochCalls, epoch: int) -> bool:
        running = self._running
        while not self._holds(epoch) and not running.done.is_set():
            running.requests.ask(running.done.is_set)
        running.raise_failure()
        return self._holds(epoch)

    return is_durable


def _answering_last(real: Any) -> Any:
    """Who finds state lost ends the epochs first, and answers requests then."""

    def take_one(self: CheckpointThread, asked: int) -> None:
        running = self._running
        try:
            with running.renewing.shared(), running.failing():
                parts = running.parts
                entry = running.coordinator.checkpoint()
                gone = running.out_of_reach()
            if gone is not None:
                running.lose_and_end(StateLostError(gone), parts)
            elif entry is not None and not running.ending:
                self._merge()
        except BaseException:
            if running.failure is not None:
                running.started.stop()
        running.requests.answer(asked)

    return take_one


@mutant(
    HostFollower,
    "_hand_over",
    lambda s: s.course.is_cluster,
    (CheckpointThread, "_take_one", _answering_last),
)
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
        fresh = tuple(s for s in present if not s.run.is_durable)
        oldest = len(fresh) == len(present)
        return [Piece(table, within, fresh, oldest=oldest)] if fresh else []

    return fresh_pieces


# ---- numbers of epochs, and where to go on


@mutant(log_state, "_last_epoch", lambda s: s.course.damages and s.course.goes_back)
def takes_what_is_readable_for_all_there_was(real: Any) -> Any:
    """Numbers of epochs that an entry holds which can't be read are used again."""

    def last_epoch(reader: EntryReader, visible: Any) -> int:
        readable = [reader.entry(number) for number in visible if reader.is_readable(number)]
        return max((e.epoch for e in readable if isinstance(e, Checkpoint)), default=-1)

    return last_epoch


@mutant(claiming, "_where_to_continue", lambda s: s.course.is_cluster and s.course.goes_back)
def recovers_on_the_timeline_that_was_left(real: Any) -> Any:
    """Who was started from an older entry, and loses state, goes on from the newest one."""

    def where_to_continue(options: Any, state: Any, since: int | None) -> Any:
        if since is not None and state.last_checkpoint is not None:
            return state.last_checkpoint, ()
        return real(options, state, since)

    return where_to_continue


@mutant(EntryReader, "summary", lambda s: s.course.damages)
def takes_unreadable_entries_for_empty(real: Any) -> Any:
    """An entry that counts and can't be read names nothing: what it names is collected."""

    def summary(self: EntryReader, number: int) -> Summary:
        known: Summary = real(self, number)
        return known if known.readable else Summary(number)

    return summary


# ---- Parquet


@mutant(OutputFolder, "_publish_epoch", lambda s: s.outlets.has_folders)
def publishes_again_what_readers_took_away(real: Any) -> Any:
    """An epoch is published unless it is there, or was noted: between the two a reader took it away."""

    def publish_epoch(self: OutputFolder, epoch: int, parts: Any, claim: int) -> None:
        noted = not all((self.staged / output.name).exists() for output in parts)
        if noted or self.epoch(epoch).exists():
            return
        name = f"{claim}-{epoch}-{runtime.new_id()}{self.layout.extension}"
        made = self._prepare(self._publishing / name, parts)
        failpoint("sink.parquet.before_rename")
        made.rename(self.epoch(epoch))
        failpoint("sink.parquet.after_rename")

    return publish_epoch


# ---- leaks


@mutant(OwnFolders, "sweep")
def leaves_folders_of_killed_starts(real: Any) -> Any:
    """What starts that were killed have prepared stays."""
    return lambda self: None


@mutant(RunOpener, "keep_only", lambda s: not s.course.is_cluster)
def keeps_maps_of_earlier_claims(real: Any) -> Any:
    """A worker that is used again goes on mapping files of an earlier claim, which are gone."""

    def keep_only(self: RunOpener, names: Any) -> None:
        known = opener._open
        others = {path: run for path, run in known.items() if path.parent != self.folder}
        real(self, names)
        known.update(others)

    return keep_only


@mutant(log, "check_creates_once", lambda s: s.world.random("storage").random() < 0.02)
def trusts_storage_to_create_once(real: Any) -> Any:
    """Nobody tries whether the storage refuses to create what is there."""
    return lambda storage: None


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
