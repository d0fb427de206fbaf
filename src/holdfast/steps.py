"""The steps of a stream: any change of its rows that needs no state, and what time they go by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.arguments import check_rows
from holdfast.durations import Duration, parse_ms
from holdfast.errors import InputError
from holdfast.spark.flow.branch import WatermarkSpec
from holdfast.spark.says_how import ROWS, SaysHow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame

    from holdfast.stream import Rows, Stream

__all__ = ["Steps"]


class Steps(SaysHow):
    """What can be done with rows without state; the names are PySpark's, in snake case.

    A step is tried at once on a frame with the stream's columns, so that a wrong name is reported
    where it was written.
    """

    _how = ROWS

    @property
    def rows(self) -> Stream:
        """The rows as a stream: of an operator its results, without what only an operator has.

        >>> import holdfast as hf
        >>> def columns(rows: hf.Rows) -> list[str]:
        ...     return rows.rows.df.columns
        """
        raise NotImplementedError

    def select(self, *columns: str | Column) -> Stream:
        """Like ``DataFrame.select``.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> ticks.select("value").df.columns
        ['value']
        """
        return self.rows.then(lambda df: df.select(*columns))

    def select_expr(self, *expressions: str) -> Stream:
        """Like ``DataFrame.selectExpr``: columns as SQL expressions.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> ticks.select_expr("value % 10 AS digit", "timestamp").df.columns
        ['digit', 'timestamp']
        """
        return self.rows.then(lambda df: df.selectExpr(*expressions))

    def filter(self, condition: str | Column) -> Stream:
        """Like ``DataFrame.filter``.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> even = ticks.filter("value % 2 = 0")
        """
        return self.rows.then(lambda df: df.filter(condition))

    def where(self, condition: str | Column) -> Stream:
        """Another name of :meth:`filter`, as in PySpark.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> late = ticks.where("value > 100")
        """
        return self.filter(condition)

    def drop(self, *columns: str | Column) -> Stream:
        """Like ``DataFrame.drop``: the other columns; names that there aren't are no error.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> ticks.drop("value").df.columns
        ['timestamp']
        """
        dropped: Any = columns
        return self.rows.then(lambda df: df.drop(*dropped))

    def with_column(self, name: str, column: Column) -> Stream:
        """Like ``DataFrame.withColumn``.

        >>> import holdfast as hf
        >>> from pyspark.sql import functions as F
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> ticks.with_column("digit", F.col("value") % 10).df.columns
        ['timestamp', 'value', 'digit']
        """
        return self.rows.then(lambda df: df.withColumn(name, column))

    def with_columns(self, columns: Mapping[str, Column]) -> Stream:
        """Like ``DataFrame.withColumns``: several at once.

        >>> import holdfast as hf
        >>> from pyspark.sql import functions as F
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> ticks.with_columns({"digit": F.col("value") % 10, "one": F.lit(1)}).df.columns
        ['timestamp', 'value', 'digit', 'one']
        """
        added = dict(columns)
        return self.rows.then(lambda df: df.withColumns(added))

    def with_column_renamed(self, existing: str, new: str) -> Stream:
        """Like ``DataFrame.withColumnRenamed``, but a name that there isn't is an error.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> ticks.with_column_renamed("value", "n").df.columns
        ['timestamp', 'n']
        """
        return self.with_columns_renamed({existing: new})

    def with_columns_renamed(self, names: Mapping[str, str]) -> Stream:
        """Like ``DataFrame.withColumnsRenamed``: several, new names by old ones.

        All at once, so that two may change places. The watermark goes along with its column.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> ticks.with_columns_renamed({"value": "n", "timestamp": "at"}).df.columns
        ['at', 'n']
        """
        rows, renamed = self.rows, dict(names)
        # Spark would leave a wrong name in silence.
        if missing := [name for name in renamed if name not in rows.df.columns]:
            raise InputError(
                f"there is no column {missing[0]!r} to rename",
                hint=f"the columns are {', '.join(rows.df.columns)}",
            )
        return rows.then(
            lambda df: df.toDF(*(renamed.get(name, name) for name in df.columns)), renamed
        )

    def transform(self, fn: Callable[..., DataFrame], *args: Any, **kwargs: Any) -> Stream:
        """Apply any function from DataFrame to DataFrame that adds no state of Spark's.

        All of PySpark's steps that have no name here go there.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> ticks.transform(lambda df: df.fillna(0)).df.columns
        ['timestamp', 'value']
        """
        return self.rows.then(lambda df: fn(df, *args, **kwargs))

    def with_watermark(
        self,
        column: str,
        delay: Duration,
        *,
        allowed_lateness: Duration = 0,
        idle_timeout: Duration | None = None,
    ) -> Stream:
        """Say when rows happened, and how far they may be out of order.

        The watermark is the greatest time seen, less ``delay``; of several streams the least one
        counts, unless a stream has had no rows for ``idle_timeout``. Rows at or before the
        watermark less ``allowed_lateness`` go to the side output ``late``. The results of an
        operator follow the watermark of its sources: there ``delay`` says how far behind they may be.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> timed = ticks.with_watermark("timestamp", "10 s", allowed_lateness="1 minute")
        """
        idle = None if idle_timeout is None else parse_ms(idle_timeout, "idle_timeout")
        late = parse_ms(allowed_lateness, "allowed_lateness")
        return self.rows.at_times(WatermarkSpec(column, parse_ms(delay, "delay"), late, idle))

    def union(self, *others: Rows) -> Stream:
        """These rows and others with the same columns, in any order; the least watermark counts.

        >>> import holdfast as hf
        >>> ticks = hf.stream(spark.readStream.format("rate").load())
        >>> tocks = hf.stream(spark.readStream.format("rate").load())
        >>> ticks.union(tocks.select("value", "timestamp")).df.columns
        ['timestamp', 'value']
        """
        from holdfast.spark.plans.rows import check_alike
        from holdfast.stream import Stream

        mine = self.rows
        branches = list(mine.branches)
        names = mine.df.columns
        for other in others:
            check_rows(other, "union")
            theirs = other.rows
            check_alike(mine.df, theirs.df)
            aligned = theirs.then(lambda df: df.select(*names))
            branches += aligned.branches
        columns = {(b.watermark.column, b.watermark.is_end) for b in branches if b.watermark}
        if len(columns) > 1 or (columns and any(b.watermark is None for b in branches)):
            raise InputError(
                "the streams of a union must all have a watermark on the same column, or none: "
                + ", ".join(b.watermark.column if b.watermark else "none" for b in branches),
                hint="say with_watermark behind union(...), or rename the column",
            )
        return Stream(tuple(branches))
