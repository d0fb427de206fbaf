"""The rows of each source of a query, out of the one batch that Spark hands over.

Several sources are one query: a union, in which each row lies in a column of its source. A batch is an
RDD whose first partitions are those of the first source, then those of the second, and so on, so a
source's rows are had by reading its partitions alone. For that the union must keep the sources that have
nothing new, which Spark would leave out (:func:`keep_empty`). Should it have made something else of the
union all the same, all rows are read and the others' left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.spark.jvm.partitions import SOURCES_APART, batch_rdd, partitions_of_union, pruned
from holdfast.spark.jvm.probing import has
from holdfast.types import quoted

__all__ = ["SOURCE_NUMBER", "as_one", "keep_empty", "split"]

SOURCE_NUMBER = "_holdfast_source_number"
_PRUNING = "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation"


def as_one(sources: Sequence[DataFrame]) -> DataFrame:
    """The streams of a pipeline as the one that Spark runs."""
    if len(sources) == 1:
        return sources[0]
    parts = []
    for number, source in enumerate(sources):
        columns = [
            F.struct(*(F.col(quoted(name)) for name in source.columns)).alias(_name(number))
            if other == number
            else F.lit(None).cast(frame.schema).alias(_name(other))
            for other, frame in enumerate(sources)
        ]
        parts.append(source.select(F.lit(number).alias(SOURCE_NUMBER), *columns))
    union = parts[0]
    for part in parts[1:]:
        union = union.unionAll(part)
    return union


def keep_empty(session: SparkSession) -> None:
    """Have plans of the session keep the parts of a union that are known to be empty."""
    name = "spark.sql.optimizer.excludedRules"
    others = session.conf.get(name, "") or ""
    session.conf.set(name, ",".join(filter(None, [others, _PRUNING])))


def split(batch: DataFrame, sources: int, *, ticks: bool) -> list[DataFrame]:
    """The rows of each source in a batch of :func:`as_one`, which may have ticks beside them."""
    if sources == 1:
        return [batch]
    rdd = batch_rdd(batch)
    known = rdd is not None and has(SOURCES_APART)
    counts = partitions_of_union(rdd, sources + ticks) if known else None
    if counts is None:
        return [
            batch.filter(F.col(SOURCE_NUMBER) == number).select(f"{_name(number)}.*")
            for number in range(sources)
        ]
    ends = list(accumulate(counts))
    frames = []
    for number in range(sources):
        part = pruned(batch, rdd, ends[number] - counts[number], ends[number])
        wrong = F.raise_error(F.lit("a partition has rows of another source than was expected"))
        rows = F.when(F.col(SOURCE_NUMBER) == number, F.col(_name(number))).otherwise(
            wrong.cast(batch.schema[_name(number)].dataType)
        )
        frames.append(part.select(rows.alias("rows")).select("rows.*"))
    return frames


def _name(number: int) -> str:
    return f"s{number}"
