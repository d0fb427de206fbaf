"""The world outside a pipeline: systems that its sinks write to, and what they have been given."""

from __future__ import annotations

import pyarrow as pa

from holdfast import runtime
from holdfast.errors import StorageError
from holdfast.failpoints import failpoint
from holdfast.sinks.write_ahead import WriteAheadSink
from holdfast.testing.simulation.checks import History
from holdfast.testing.simulation.errors import WorldError
from holdfast.testing.simulation.mishaps import Mishaps
from holdfast.testing.simulation.program import rows_of

__all__ = ["Outside", "SimulatedSink"]


class Outside:
    """What has been published, for good."""

    def __init__(self, mishaps: Mishaps, history: History) -> None:
        self._mishaps = mishaps
        self._history = history
        self.tables: dict[str, dict[int, pa.Table]] = {}
        self.halves: set[tuple[str, int]] = set()
        """Epochs of which only some rows have come, so far."""
        self.wrong: list[str] = []
        """What must not have happened."""

    def publish(
        self, sink: str, epoch: int, table: pa.Table, *, claim: int, maybe_repeated: bool
    ) -> None:
        """Take an epoch's rows in; whoever repeats them must know that he might."""
        what = f"epoch {epoch} of {sink}"
        if not self._history.has_looked():
            self.wrong.append(f"{what} was published without a look whether another has taken over")
        if not self._history.covers(sink, epoch):
            self.wrong.append(f"{what} was published before its entry")
        failpoint("outside.before")
        if self._mishaps.strikes("sink_before"):
            raise StorageError(f"{sink} can't be reached (simulated)")
        known = self.tables.setdefault(sink, {})
        before = known.get(epoch)
        halved = (sink, epoch) in self.halves
        # Who is fenced after he has looked can't know what happened since.
        may_know = self._history.newest_claim() <= claim
        if before is not None and _rows(before) != _rows(table):
            self.wrong.append(f"{what} was published again with other rows")
        elif (before is not None or halved) and not maybe_repeated and may_know:
            self.wrong.append(f"{what} was published again, as if it were new")
        if before is None and self._mishaps.strikes("sink_within"):
            self.halves.add((sink, epoch))
            failpoint("outside.within")
            raise StorageError(f"{sink} has taken half of epoch {epoch} (simulated)")
        self.halves.discard((sink, epoch))
        known.setdefault(epoch, table)
        failpoint("outside.after")
        if self._mishaps.strikes("sink_after"):
            raise StorageError(f"{sink} doesn't answer any more (simulated)")

    def check(self) -> None:
        """Raise if anything has gone wrong."""
        if self.wrong:
            raise WorldError("; ".join(self.wrong))


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(rows_of(table), key=repr)


class SimulatedSink(WriteAheadSink):
    """A sink of a system that takes whole epochs and forgets none."""

    def __init__(self, outside: Outside, name: str) -> None:
        self._outside = outside
        self._name = name

    def describe(self) -> str:
        """Its name."""
        return f"simulated {self._name}"

    def deliver(self, epoch: int, table: pa.Table, *, maybe_repeated: bool) -> None:
        """Give an epoch's rows away."""
        runtime.sleep(0.01)
        self._outside.publish(
            self._name, epoch, table, claim=self.context.claim, maybe_repeated=maybe_repeated
        )
