"""Folding changing rows in Spark: what published rows come to."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it
from pyspark.sql.types import NumericType

from holdfast.errors import InputError
from holdfast.operators.window.spec import CHANGE
from holdfast.spark.jvm.quiet import told_by_us
from holdfast.types import quoted

__all__ = ["fold_frame"]

_EPOCH = "_holdfast_epoch"
_LEFT = "_holdfast_left"
_LAST = "_holdfast_last"
_NOT_THERE = (
    "rows are taken back that aren't there: fold all rows that were published; if they have a column "
    "of the epoch, say epoch= to hf.fold"
)
_FILE = r"/epoch-([0-9]+)\.parquet$"
_FOLDER = r"/[^/=]+=([0-9]+)/[^/]+$"


def fold_frame(
    frame: DataFrame, kind: str, columns: Sequence[str], key: Sequence[str], epoch: str | None
) -> DataFrame:
    """The newest row of each key, or the rows that are left by their ``change``, or all."""
    if frame.isStreaming:
        raise InputError(
            "hf.fold takes published rows, not a stream",
            hint='read what was published: hf.fold(spark.read.parquet("out"), of=…)',
        )
    names = [quoted(name) for name in columns]
    if kind == "append":
        return frame.select(*names)
    if kind == "retract":
        times = F.sum(quoted(CHANGE)).cast("int")
        left = frame.groupBy(*names).agg(
            F.when(times < 0, F.raise_error(_NOT_THERE)).otherwise(times).alias(_LEFT)
        )
        repeated = F.explode(F.array_repeat(F.lit(0), F.col(_LEFT)))
        return left.withColumn(_LEFT, repeated).select(*names)
    numbered = frame.select(*names, _epoch_of(frame, epoch).alias(_EPOCH))
    last = F.max_by(F.struct(*names), _EPOCH).alias(_LAST)
    folded = numbered.groupBy(*map(quoted, key)).agg(last, F.count(F.lit(0)).alias(_LEFT))
    # Without a key there is a group also if there are no rows.
    return folded.where(F.col(_LEFT) > 0).select(f"{_LAST}.*")


def _epoch_of(frame: DataFrame, epoch: str | None) -> Column:
    if epoch is not None:
        if not isinstance(frame.schema[epoch].dataType, NumericType):
            raise InputError(
                f"the column {epoch!r} is {frame.schema[epoch].dataType.simpleString()}, no number: "
                "it doesn't tell which rows are newer",
                hint=f"cast it, as in df.withColumn({epoch!r}, F.col({epoch!r}).cast('bigint'))",
            )
        return F.col(quoted(epoch))
    path = F.col("_metadata.file_path")
    try:
        with told_by_us():
            frame.select(path)
    except AnalysisException as error:
        raise InputError(
            "nothing says which of these rows are newer: they don't come straight from files",
            hint="fold what spark.read.parquet gives, or say epoch= with the column of the epoch",
        ) from error
    found = [F.regexp_extract(path, form, 1) for form in (_FILE, _FOLDER)]
    numbers = [F.when(text != "", text.cast("bigint")) for text in found]
    unlike = F.concat(
        path,
        F.lit(" has no epoch in its name: say epoch= to hf.fold, with the column of the epoch"),
    )
    return F.coalesce(*numbers, F.raise_error(unlike).cast("bigint"))
