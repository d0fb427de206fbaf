"""Jobs of a thread: its properties, put back as they were, and whether Spark can run any more of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark import SparkContext

from holdfast.spark.jvm.gateway import java_context, running_context
from holdfast.spark.jvm.probing import Capability

__all__ = ["JOBS", "own_properties", "spark_has_stopped"]

JOBS = Capability(
    "the properties of a thread's jobs",
    {
        "org.apache.spark.SparkContext": [
            *("getLocalProperties/0", "isStopped/0", "setLocalProperties/1"),
        ],
    },
)


@contextmanager
def own_properties(context: SparkContext) -> Iterator[None]:
    """What is set for this thread's jobs in here goes again, all at once."""
    spark = java_context(context)
    before = spark.getLocalProperties().clone()
    try:
        yield
    finally:
        spark.setLocalProperties(before)


def spark_has_stopped() -> bool:
    """Whether somebody has stopped Spark, or is about to.

    What breaks first then, and in which words, is chance: a null pointer, an RPC, a cancelled job.
    """
    context = running_context()
    # It loses its JVM's part first, and is nobody's any more last of all.
    if context is None or context._jsc is None:
        return True
    try:
        return bool(java_context(context).isStopped())
    except Py4JError:
        # The JVM itself is gone, and who did that is not known.
        return False
