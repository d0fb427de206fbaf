"""Find out what the columns that a program names are, before any row is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.errors import InputError
from holdfast.spark.types import arrow_type

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
        jvm = df.sparkSession._jvm
        assert jvm is not None
        self._jvm = jvm
        # Batches of a stream are other DataFrames with the same schema, and so is this one: a column
        # that is tied to one DataFrame is found out here and not in the first epoch.
        rows = self._jvm.java.util.ArrayList()
        empty = df._jdf.sparkSession().createDataFrame(rows, df._jdf.schema())
        self._empty = DataFrame(empty, df.sparkSession)

    def key(self, column: str | Column) -> Resolved:
        """A key column; an expression needs a name of its own."""
        resolved, expression = self._resolve("the key", column)
        pretty = getattr(self._jvm.org.apache.spark.sql.catalyst.util, "package$")
        text = getattr(pretty, "MODULE$").toPrettySQL
        is_alias = expression.nodeName() == "Alias"
        if is_alias and expression.name() == text(expression.child()):
            raise InputError(
                f"the key {resolved.name!r} is an expression without a name",
                hint=f"name it: ({resolved.name}).alias('…')",
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
            resolved, _ = self._resolve(f"aggregate {aggregate!r}", present)
            return resolved
        return self._resolve(f"aggregate {aggregate!r}", column)[0]

    def _resolve(self, who: str, column: str | Column) -> tuple[Resolved, Any]:
        reference = _reference(column, self.columns)
        try:
            frame = self._empty.select(reference)
        except AnalysisException as error:
            raise self._unresolved(who, column, error) from None
        plan = frame._jdf.queryExecution().analyzed()
        field = frame.schema[0]
        if plan.nodeName() != "Project" or plan.child().nodeName() != "LocalRelation":
            raise InputError(
                f"{who} uses {field.name!r}, which is not computed from one row alone",
                hint="aggregate, window and generator functions go into a step before",
            )
        expression = plan.projectList().apply(0)
        if not expression.deterministic():
            raise InputError(
                f"{who} uses {field.name!r}, which may differ when an epoch is repeated",
                hint="compute it in the source, or from columns of the input",
            )
        return Resolved(field.name, reference, arrow_type(field.name, field.dataType)), expression

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


def _reference(column: str | Column, columns: list[str]) -> Column:
    if not isinstance(column, str):
        return column
    # A column whose name has dots in it goes before a field of a struct.
    return F.col(f"`{column}`" if column in columns and "`" not in column else column)
