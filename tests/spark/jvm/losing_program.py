"""Jobs that fail on two executors, in every way there is. Run as a script, in a session of its own.

A line of JSON per job: which it was, what the driver makes of it, and the error of ours if a task raised one.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.errors import CorruptionError, ProcessingError, StateLostError
from holdfast.spark.cluster.executors import send_holdfast
from holdfast.spark.jvm.losses import job_failed, was_cancelled
from holdfast.spark.jvm.placed import answers

LONG_S = 5.0  # tasks of a job that was ended go on, and keep their slots


def parent(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid")))


def end_executor(number: int) -> bytes:
    """A worker's parent is the daemon, and that of the daemon the executor."""
    os.kill(parent(os.getppid()), signal.SIGKILL)
    time.sleep(LONG_S)
    return b""


def end_worker(number: int) -> bytes:
    os._exit(3)


def wait(number: int) -> bytes:
    time.sleep(LONG_S)
    return b""


def lose_state(number: int) -> bytes:
    raise StateLostError("run 7-1 is not here", hint="go back")


def find_bad_file(number: int) -> bytes:
    raise CorruptionError("local run 7-1: it is short", on_disk=True)


def find_bad_object(number: int) -> bytes:
    raise CorruptionError("run 7-1 is missing")


def fail(number: int) -> bytes:
    try:
        raise ValueError("ExecutorLostFailure, said the row: Connection reset")
    except ValueError as error:
        raise ProcessingError("P.process raised ValueError: ExecutorLostFailure") from error


def divide(number: int) -> bytes:
    return bytes(1 // 0)


def main() -> None:
    builder = SparkSession.builder.master("local-cluster[2,1,512]")
    builder = builder.config("spark.executor.memory", "512m").config("spark.ui.enabled", "false")
    spark = builder.config("spark.task.maxFailures", "1").getOrCreate()
    context = spark.sparkContext
    context.setLogLevel("OFF")
    send_holdfast(context)
    numbers = spark.range(0, 2, 1, 2)

    def say(what: str, task: Callable[[int], bytes]) -> None:
        try:
            answers(numbers, task)
        except Exception as error:
            failed = job_failed(error)
            raised = failed.raised
            said = {
                "job": what,
                "passing": None if failed.passing is None else failed.passing.name,
                "cancelled": was_cancelled(error),
                "raised": None if raised is None else [type(raised).__name__, raised.message],
                "words": str(failed).splitlines()[0],
            }
            print(json.dumps(said))

    for task in (lose_state, find_bad_file, find_bad_object, fail, divide, end_worker):
        say(task.__name__, task)
    ends: Iterator[tuple[str, Callable[[], None]]] = iter(
        [
            ("its tag", lambda: context.cancelJobsWithTag("ours")),
            ("its group", lambda: context.cancelJobGroup("ours")),
            ("all", context.cancelAllJobs),
        ]
    )
    context.addJobTag("ours")
    context.setJobGroup("ours", "jobs that are ended")
    for name, end in ends:
        over = threading.Event()

        def keep_ending(end: Callable[[], None] = end, over: threading.Event = over) -> None:
            while not over.wait(0.2):
                end()

        threading.Thread(target=keep_ending, daemon=True).start()
        say(f"ended by {name}", wait)
        over.set()
    say(end_executor.__name__, end_executor)
    spark.stop()


if __name__ == "__main__":
    main()
