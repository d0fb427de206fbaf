"""Whether tasks run on hosts of a cluster."""

from __future__ import annotations

from holdfast.spark.jvm.hosts import is_cluster
from pyspark.sql import SparkSession


def test_a_local_session_is_no_cluster(spark: SparkSession) -> None:
    assert not is_cluster(spark.sparkContext)
