"""How tasks report to the driver: through one accumulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.accumulators import Accumulator, AccumulatorParam

from holdfast.tasks.task import TaskReport

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Reports"]


class _Messages(AccumulatorParam[list[bytes]]):
    def zero(self, value: list[bytes]) -> list[bytes]:
        del value
        return []

    def addInPlace(self, value1: list[bytes], value2: list[bytes]) -> list[bytes]:  # noqa: N802
        value1.extend(value2)
        return value1


class Reports:
    """The one long-lived accumulator through which tasks report (each new one would leak)."""

    def __init__(self, context: SparkContext) -> None:
        self.accumulator: Accumulator[list[bytes]] = context.accumulator([], _Messages())

    def take(self) -> list[TaskReport]:
        """The reports since the last call."""
        messages = self.accumulator.value
        self.accumulator.value = []
        return [TaskReport.decoded(message) for message in messages]
