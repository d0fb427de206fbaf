"""What a user sees of Spark: one message where something of his own fails, nothing at a stop."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.driver.checkpoint_thread import CheckpointThread
from holdfast.driver.epoch_calls import EpochCalls
from holdfast.driver.running import RunningPipeline
from holdfast.spark.jvm.daemon import quietly
from holdfast.spark.jvm.quiet import _not_of_ours

PROGRAM = """
import logging, sys
from pathlib import Path
from pyspark.sql import SparkSession
import holdfast as hf

def mark(what):
    print(f"#### {what}", file=sys.stderr, flush=True)

class Picky(hf.KeyedProcess):
    output = "k long"
    def process(self, key, rows, ctx):
        if key.k == 3:
            raise ValueError("it's a three")
        yield (key.k,)

def start(name, rows, sink=hf.sinks.noop(), step="true"):
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
    keyed = hf.stream(source.selectExpr("value AS k")).key_by("k").process(Picky()).filter(step)
    folder = Path(sys.argv[1], name)
    return keyed.write_to(sink).start(name, folder / "ck", local_dir=folder / "local")

def ask(what):
    try:
        spark.range(1).selectExpr(what).collect()
    except Exception:
        pass

def look(table, epoch, maybe_repeated):
    ask("CAST('theirs' AS bigint)")

logging.basicConfig(level="WARNING")
debug = logging.FileHandler(Path(sys.argv[1], "debug"))
debug.setLevel("DEBUG")
logging.getLogger("holdfast").addHandler(debug)
logging.getLogger("holdfast.spark").setLevel("DEBUG")
logging.getLogger().handlers[0].setLevel("WARNING")
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = hf.configure(builder.config("spark.ui.showConsoleProgress", "false")).getOrCreate()
mark("stop")
query = start("fine", 1)
while len(query.progress) < 2:
    query.await_termination(0.01)
query.stop()
mark("quick")
for n in range(3):
    start(f"quick{n}", 1).stop()
mark("theirs")
ask("raise_error('not of Holdfast')")
mark("function")
query = start("looks", 1, hf.sinks.foreach_batch(look))
while len(query.progress) < 2:
    query.await_termination(0.01)
query.stop()
mark("unplanned")
try:
    start("unplanned", 1, step="k = 'ours'").await_termination()
except hf.HoldfastError:
    pass
mark("ended")
Path(sys.argv[1], "in").mkdir()
Path(sys.argv[1], "in", "1.json").write_text('{"k": 1, "at": "2026-01-01 12:00:00"}')
rows = spark.readStream.schema("k long, at timestamp").json(str(Path(sys.argv[1], "in")))
windows = hf.stream(rows).with_watermark("at", "1 s").window(hf.tumbling("1 s"))
try:
    windows.apply(lambda table: 1 / 0, "k long").write_to(hf.sinks.noop()).start(
        "ended", Path(sys.argv[1], "ended"), trigger="available-now", end_of_input=True
    ).await_termination()
except hf.HoldfastError:
    pass
mark("error")
start("picky", 5).await_termination()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("quick_java")
def test_a_stop_is_silent_and_an_error_of_user_code_is_one_message(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 1, done.stderr
    parts = re.split(r"^#### \w+\n", done.stderr, flags=re.MULTILINE)
    _, stop, quick, theirs, function, unplanned, ended, error = parts
    assert "\tat " not in stop
    assert "Traceback" not in stop
    assert len(stop.splitlines()) < 5, stop
    # Before the first epoch, too.
    assert quick == ""
    assert "not of Holdfast" in theirs
    assert "at org.apache.spark" in theirs
    # A function of the user's that asks Spark, though Holdfast calls it.
    assert '"logger": "SQLQueryContextLogger"' in function
    # In planning an epoch PySpark would tell of it in one line with the JVM's whole stack.
    assert "at org.apache.spark" not in unplanned
    assert unplanned.count("The value 'ours' of the type") == 1
    assert len(unplanned.splitlines()) < 5, unplanned
    debug = Path(tmp_path, "debug").read_text(encoding="utf-8")
    assert "Spark refuses: [CAST_INVALID_INPUT] The value 'ours'" in debug
    assert "Spark refuses: [CAST_INVALID_INPUT] The value 'theirs'" not in debug
    # Spark doesn't call for the last epoch, in which the window closes.
    assert "at org.apache.spark" not in ended
    assert "Task 0 in stage" not in ended
    assert "dataloss" not in ended
    assert ended.count("raised ZeroDivisionError in epoch 1") == 1
    assert "at org.apache.spark" not in error
    # Once by Holdfast's logger, once because the program doesn't catch it; each with the user's lines.
    assert error.count("Picky.process raised ValueError for key (k=3)") == 2
    assert len(error.splitlines()) < 25, error
    file = re.search(r"what Spark said is in (\S+)", error)
    assert file is not None
    assert "at org.apache.spark" in Path(file[1]).read_text(encoding="utf-8")
    assert Path(file[1]).stat().st_mode & 0o077 == 0


@pytest.mark.spark
def test_what_we_refuse_in_words_is_not_told_by_pyspark_too(spark: SparkSession) -> None:
    told: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    rows = hf.stream(spark.readStream.format("rate").load())
    ear, names = Ear(), ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
    loggers = [PySparkLogger.getLogger(name) for name in names]
    asked: list[Callable[[], object]] = [
        lambda: rows.key_by("wrod").aggregate(n=hf.count()),
        lambda: rows.key_by("value").aggregate(n=hf.sum("wrod")),
        lambda: hf.sql("SELECT wrod FROM rows", rows=rows),
        lambda: hf.sql("SELECT value + CAST('x' AS DATE) AS x FROM rows", rows=rows),
    ]
    for logger in loggers:
        logger.addHandler(ear)
    try:
        for ask in asked:
            with pytest.raises(hf.InputError):
                ask()
        assert told == []
        with pytest.raises(AnalysisException):
            spark.range(1).select("theirs")
        assert len(told) == 1
    finally:
        for logger in loggers:
            logger.removeHandler(ear)


def test_a_worker_whose_connection_was_closed_ends_without_a_word() -> None:
    here, there = socket.socketpair()
    there.close()

    def flush(connection: socket.socket, authenticated: bool) -> int:
        while True:
            connection.send(b"rows" * 1000)

    def fail(connection: socket.socket, authenticated: bool) -> int:
        raise OSError("no space left on device")

    assert quietly(flush)(here, True) == 1
    with pytest.raises(OSError, match="no space"):
        quietly(fail)(here, True)
    here.close()


def test_py4j_tells_of_errors_that_are_not_of_an_epoch() -> None:
    def record(error: BaseException | None) -> logging.LogRecord:
        told = (type(error), error, error.__traceback__) if error else None
        return logging.LogRecord("py4j.clientserver", 40, "", 0, "a proxy failed", (), told)

    def raised(module: str) -> BaseException:
        try:
            exec("raise ValueError", {"__name__": module})
        except ValueError as error:
            return error
        raise AssertionError

    assert _not_of_ours(record(None))
    assert _not_of_ours(record(raised("their.code")))
    for ours in (EpochCalls, CheckpointThread, RunningPipeline):
        assert not _not_of_ours(record(raised(ours.__module__))), ours
