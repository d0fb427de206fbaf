"""Find out what the columns that a program names are, before any row is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it
from pyspark.sql.types import DataType

from holdfast.errors import InputError
from holdfast.spark.jvm.columns import has_name
from holdfast.spark.jvm.frames import empty_like
from holdfast.spark.jvm.quiet import told_by_us
from holdfast.spark.jvm.trees import computes_row_by_row
from holdfast.spark.types import arrow_key_type, arrow_type
from holdfast.types import quoted

__all__ = ["Resolved", "Resolver"]


@dataclass(frozen=True, slots=True)
class Resolved:
    """A column of the input, or an expression over it."""

    name: str
    column: Column
    type: pa.DataType


class Resolver:
    """Resolves columns against the schema of a DataFrame, by name."""

    def __init__(self, df: DataFrame) -> None:
        self.columns = df.columns
        # Batches of a stream are other DataFrames with the same schema, and so is this one: a column
        # that is tied to one DataFrame is found out here and not in the first epoch.
        self._empty = empty_like(df)

    def key(self, column: str | Column) -> Resolved:
        """A key column; an expression needs a name of its own."""
        resolved = self._resolve("the key", column, arrow_key_type)
        # The names that Spark makes up for expressions, such as "(a + 1)", are no identifiers.
        if not resolved.name.isidentifier() and not _is_named(column):
            raise InputError(
                f"the key {resolved.name!r} is an expression without a name",
                hint="give it one with .alias('…')",
            )
        return resolved

    def input(self, aggregate: str, column: object, *, any_type: bool = False) -> Resolved:
        """A column that an aggregate reads; with ``any_type`` only whether it is null matters."""
        if not isinstance(column, str | Column):
            raise InputError(
                f"aggregate {aggregate!r} was given {column!r}, which is no column",
                hint="give the name of a column or a PySpark column expression",
            )
        if any_type:
            present = F.when(_reference(column, self.columns).isNotNull(), F.lit(True))
            return self._resolve(f"aggregate {aggregate!r}", present)
        return self._resolve(f"aggregate {aggregate!r}", column)

    def _resolve(
        self,
        who: str,
        column: str | Column,
        to_arrow: Callable[[str, DataType], pa.DataType] = arrow_type,
    ) -> Resolved:
        try:
            with told_by_us():
                reference = _reference(column, self.columns)
                frame = self._empty.select(reference)
        except AnalysisException as error:
            raise self._unresolved(who, column, error) from None
        field = frame.schema[0]
        of_one_row, alike = computes_row_by_row(frame)
        if not of_one_row:
            raise InputError(
                f"{who} uses {field.name!r}, which is not computed from one row alone",
                hint="aggregate, window and generator functions go into a step before",
            )
        if not alike:
            raise InputError(
                f"{who} uses {field.name!r}, which may differ when an epoch is repeated",
                hint="compute it in the source, or from columns of the input",
            )
        return Resolved(field.name, reference, to_arrow(field.name, field.dataType))

    def _unresolved(self, who: str, column: str | Column, error: AnalysisException) -> InputError:
        there = ", ".join(self.columns)
        condition = error.getCondition() or ""
        if isinstance(column, str):
            return InputError(
                f"{who} names column {column!r}, which the input doesn't have",
                hint=f"choose one of: {there}",
            )
        if condition.startswith("MISSING_ATTRIBUTES"):
            return InputError(
                f"{who} uses a column that is tied to a DataFrame (df.x or df['x'])",
                hint="name it with F.col('x'): each epoch has a DataFrame of its own",
            )
        message = str(error.getMessage() or error).split("\n")[0]
        return InputError(f"{who} can't be resolved: {message}", hint=f"the input has: {there}")


def _is_named(column: str | Column) -> bool:
    return isinstance(column, str) or has_name(column)


def _reference(column: str | Column, columns: list[str]) -> Column:
    if not isinstance(column, str):
        return column
    # A column whose name has dots in it goes before a field of a struct.
    return F.col(quoted(column) if column in columns else column)
