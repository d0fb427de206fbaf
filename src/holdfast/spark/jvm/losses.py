"""What Spark says of a job that failed: whether it was ended, and whether something was lost on the way.

Of a job that was ended Spark says so by a condition and its parameters. Of a lost executor, of rows that went
with it and of a dead worker it says so in words only: what a driver gets is the text of the last failure.
Nowhere else are Spark's words taken for what they mean.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JError

from holdfast.driver.engine import JobFailedError, PassingFailure, passing_failure_of
from holdfast.spark.jvm.gateway import java_error
from holdfast.spark.jvm.probing import Capability
from holdfast.tasks.failing import read_error

__all__ = ["LOSSES", "host_is_lost", "job_failed", "was_cancelled"]

LOSSES = Capability(
    "what became of a job that failed",
    {"org.apache.spark.SparkThrowable": ["getCondition/0", "getMessageParameters/0"]},
)

_CANCELLED = "SPARK_JOB_CANCELLED"
# The reason that Spark gives when all jobs are ended, as PySpark does when Ctrl-C is pressed.
_ALL_JOBS = "as part of cancellation of all jobs"
_WORDS = {
    PassingFailure.EXECUTOR_LOST: r"ExecutorLost|worker lost|executor \S+ exited"
    r"|Remote RPC client disassociated|heartbeat timed out",
    PassingFailure.ROWS_LOST: r"FetchFailed|Missing an output location|cannot rollback",
    PassingFailure.WORKER_DIED: r"Python worker exited unexpectedly",
    PassingFailure.CANCELLED: r"was cancelled because|cancelled part of",
    PassingFailure.CONNECTION_LOST: r"Failed to connect|Connection reset",
}
"""The first of them that is said counts: a lost executor breaks connections too."""
_SAID = {passing: re.compile(words, re.IGNORECASE) for passing, words in _WORDS.items()}


def job_failed(error: Exception) -> JobFailedError:
    """What an engine says of Spark's error for a job."""
    raised = read_error(str(error))
    passing = passing_failure_of(raised) if raised is not None else _passing(error)
    return JobFailedError(error, passing, raised)


def was_cancelled(error: BaseException) -> bool:
    """Whether somebody had a job of Spark's ended."""
    return _why_cancelled(error) is not None


def host_is_lost(why: str) -> bool:
    """Whether the worker went, or fell silent, and not just its executor.

    >>> host_is_lost("worker lost: h3:38683 got disassociated")
    True
    >>> host_is_lost("Command exited with code 137")
    False
    """
    words = why.lower()
    return ("worker" in words and "lost" in words) or "timed out" in words


def _passing(error: Exception) -> PassingFailure | None:
    why = _why_cancelled(error)
    if why is not None:
        return None if why.startswith(_ALL_JOBS) else PassingFailure.CANCELLED
    text = str(error)
    return next((passing for passing, said in _SAID.items() if said.search(text)), None)


def _why_cancelled(error: BaseException) -> str | None:
    """For which reason a job was ended; None if it wasn't."""
    thrown = java_error(error)
    while thrown is not None:
        try:
            if thrown.getCondition() == _CANCELLED:
                return str(thrown.getMessageParameters().get("reason"))
        except Py4JError:
            # It is no error of Spark's, or the JVM is gone.
            pass
        try:
            thrown = thrown.getCause()
        except Py4JError:
            return None
    return None
