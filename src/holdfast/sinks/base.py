"""What a sink is: it stages output in tasks and publishes it from the driver, after its log entry.

The life of an epoch's output: a task *stages* it under unique names; before the log entry the
driver asks the sink to make it durable (*pre-commit*); after the entry it asks to *commit*, as often
as it takes. Committing again, by anyone, changes nothing (invariant 6).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.checkpoint.entry import StagedOutput
from holdfast.storage import Storage

__all__ = ["Sink", "SinkContext", "StageWriter", "Stager"]


def _nobody_else() -> None:
    """Where nothing is claimed nobody is fenced."""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink is told when its pipeline opens (on the driver).

    >>> from holdfast.storage import open_storage
    >>> context = SinkContext("orders", "sink-0", 1, open_storage("ck"), pa.schema([]), ("user",))
    >>> context.pipeline, context.key_names
    ('orders', ('user',))
    """

    pipeline: str
    sink: str
    """The sink's stable id in its pipeline."""
    claim: int
    """0 while the start is still being validated: nothing may be changed then."""
    storage: Storage
    schema: pa.Schema
    key_names: tuple[str, ...]
    to_dataframe: Callable[[pa.Table], Any] | None = None
    """Makes a Spark DataFrame, for sinks that hand one to user code."""
    check_not_fenced: Callable[[], None] = _nobody_else
    """Raises ``FencedError`` if another driver has taken the pipeline over: for a sink that can't tell
    whether that one has published, right before it does what can't be undone (invariant 5)."""


class StageWriter(ABC):
    """Writes one task's output of one epoch.

    >>> class Counting(StageWriter):
    ...     rows = 0
    ...     def write(self, table):
    ...         self.rows += table.num_rows
    ...     def close(self):
    ...         return None
    ...     def abort(self):
    ...         self.rows = 0
    >>> writer = Counting()
    >>> writer.write(pa.table({"n": [1, 2]}))
    >>> writer.rows
    2
    """

    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Add rows."""

    @abstractmethod
    def close(self) -> StagedOutput | None:
        """Finish; None if nothing was written (an empty partition stages nothing)."""

    @abstractmethod
    def abort(self) -> None:
        """Remove what was written, as far as possible; also after :meth:`close`."""


class Stager(ABC):
    """The part of a sink that runs in tasks: small, picklable, without connections.

    >>> import holdfast as hf
    >>> isinstance(hf.sinks.noop().stager(), Stager)
    True
    """

    @abstractmethod
    def open(self, epoch: int, partition: int, nonce: str, schema: pa.Schema) -> StageWriter:
        """Begin one task attempt's output; ``nonce`` is unique to the attempt."""


class Sink(ABC):
    """Where a pipeline's output goes: what the functions of this package make.

    One of your own stages output in tasks and publishes it after its log entry; most are easier to write
    as a :class:`WriteAheadSink`. Test it with :class:`holdfast.testing.SinkTests`.

    >>> import holdfast as hf
    >>> isinstance(hf.sinks.parquet("out"), Sink)
    True
    """

    repeats_show: bool = False
    """Whether somebody sees it if output is published again: what was acknowledged is then recorded
    at once, not with the next checkpoint."""

    @abstractmethod
    def describe(self) -> str:
        """A few words for logs and for comparing a restart with the run before."""

    @abstractmethod
    def validate(self, context: SinkContext) -> None:
        """Raise if output can't be written there. Must change nothing."""

    @abstractmethod
    def open(self, context: SinkContext) -> None:
        """The pipeline is claimed: get ready to publish."""

    @abstractmethod
    def stager(self) -> Stager:
        """The task's part. Called after :meth:`open`."""

    @abstractmethod
    def pre_commit(self, staged: Sequence[StagedOutput]) -> None:
        """Make staged output durable: after this it survives a crash of driver or host."""

    @abstractmethod
    def commit(self, staged: Sequence[StagedOutput], *, maybe_repeated: bool) -> None:
        """Publish staged output (whole epochs, oldest first). Repeating it changes nothing.

        ``maybe_repeated`` tells sinks that can't see for themselves whether they published it.
        """

    def sweep(self, keep: Sequence[StagedOutput]) -> None:
        """Remove staged output of this or lower claims that is not in ``keep``.

        For the moment after a claim and before its first epoch: the output of a task of this claim
        that is still writing is in nobody's list yet and would go too.
        """
        del keep

    def close(self) -> None:  # noqa: B027 - most sinks hold nothing open
        """The pipeline has stopped."""
