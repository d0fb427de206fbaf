"""The world outside a pipeline: systems that its sinks write to, and what they have been given."""

from __future__ import annotations

import pyarrow as pa

from holdfast import runtime
from holdfast.errors import StorageError
from holdfast.failpoints import failpoint
from holdfast.sinks.write_ahead import WriteAheadSink
from holdfast.testing.simulation.errors import WorldError
from holdfast.testing.simulation.mishaps import Mishaps
from holdfast.testing.simulation.program import rows_of

__all__ = ["Outside", "SimulatedSink"]


class Outside:
    """What has been published, for good."""

    def __init__(self, mishaps: Mishaps) -> None:
        self._mishaps = mishaps
        self.tables: dict[str, dict[int, pa.Table]] = {}
        self.wrong: list[str] = []
        """What must not have happened."""

    def publish(self, sink: str, epoch: int, table: pa.Table, *, maybe_repeated: bool) -> None:
        """Take an epoch's rows in; whoever repeats them must know that he might."""
        failpoint("outside.before")
        if self._mishaps.strikes(self._mishaps.sink_before):
            raise StorageError(f"{sink} can't be reached (simulated)")
        known = self.tables.setdefault(sink, {})
        before = known.get(epoch)
        if before is None:
            known[epoch] = table
        elif sorted(rows_of(before), key=repr) != sorted(rows_of(table), key=repr):
            self.wrong.append(f"epoch {epoch} of {sink} was published again with other rows")
        elif not maybe_repeated:
            self.wrong.append(f"epoch {epoch} of {sink} was published again, as if it were new")
        failpoint("outside.after")
        if self._mishaps.strikes(self._mishaps.sink_after):
            raise StorageError(f"{sink} doesn't answer any more (simulated)")

    def check(self) -> None:
        """Raise if anything has gone wrong."""
        if self.wrong:
            raise WorldError("; ".join(self.wrong))


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
        self._outside.publish(self._name, epoch, table, maybe_repeated=maybe_repeated)
