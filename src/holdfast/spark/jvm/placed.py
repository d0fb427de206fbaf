"""Tells Spark where each task of a job should run, and each task where it does run.

Spark has no way to say "partition 3 belongs on h2" for a DataFrame. An RDD has one, preferred
locations, so a small subclass of RDD stands between two stages: it passes rows on and names a host
for each partition (:mod:`holdfast.spark.jvm.compiled`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame

from holdfast.spark.jvm.compiled import PLACED_RDD, new
from holdfast.spark.jvm.frames import frame_like
from holdfast.spark.jvm.gateway import array
from holdfast.spark.jvm.prepared import rdd_of
from holdfast.spark.jvm.probing import Capability
from holdfast.tasks.failing import encode_errors

__all__ = ["PLACING", "Placer", "answers", "task_host", "task_partition"]

PLACING = Capability(
    "telling tasks where to run",
    {
        "org.codehaus.janino.SimpleCompiler": [
            *("cook/1", "getBytecodes/0", "getClassLoader/0", "setParentClassLoader/1"),
        ],
        "org.apache.spark.rdd.RDD": [
            *("compute/2", "getNumPartitions/0", "iterator/2", "partitions/0"),
        ],
        "org.apache.spark.storage.BlockManager": ["blockManagerId/0"],
        "org.apache.spark.SparkContext": ["addJar/1"],
    },
)

_HOST = "holdfast.host"
_PARTITION = "holdfast.partition."


class Placer:
    """Makes jobs that run where they are told; one per Spark application is enough."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def frame(self, frame: DataFrame, hosts: Sequence[str | None], stage: str = "0") -> DataFrame:
        """The same rows in the same partitions, the i-th on the i-th host (None: anywhere).

        Without hosts all may run anywhere. Tasks find the number of their partition under the
        name of the stage: with :func:`task_partition`.
        """
        return frame_like(frame, self._placed(rdd_of(frame), hosts, stage))

    def indexes(self, hosts: Sequence[str | None]) -> Any:
        """An RDD of one number per partition (its own index), each on its host."""
        from pyspark.core.rdd import RDD

        count = len(hosts)
        # A list, for a range is itself made by Python workers, and two of them in one task hang.
        numbers = self._context.parallelize(list(range(count)), count)
        java = self._placed(numbers._jrdd.rdd(), hosts, "0").toJavaRDD()
        return RDD(java, self._context, numbers._jrdd_deserializer)

    def _placed(self, rdd: Any, hosts: Sequence[str | None], stage: str) -> Any:
        names = array(self._context, "java.lang.String", hosts)
        return new(self._context, PLACED_RDD, rdd, names, _PARTITION + stage)


def answers(numbers: DataFrame, answer: Callable[[int], bytes]) -> list[bytes]:
    """What a function says of each number of a frame, where the frame's partitions run.

    By way of Arrow, as epochs do it: for tasks of another kind Spark has Python processes of another
    kind, which take seconds to start, and those of the epochs would not be there when they are needed.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with encode_errors():
                    said = pa.array([answer(number)], pa.binary())
                yield pa.RecordBatch.from_pydict({"answer": said})

    return [bytes(row[0]) for row in numbers.mapInArrow(task, "answer binary").collect()]


def task_host() -> str | None:
    """In a task: Spark's name for the host it runs on; None in a job that was not placed."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(_HOST)


def task_partition(stage: str) -> int:
    """In a task: which partition of a stage it works on.

    Spark's own number counts the partitions of the job's stage, of which ours may be a part: where
    rows of several operators meet, or are written out at the end.
    """
    context = TaskContext.get()
    assert context is not None
    # Tasks in the driver's own process share their properties: each needs a name of its own.
    number = context.getLocalProperty(f"{_PARTITION}{stage}.{context.taskAttemptId()}")
    return context.partitionId() if number is None else int(number)
