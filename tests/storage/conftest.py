"""What tests of storage need."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def hdfs_parts(require: Callable[[str, str], None]) -> None:
    """All that a real HDFS and its client need."""
    require("hdfs_native", "pip install 'holdfast[hdfs]'")
    require("pyspark", "./run setup")
    require("java", "./run setup")
    require("mvn", "install Maven: Hadoop's jars come through it")
