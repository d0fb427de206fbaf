"""Mutants: faults that the driver, the log and the sinks never had, one for each rule that they keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast import runtime
from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.entry import Claim, encode_entry, entry_name
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.log import Log
from holdfast.driver import claiming, compute, restore, start
from holdfast.driver.background import BackgroundJobs
from holdfast.errors import InternalError
from holdfast.sinks._publish import OutputFolder
from holdfast.state.expiry import TableClock
from tests.testing.simulation.mutants import mutant

# ---- the log


@mutant(Log, "_look")
def never_looks_above_its_entry(real: Any) -> Any:
    """Nobody looks whether another driver's entry stands above the one just created."""
    return lambda self: None


@mutant(Log, "check_not_fenced")
def acts_without_looking_for_a_fence(real: Any) -> Any:
    """What can't be undone is done without looking whether another driver has taken over."""
    return lambda self: None


@mutant(Log, "_put", lambda s: not s.course.damages and not s.store.faults.rates.flipped)
def takes_exists_for_another_drivers_entry(real: Any) -> Any:
    """The entry that stands there is not read back: nonces are not compared."""

    def put(self: Log, entry: Any) -> bool:
        if self.storage.put_if_absent(entry_name(entry.number), encode_entry(entry)):
            return True
        if isinstance(entry, Claim):
            return False
        raise self._fence(entry.number)

    return put


@mutant(claiming, "check_still_own", lambda s: s.course.is_cluster)
def recovers_from_anothers_claim(real: Any) -> Any:
    """A driver that lost state claims anew, also behind a claim of another driver."""
    return lambda state, mine: None


@mutant(claiming, "_where_to_continue")
def uses_numbers_of_epochs_again(real: Any) -> Any:
    """Who goes back continues under the numbers that were published already."""

    def where_to_continue(options: Any, state: Any, since: int | None) -> Any:
        entry, dropped = real(options, state, since)
        if entry is not None:
            object.__setattr__(state, "last_epoch", entry.epoch)
        return entry, dropped

    return where_to_continue


@mutant(restore, "read_blob", lambda s: s.store.faults.rates.flipped > 0 or s.course.damages)
def reads_positions_without_a_checksum(real: Any) -> Any:
    """Spark's position is taken as it is read, whatever its digest says."""
    return lambda storage, blob, whose: storage.get(blob)


# ---- checkpoints


@mutant(Coordinator, "_written")
def publishes_before_the_entry(real: Any) -> Any:
    """Sinks are given an epoch as soon as its output is durable."""

    def written(self: Coordinator, snapshot: Any, began: float) -> Any:
        for sink, outputs in snapshot.staged.items():
            if outputs:
                self.sinks[sink].commit(outputs, maybe_repeated=False)
        return real(self, snapshot, began)

    return written


@mutant(Ledger, "pending")
def forgets_what_sinks_have_not_acknowledged(real: Any) -> Any:
    """An entry lists the output of its own epochs, and none that the one before still owes."""

    def pending(self: Ledger) -> Any:
        newest = self._covered
        return {
            sink: kept
            for sink, outputs in real(self).items()
            if (kept := tuple(o for o in outputs if o.epoch == newest))
        }

    return pending


@mutant(Coordinator, "_unrecorded")
def stops_without_recording_acknowledgements(real: Any) -> Any:
    """A clean stop leaves sinks owed what they have acknowledged."""
    return lambda self, over: False


# ---- epochs


@mutant(compute, "complete", lambda s: s.mishaps.rates["stage_again"] > 0, program="draw")
def accepts_a_second_report_of_what_others_read(real: Any) -> Any:
    """A stage that others read may report twice: the first counts, whatever its readers have seen."""

    def complete(reports: Any, parts: Any, job: str, epoch: int) -> Any:
        seen: dict[Any, Any] = {}
        for report in reports:
            seen.setdefault((report.job, report.operator, report.partition), report)
        return real(list(seen.values()), parts, job, epoch)

    return complete


@mutant(compute, "complete", lambda s: s.mishaps.rates["report_missing"] > 0)
def counts_partitions_that_did_not_report(real: Any) -> Any:
    """An epoch counts though a partition has not reported."""

    def complete(reports: Any, parts: Any, job: str, epoch: int) -> Any:
        parts = list(parts)
        try:
            return real(reports, parts, job, epoch)
        except InternalError:
            own = [report for report in reports if report.job == job]
            return {p.node.id: [r for r in own if r.operator == p.node.id] for p in parts}

    return complete


# ---- merging, and local files


@mutant(BackgroundJobs, "store")
def drops_what_expires_by_the_time_of_day(real: Any) -> Any:
    """What is stored leaves out what has expired by now, rather than by its version's clock."""

    def store(self: BackgroundJobs, version: Any, clock: Any) -> Any:
        now_ms = runtime.now_ms() + 1_000
        later = None if clock is None else TableClock(now_ms, clock.watermark_ms)
        return real(self, version, later)

    return store


@mutant(BackgroundJobs, "_run")
def merges_by_the_newest_watermark(real: Any) -> Any:
    """A merge drops what has expired by a watermark that its version has not reached."""

    def run(self: BackgroundJobs, pieces: Any, what: str, clock: Any) -> Any:
        if what == "merge" and clock is not None and clock.watermark_ms is not None:
            clock = TableClock(clock.processing_ms, clock.watermark_ms + 5_000)
        return real(self, pieces, what, clock)

    return run


@mutant(Ledger, "install")
def installs_while_an_epoch_runs(real: Any) -> Any:
    """Background changes are applied at once, under the feet of an epoch that may merge the same."""

    def install(self: Ledger, changes: Any) -> None:
        reads, self._epoch_reads = self._epoch_reads, None
        real(self, changes)
        self._epoch_reads = reads

    return install


@mutant(Ledger, "live_runs")
def deletes_local_files_an_epoch_early(real: Any) -> Any:
    """Files of runs go as soon as the newest version doesn't name them, whoever still reads them."""
    return lambda self: set(self._version.runs())


@mutant(Ledger, "_epoch")
def merges_what_is_being_stored(real: Any) -> Any:
    """Tasks merge runs that a background job works on, and delete what it reads."""

    @contextmanager
    def epoch(self: Ledger) -> Iterator[Any]:
        busy, self._busy = self._busy, Counter()
        entered = real(self)
        given = entered.__enter__()
        self._busy = busy
        try:
            yield given
        finally:
            entered.__exit__(None, None, None)

    return epoch


@mutant(Coordinator, "publish")
def says_that_nothing_is_repeated(real: Any) -> Any:
    """What a start publishes that may have been published before is said to be new."""
    return lambda self, restored=False: real(self)


@mutant(OutputFolder, "sweep", lambda s: s.outlets.has_folders)
def sweeps_output_that_is_owed(real: Any) -> Any:
    """A start removes staged output that an entry lists as not acknowledged."""
    return lambda self, keep, claim: real(self, (), claim)


@mutant(OutputFolder, "_forget", lambda s: s.outlets.has_folders)
def forgets_intents_at_once(real: Any) -> Any:
    """An intent goes when its epoch is published, before an entry says that it was."""

    def forget(self: OutputFolder, new: set[str]) -> None:
        for name in new:
            (self._intents / name).unlink(missing_ok=True)

    return forget


@mutant(start, "_take_over")
def starts_without_publishing_what_is_owed(real: Any) -> Any:
    """A start leaves what the entry lists as not acknowledged."""

    def take_over(valid: Any, coordinator: Any, sinks: Any) -> None:
        coordinator.finish_collection()

    return take_over
