"""The sink that drops everything: for benchmarks of what comes before it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from holdfast.checkpoint.entry import StagedOutput
from holdfast.sinks.base import Sink, SinkContext, Stager, StageWriter

__all__ = ["NoopSink", "noop"]


def noop() -> NoopSink:
    """Drop all output: nothing is staged and nothing published. For benchmarks.

    >>> noop().describe()
    'nothing'
    """
    return NoopSink()


class NoopSink(Sink):
    """What :func:`noop` makes."""

    def __repr__(self) -> str:
        return "hf.sinks.noop()"

    def describe(self) -> str:
        """It writes nothing."""
        return "nothing"

    def validate(self, context: SinkContext) -> None:
        """Anything can be dropped."""

    def open(self, context: SinkContext) -> None:
        """There is nothing to get ready."""

    def stager(self) -> Stager:
        """Drops rows in the task."""
        return _NoopStager()

    def pre_commit(self, staged: Sequence[StagedOutput]) -> None:
        """There is nothing to make durable."""

    def commit(self, staged: Sequence[StagedOutput], *, maybe_repeated: bool) -> None:
        """There is nothing to publish."""


class _NoopStager(Stager):
    def open(self, epoch: int, partition: int, nonce: str, schema: pa.Schema) -> StageWriter:
        del epoch, partition, nonce, schema
        return _NoopWriter()


class _NoopWriter(StageWriter):
    def write(self, table: pa.Table) -> None:
        pass

    def close(self) -> StagedOutput | None:
        return None

    def abort(self) -> None:
        pass
