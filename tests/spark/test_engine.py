"""How Spark's answers become those of an engine; Spark is stood in for, which can't be made to give them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from holdfast.driver.engine import StreamError
from holdfast.spark.engine import SparkEngine, SparkStream

STOPPED = Py4JError("Cannot call methods on a stopped SparkContext.")


def engine(**context: Any) -> SparkEngine:
    made = object.__new__(SparkEngine)
    made.spark = cast(Any, SimpleNamespace(sparkContext=SimpleNamespace(**context)))
    return made


@pytest.mark.parametrize("error", [STOPPED, PySparkException("[CANNOT_STOP]")])
@pytest.mark.parametrize("asked", ["stop", "process_all"])
def test_a_query_below_which_spark_was_stopped_answers_as_a_stream_does(
    asked: str, error: Exception
) -> None:
    def gone() -> None:
        raise error

    query: Any = SimpleNamespace(stop=gone, processAllAvailable=gone)
    with pytest.raises(StreamError) as raised:
        getattr(SparkStream(query), asked)()
    assert raised.value.__cause__ is error


def test_a_failure_of_the_stream_is_told_by_what_spark_said() -> None:
    said = engine().failure_of(RuntimeError("division by zero"), "p", 3)
    error = StreamError("the stream has ended")
    error.__cause__ = RuntimeError("division by zero")
    again = engine().failure_of(error, "p", 3)
    assert str(again) == str(said)
    assert "pipeline 'p' failed after epoch 3: division by zero" in str(said)


def test_an_epoch_is_cancelled_as_a_job_of_its_querys_group() -> None:
    cancelled: list[str] = []
    query: Any = SimpleNamespace(runId="run")
    engine(cancelJobGroup=cancelled.append).cancel_epoch(SparkStream(query))
    assert cancelled == ["run"]
