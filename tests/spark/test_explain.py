"""Spark's report of a failed query, in words for the pipeline's user."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import holdfast as hf
from holdfast.spark.explain import failure_of
from holdfast.tasks.failing import TaskFailedError, encode_errors

AGAIN = "start it again: it continues after the last checkpoint"


@pytest.fixture(autouse=True)
def _nothing_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have had Spark tell of errors, in a file that hints name.

    Nor does it matter here whether they have started Spark.
    """
    monkeypatch.setattr("holdfast.spark.explain.told_elsewhere", lambda: None)
    monkeypatch.setattr("holdfast.spark.explain.spark_has_stopped", lambda: False)


class Fails(hf.KeyedProcess):
    """Fails as it is told."""

    output = "k string"
    seen = hf.ValueState("long")

    def __init__(self, act: Callable[[Fails, Any], object]) -> None:
        self.act = act

    def process(self, key: Any, rows: Any, ctx: Any) -> Any:
        self.act(self, ctx)


def reported(act: Callable[[Fails, Any], object]) -> Exception:
    """What Spark makes of the error of a task: its traceback between words of Spark's own."""
    tester = hf.testing.ProcessorTester(Fails(act), columns="k string", keys="k")
    try:
        with encode_errors():
            tester.process([("a",)])
    except TaskFailedError as error:
        text = "".join(traceback.format_exception(error))
    return RuntimeError(
        f"[STREAM_FAILED] Query [id = 1] terminated: Job aborted:\n\n{text}\n SQLSTATE: XXKST\n"
        "=== Streaming Query ===\nIdentifier: 1"
    )


def divide(process: Fails, ctx: Any) -> object:
    return 1 / 0


def aside(process: Fails, ctx: Any) -> None:
    ctx.side_output("nowhere", ("a",))


def quoting(process: Fails, ctx: Any) -> None:
    try:
        aside(process, ctx)
    except hf.InputError as error:
        raise ValueError("it quotes another") from error


@pytest.mark.parametrize(
    ("act", "cause", "hint"),
    [
        (
            divide,
            "Fails.process raised ZeroDivisionError for key (k='a') in epoch 0",
            "mend the code",
        ),
        (
            aside,
            "Fails.process, for key (k='a') in epoch 0: there is no side",
            "declare it: side_outputs",
        ),
        (quoting, "Fails.process raised ValueError for key (k='a') in epoch 0", "mend the code"),
    ],
)
def test_what_is_said_of_a_processs_error(act: Any, cause: str, hint: str) -> None:
    failed = failure_of(reported(act), "orders", 4)
    assert failed.message.startswith(f"pipeline 'orders' failed after epoch 4: {cause}")
    assert f"in {act.__name__}" in failed.message, "the user's own traceback"
    assert failed.hint is not None
    assert hint in failed.hint
    assert failed.hint.endswith("it continues after the last checkpoint")
    assert failed.hint.count("it continues") == 1
    assert "SQLSTATE" not in str(failed)


def test_a_failure_before_the_first_epoch_names_none() -> None:
    failed = failure_of(RuntimeError("no such topic\n\tat org.apache"), "orders", -1)
    assert failed.message == (
        "pipeline 'orders' failed before its first epoch was done: no such topic"
    )
    assert failed.hint == f"mend the cause and {AGAIN}"


def test_of_an_error_in_the_jvm_it_is_said_what_the_jvm_said() -> None:
    report = """[FOREACH_BATCH_USER_FUNCTION_ERROR] …
Traceback (most recent call last):
  File "running.py", line 1, in _on_batch
py4j.protocol.Py4JJavaError: An error occurred while calling o7.count.
: org.apache.spark.SparkException: [FAILED_READ_FILE] Encountered error while reading file in/x.parquet.
\tat org.apache.spark.sql.errors
Caused by: java.util.concurrent.ExecutionException: other
\tat java.base
\t... 34 more
Caused by: java.lang.RuntimeException: in/x.parquet is not a Parquet file
\t... 34 more
=== Streaming Query ===
Caused by: nothing of it
"""
    failed = failure_of(RuntimeError(report), "orders", 4)
    assert failed.message == (
        "pipeline 'orders' failed after epoch 4: org.apache.spark.SparkException: [FAILED_READ_FILE] "
        "Encountered error while reading file in/x.parquet, because of java.lang.RuntimeException: "
        "in/x.parquet is not a Parquet file"
    )


def test_of_an_error_in_a_users_function_the_error_itself_is_said() -> None:
    report = """[STREAM_FAILED] …
Traceback (most recent call last):
  File "running.py", line 1, in _on_batch
pyspark.errors.exceptions.captured.PythonException:{rest}
Traceback (most recent call last):
  File "program.py", line 3, in check
ValueError: this word is bad
"""
    newer = " [UDF_ERROR] An exception was thrown from the Python worker:"
    for rest in (newer, "\n  An exception was thrown from the Python worker. Please see below."):
        failed = failure_of(RuntimeError(report.format(rest=rest)), "orders", 4)
        assert failed.message.endswith("after epoch 4: ValueError: this word is bad")


def test_spark_that_was_stopped_below_a_pipeline_is_the_cause_whatever_broke_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.spark.explain.spark_has_stopped", lambda: True)
    failed = failure_of(
        PySparkException("Cannot invoke cleanupQueryJobs because dagScheduler() is null"),
        "orders",
        4,
    )
    assert failed.message == (
        "pipeline 'orders' failed after epoch 4: Spark was stopped below it, so there may be no last "
        "checkpoint (it met: Cannot invoke cleanupQueryJobs because dagScheduler() is null)"
    )
    assert failed.hint == f"stop a pipeline before spark.stop(); then {AGAIN}"
    # Who stops Spark because of an error still wants to know of that.
    assert "ours" in failure_of(RuntimeError("ours"), "orders", 4).message
    failed = failure_of(reported(divide), "orders", 4)
    assert "Fails.process raised ZeroDivisionError" in failed.message


STOPPED = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import holdfast as hf

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = hf.configure(builder.config("spark.ui.showConsoleProgress", "false")).getOrCreate()
source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
counts = hf.stream(source).key_by("value").aggregate(n=hf.count())
folder = Path(sys.argv[1])
query = counts.write_to(hf.sinks.noop()).start("below", folder / "ck", local_dir=folder / "local")
while len(query.progress) < 2:
    query.await_termination(0.01)
spark.stop()
query.await_termination()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("quick_java")
def test_a_session_that_is_stopped_below_a_pipeline(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, str(tmp_path)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("holdfast.errors.ProcessingError: pipeline 'below' failed after epoch")
    assert "Spark was stopped below it" in last
    assert "stop a pipeline before spark.stop(); then start it again" in last
