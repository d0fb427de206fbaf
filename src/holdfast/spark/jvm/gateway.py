"""The JVM behind PySpark: its classes, Scala's objects, and what Python hands over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

__all__ = [
    "array",
    "java_class",
    "java_context",
    "java_error",
    "java_session",
    "jvm_of",
    "longs",
    "master_of",
    "process_id",
    "running_context",
    "scala_object",
    "sequence",
]


def jvm_of(owner: SparkContext | SparkSession) -> Any:
    """The JVM of an application."""
    context = owner.sparkContext if isinstance(owner, SparkSession) else owner
    return context._jvm


def running_context() -> SparkContext | None:
    """The context of this process that isn't stopped, if there is one."""
    return SparkContext._active_spark_context


def java_context(context: SparkContext) -> Any:
    """Spark's own context: that of PySpark has none any more when the user has stopped it."""
    return context._jsc.sc()


def java_session(session: SparkSession) -> Any:
    """Spark's own session."""
    return session._jsparkSession


@lru_cache(maxsize=256)
def java_class(jvm: Any, name: str) -> Any:
    """A class of the JVM's, looked up once: that is a call for every part of its name."""
    found = jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


@lru_cache(maxsize=256)
def scala_object(jvm: Any, name: str) -> Any:
    """A singleton of Scala's."""
    return getattr(java_class(jvm, f"{name}$"), "MODULE$")


def sequence(jvm: Any, elements: Iterable[Any]) -> Any:
    """A sequence of Scala's."""
    made = java_class(jvm, "java.util.ArrayList")()
    for element in elements:
        made.add(element)
    return java_class(jvm, "org.apache.spark.api.python.PythonUtils").toSeq(made)


def array(context: SparkContext, name: str, elements: Sequence[Any]) -> Any:
    """An array of the JVM's, of a class."""
    gateway: Any = context._gateway
    made = gateway.new_array(java_class(context._jvm, name), len(elements))
    for index, element in enumerate(elements):
        made[index] = element
    return made


def longs(context: SparkContext, count: int) -> Any:
    """An array of so many zeros."""
    gateway: Any = context._gateway
    return gateway.new_array(jvm_of(context).long, count)


def java_error(error: BaseException) -> Any | None:
    """The JVM's own error behind one of Python's."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def master_of(builder: SparkSession.Builder) -> str:
    """Where a session that is yet to be made will run, if its builder was told."""
    return str(getattr(builder, "_options", {}).get("spark.master", ""))


def process_id(owner: SparkContext | SparkSession) -> int:
    """The number of the JVM's process."""
    return int(java_class(jvm_of(owner), "java.lang.ProcessHandle").current().pid())
