"""Frames that PySpark has no way to make: without rows, in other sessions, of RDDs, by functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from holdfast.spark.jvm.gateway import java_class, java_session, jvm_of
from holdfast.spark.jvm.probing import Capability, has
from holdfast.spark.jvm.trees import analyzed

__all__ = [
    "ARROW",
    "FRAMES",
    "ArrowFunction",
    "cloned",
    "empty",
    "empty_like",
    "frame_like",
    "frame_of",
    "in_session",
    "java_schema",
    "map_in_arrow",
    "schema_of",
    "without_rows",
]

FRAMES = Capability(
    "frames of RDDs, in sessions of their own",
    {
        "org.apache.spark.sql.classic.SparkSession": [
            *(
                "cloneSession/0",
                "createDataFrame/2",
                "internalCreateDataFrame/3",
                "parseDataType/1",
            ),
        ],
        "org.apache.spark.sql.classic.Dataset": ["ofRows/2", "schema/0", "sparkSession/0"],
        "org.apache.spark.api.java.JavaSparkContext": ["parallelize/2", "sc/0"],
        "org.apache.spark.api.python.PythonUtils": ["toSeq/1"],
    },
)
ARROW = Capability(
    "functions on Arrow batches without a look-up per column",
    {"org.apache.spark.sql.classic.Dataset": ["mapInArrow/3"]},
    slower="their columns are looked up one by one in every epoch",
    python=(
        "pyspark.sql.pandas.functions:pandas_udf",
        "pyspark.util:PythonEvalType",
    ),
)

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def frame_of(session: SparkSession, rdd: Any, schema: Any) -> DataFrame:
    """A frame of the rows of an RDD, with a schema of the JVM's."""
    made = java_session(session).internalCreateDataFrame(rdd, schema, False)
    return DataFrame(made, session)


def frame_like(frame: DataFrame, rdd: Any) -> DataFrame:
    """A frame of the rows of an RDD, with the columns of another."""
    return frame_of(frame.sparkSession, rdd, frame._jdf.schema())


def schema_of(frame: DataFrame) -> Any:
    """A frame's schema as one of the JVM's."""
    return frame._jdf.schema()


def java_schema(session: SparkSession, schema: StructType) -> Any:
    """A schema as one of the JVM's."""
    return java_session(session).parseDataType(schema.json())


def empty(session: SparkSession, schema: StructType) -> DataFrame:
    """A frame of a schema: to Spark it is a relation without rows."""
    return _empty(session, java_schema(session, schema))


def empty_like(frame: DataFrame) -> DataFrame:
    """The same with the columns of another frame, which may be a stream."""
    return _empty(frame.sparkSession, frame._jdf.schema())


def _empty(session: SparkSession, schema: Any) -> DataFrame:
    rows = java_class(jvm_of(session), "java.util.ArrayList")()
    return DataFrame(java_session(session).createDataFrame(rows, schema), session)


def without_rows(source: DataFrame, partitions: int = 0) -> DataFrame:
    """A frame with the columns of another, no rows, and an RDD for its plan."""
    context: Any = source.sparkSession.sparkContext
    rows = java_class(context._jvm, "java.util.ArrayList")()
    return frame_like(source, context._jsc.parallelize(rows, partitions).rdd())


def cloned(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session with what another has, and these settings besides."""
    clone = SparkSession(session.sparkContext, java_session(session).cloneSession())
    for name, value in settings.items():
        clone.conf.set(name, value)
    return clone


def in_session(session: SparkSession, frame: DataFrame) -> DataFrame:
    """The same frame, planned and run in another session."""
    dataset = java_class(jvm_of(session), "org.apache.spark.sql.classic.Dataset")
    return DataFrame(dataset.ofRows(java_session(session), analyzed(frame)), session)


def map_in_arrow(
    frame: DataFrame, columns: Sequence[Column], task: ArrowFunction, schema: StructType
) -> DataFrame:
    """``frame.mapInArrow(task)`` without a look-up in the JVM per column, and for any names."""
    if not has(ARROW):
        return _mapped(frame.select(*columns), task, schema)
    from pyspark.sql.pandas.functions import pandas_udf
    from pyspark.util import PythonEvalType

    make_udf: Any = pandas_udf  # its declared types leave out this kind, as PySpark notes itself
    function = make_udf(task, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    made = frame._jdf.mapInArrow(function(*columns)._jc, False, None)
    return DataFrame(made, frame.sparkSession)


def _mapped(frame: DataFrame, task: ArrowFunction, schema: StructType) -> DataFrame:
    # PySpark takes a dot in a name for a field of a struct: meanwhile columns have other names.
    names = frame.columns

    def renamed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task(batch.rename_columns(names) for batch in batches)

    return frame.toDF(*(f"c{place}" for place in range(len(names)))).mapInArrow(renamed, schema)
