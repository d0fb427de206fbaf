"""Mutants: faults that the driver, the log and the sinks never had, one for each rule that they keep."""

from __future__ import annotations

from typing import Any

from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.log import Log
from holdfast.driver import claiming, compute, start
from holdfast.driver.background import BackgroundJobs
from holdfast.driver.local_files import LocalFiles
from holdfast.errors import InternalError
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


@mutant(Log, "_put")
def takes_exists_for_another_drivers_entry(real: Any) -> Any:
    """The entry that stands there is not read back: nonces are not compared."""

    def put(self: Log, entry: Any) -> bool:
        from holdfast.checkpoint.entry import encode_entry, entry_name

        return self.storage.put_if_absent(entry_name(entry.number), encode_entry(entry))

    return put


@mutant(claiming, "check_still_own", lambda s: s.course.is_cluster)
def recovers_from_anothers_claim(real: Any) -> Any:
    """A driver that lost state claims anew, also behind a claim of another driver."""
    return lambda state, mine: None


@mutant(claiming, "renumbered")
def uses_numbers_of_epochs_again(real: Any) -> Any:
    """Who goes back continues under the numbers that were published already."""
    return lambda files, epoch, last_used: files


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


@mutant(Coordinator, "record_acknowledged")
def never_records_acknowledgements(real: Any) -> Any:
    """What sinks have acknowledged is in no entry of its own."""
    return lambda self: None


@mutant(Coordinator, "_unrecorded")
def stops_without_recording_acknowledgements(real: Any) -> Any:
    """A clean stop leaves sinks owed what they have acknowledged."""
    return lambda self, over: False


# ---- epochs


@mutant(compute, "complete")
def accepts_a_second_report_of_what_others_read(real: Any) -> Any:
    """A stage that others read may report twice: the first counts, whatever its readers have seen."""

    def complete(reports: Any, parts: Any, job: str, number: int) -> Any:
        seen: dict[Any, Any] = {}
        for report in reports:
            seen.setdefault((report.job, report.operator, report.partition), report)
        return real(list(seen.values()), parts, job, number)

    return complete


@mutant(compute, "complete")
def counts_partitions_that_did_not_report(real: Any) -> Any:
    """An epoch counts though a partition has not reported."""

    def complete(reports: Any, parts: Any, job: str, number: int) -> Any:
        parts = list(parts)
        try:
            return real(reports, parts, job, number)
        except InternalError:
            own = [report for report in reports if report.job == job]
            return {p.node.id: [r for r in own if r.operator == p.node.id] for p in parts}

    return complete


# ---- merging, and local files


@mutant(BackgroundJobs, "compact")
def merges_by_the_newest_clock(real: Any) -> Any:
    """A merge drops what has expired by a clock that is ahead of its version's."""

    def compact(self: BackgroundJobs) -> int:
        clock = self.ledger._clock
        if clock is not None:
            later = clock.processing_ms + 60_000
            self.ledger._clock = type(clock)(later, (clock.watermark_ms or 0) + 60_000)
        try:
            made: int = real(self)
        finally:
            self.ledger._clock = clock
        return made

    return compact


@mutant(Ledger, "install")
def installs_while_an_epoch_runs(real: Any) -> Any:
    """Background changes are applied at once, under the feet of an epoch that may merge the same."""

    def install(self: Ledger, changes: Any) -> None:
        reads, self._epoch_reads = self._epoch_reads, None
        real(self, changes)
        self._epoch_reads = reads

    return install


@mutant(LocalFiles, "retire")
def deletes_local_files_that_are_read(real: Any) -> Any:
    """Files of runs go as soon as the newest version doesn't name them."""

    def retire(self: LocalFiles, live: set[str]) -> None:
        real(self, set(sorted(live)[1:]))

    return retire


@mutant(start, "_take_over")
def starts_without_publishing_what_is_owed(real: Any) -> Any:
    """A start leaves what the entry lists as not acknowledged."""

    def take_over(valid: Any, coordinator: Any, sinks: Any) -> None:
        coordinator.finish_collection()

    return take_over
