"""Two drivers on one directory: the first stops for good, in a way a supervisor understands."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.errors import FencedError
from tests.spark.support import assert_equals_batch, more_input, run_program, start_program

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("quick_java")]


def test_a_second_driver_fences_the_first(spark: SparkSession, tmp_path: Path) -> None:
    more_input(tmp_path, epochs=6, rows=300, keys=40)
    first = start_program(tmp_path, trigger=0.1, checkpoint_interval=0.2)
    assert first.stdout is not None
    assert any(line.startswith("STARTED") for line in iter(first.stdout.readline, ""))
    code, output = run_program(tmp_path)
    assert code == 0, output
    rest, _ = first.communicate(timeout=120)
    assert first.returncode == FencedError.EXIT_CODE, rest
    assert "fenced by" in rest
    assert_equals_batch(spark, tmp_path)
