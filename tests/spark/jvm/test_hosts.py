"""Whether tasks run on hosts of a cluster."""

from __future__ import annotations

from pyspark.sql import SparkSession

from holdfast.spark.jvm.hosts import is_cluster


def test_a_local_session_is_no_cluster(spark: SparkSession) -> None:
    assert not is_cluster(spark.sparkContext)
