"""What the epoch loop asks of a plan: how the rows of its inputs reach the tasks of an operator."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame

from holdfast.operators.base import Operator
from holdfast.spark.pacing import Shape
from holdfast.spark.preaggregate import Preaggregated

__all__ = ["Plan"]


class Plan(Protocol):
    """How an operator gets its rows."""

    @property
    def operator(self) -> Operator:
        """The operator."""

    @property
    def ports(self) -> tuple[str, ...]:
        """What its inputs are called: the operator reports event times under these names."""

    @property
    def may_preaggregate(self) -> bool:
        """Whether rows can be grouped before they are sent."""

    @property
    def must_preaggregate(self) -> bool:
        """Whether they have to be."""

    def lift(self, frame: DataFrame, *, first: bool, port: int = 0) -> DataFrame:
        """The columns of the operator's input, for rows of a port; ``first``: no epoch was before."""

    def preaggregate(self, frame: DataFrame) -> Preaggregated:
        """The same, grouped."""

    def partitioned(self, frame: DataFrame, shape: Shape) -> DataFrame:
        """Every row where its partition is."""
