"""What Spark's words say of a failure: whether trying again may help, and whether a host is gone."""

from __future__ import annotations

import re

__all__ = ["host_is_lost", "was_cancelled", "why_fleeting"]

_FLEETING = re.compile(
    r"ExecutorLost|FetchFailed|worker lost|executor \S+ exited|Python worker exited unexpectedly"
    r"|cannot rollback|Failed to connect|Connection reset|StateLostError"
    r"|CorruptionError: local run|was cancelled because|cancelled part of|Remote RPC client disassociated"
    r"|Missing an output location|heartbeat timed out",
    re.IGNORECASE,
)


def why_fleeting(error: Exception) -> str | None:
    """The words that speak of a failure which another attempt may not meet; None if there are none.

    >>> why_fleeting(RuntimeError("Job aborted: ExecutorLostFailure (executor 2 exited …)"))
    'ExecutorLost'
    >>> why_fleeting(RuntimeError("ProcessingError: division by zero"))
    """
    found = _FLEETING.search(str(error))
    return found.group(0) if found else None


def host_is_lost(why: str) -> bool:
    """Whether the worker went, or fell silent, and not just its executor.

    >>> host_is_lost("worker lost: h3:38683 got disassociated")
    True
    >>> host_is_lost("Command exited with code 137")
    False
    """
    words = why.lower()
    return ("worker" in words and "lost" in words) or "timed out" in words


def was_cancelled(error: Exception) -> bool:
    """Whether somebody had a job of Spark's ended: PySpark does so with all when Ctrl-C is pressed.

    >>> was_cancelled(RuntimeError("[SPARK_JOB_CANCELLED] Job 7 cancelled as part of cancellation of all jobs"))
    True
    """
    return "SPARK_JOB_CANCELLED" in str(error)
