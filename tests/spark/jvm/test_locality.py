"""Tasks wait for their hosts while pipelines run, and no longer."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.spark.jvm.locality import SETTING, waiting_for_hosts


def test_the_wait_for_hosts_lasts_as_long_as_the_last_who_needs_it(spark: SparkSession) -> None:
    conf: Any = spark.sparkContext._jsc.sc().conf()
    conf.set(SETTING, "7s")
    try:
        with waiting_for_hosts(spark.sparkContext):
            with pytest.raises(ZeroDivisionError), waiting_for_hosts(spark.sparkContext):
                raise ZeroDivisionError
            assert conf.get(SETTING) == "600s"
        assert conf.get(SETTING) == "7s"
    finally:
        conf.remove(SETTING)
