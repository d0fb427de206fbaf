"""What a user sees of Spark: one message where something of his own fails, nothing at a stop."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.spark.daemon import quietly
from holdfast.spark.quiet import _not_of_ours

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

def start(name, rows):
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
    keyed = hf.stream(source.selectExpr("value AS k")).key_by("k").process(Picky())
    folder = Path(sys.argv[1], name)
    return keyed.write_to(hf.sinks.noop()).start(name, folder / "ck", local_dir=folder / "local")

logging.basicConfig(level="WARNING")
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = hf.configure(builder.config("spark.ui.showConsoleProgress", "false")).getOrCreate()
mark("stop")
query = start("fine", 1)
while len(query.progress) < 2:
    query.await_termination(0.01)
query.stop()
mark("theirs")
try:
    spark.range(1).selectExpr("raise_error('not of Holdfast')").collect()
except Exception:
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
    _, stop, theirs, error = parts
    assert "\tat " not in stop
    assert "Traceback" not in stop
    assert len(stop.splitlines()) < 5, stop
    assert "not of Holdfast" in theirs
    assert "at org.apache.spark" in theirs
    assert "at org.apache.spark" not in error
    # Once by Holdfast's logger, once because the program doesn't catch it; each with the user's lines.
    assert error.count("Picky.process raised ValueError for key (k=3)") == 2
    assert len(error.splitlines()) < 25, error
    file = re.search(r"what Spark said is in (\S+)", error)
    assert file is not None
    assert "at org.apache.spark" in Path(file[1]).read_text(encoding="utf-8")
    assert Path(file[1]).stat().st_mode & 0o077 == 0


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
    assert not _not_of_ours(record(raised("holdfast.spark.running")))
