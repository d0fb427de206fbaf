"""A streaming DataFrame that stands for an operator's results while a program is written."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from holdfast.spark.types import spark_schema

__all__ = ["stand_in"]


def stand_in(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    """A stream with these columns; it is never started.

    Steps behind an operator are tried on it where they are written, so that a wrong column is an
    error there. Being a stream, it also lets Spark's stateful operators be found and refused.
    """
    fields = spark_schema(schema).fields
    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in fields]
    return spark.readStream.format("rate").load().select(*columns)
