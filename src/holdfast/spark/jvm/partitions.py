"""The partitions of a batch: how many, which are of which source, and some of them alone.

In ``foreachBatch`` a batch is an RDD already, so that asking for its partitions plans nothing.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from holdfast.spark.jvm.compiled import BETWEEN, new
from holdfast.spark.jvm.frames import frame_like
from holdfast.spark.jvm.gateway import java_class, jvm_of, scala_object
from holdfast.spark.jvm.probing import Capability
from holdfast.spark.jvm.trees import analyzed

__all__ = [
    "PARTITIONS",
    "SOURCES_APART",
    "batch_partitions",
    "batch_rdd",
    "partitions_of_union",
    "pruned",
]

_RDD = "LogicalRDD"
_UNION = "org.apache.spark.rdd.UnionRDD"
PARTITIONS = Capability(
    "the partitions of a batch",
    {"org.apache.spark.sql.execution.LogicalRDD": ["rdd/0"]},
)
SOURCES_APART = Capability(
    "the partitions of each source",
    {
        _UNION: ["rdds/0"],
        "org.apache.spark.rdd.PartitionPruningRDD": ["new/3"],
        "org.apache.spark.Dependency": ["rdd/0"],
    },
    slower="every source reads the rows of all, and leaves out the others'",
)


def batch_partitions(batch: DataFrame) -> int:
    """How many partitions a batch has; 1 if it isn't an RDD."""
    rdd = batch_rdd(batch)
    return 1 if rdd is None else int(rdd.getNumPartitions())


def batch_rdd(batch: DataFrame) -> Any | None:
    """The RDD that a batch is; None if it is something else."""
    plan = analyzed(batch)
    return plan.rdd() if plan.nodeName() == _RDD else None


def partitions_of_union(rdd: Any, expected: int) -> list[int] | None:
    """How many partitions of an RDD are of each part of a union; None if that can't be told."""
    total = rdd.getNumPartitions()
    while rdd.getClass().getName() != _UNION:
        above = rdd.dependencies()
        if above.size() != 1:
            return None
        rdd = above.head().rdd()
    parts = rdd.rdds()
    if parts.size() != expected:
        return None
    counts = [int(parts.apply(i).getNumPartitions()) for i in range(expected)]
    return counts if sum(counts) == total else None


def pruned(frame: DataFrame, rdd: Any, first: int, end: int) -> DataFrame:
    """A DataFrame of some partitions of an RDD that has the rows of ``frame``."""
    context = frame.sparkSession.sparkContext
    jvm = jvm_of(context)
    tag = scala_object(jvm, "scala.reflect.ClassTag").Object()
    pruning = java_class(jvm, "org.apache.spark.rdd.PartitionPruningRDD")
    return frame_like(frame, pruning(rdd, new(context, BETWEEN, first, end), tag))
