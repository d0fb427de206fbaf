"""Spark's Python daemon, with Holdfast imported before it forks workers.

A fresh worker spends three seconds of CPU importing (two of them on pandas, which Spark imports when
a task puts out its first rows), just when a host has to take over from another.
:func:`holdfast.configure` names this module as ``spark.python.daemon.module``; Spark runs it as
``python -m holdfast.spark.jvm.daemon pyspark.worker``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from pyspark import daemon

__all__ = ["PRELOADED", "preload", "quietly"]

PRELOADED = (
    "pyspark.worker",
    "holdfast.tasks.task",
    "holdfast.tasks.disk",
    "holdfast.driver.background",
)
"""What tasks import."""
_IF_THERE = ("pandas", "hdfs_native", "obstore")


def preload() -> None:
    """Import what tasks need. Spark reads this process's standard output: nothing may be said there.

    >>> preload()
    """
    with contextlib.redirect_stdout(sys.stderr):
        for name in (*PRELOADED, *filter(find_spec, _IF_THERE)):
            importlib.import_module(name)


def quietly(work: Callable[[Any, bool], int]) -> Callable[[Any, bool], int]:
    """A worker that ends without a word if nobody listens to it any more.

    Spark closes the connection to a worker whose task is killed, as when a query stops. The worker
    finds out when it writes, and would print a traceback for each.
    """

    def worker(connection: Any, authenticated: bool) -> int:
        try:
            return work(connection, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return worker


if __name__ == "__main__":
    preload()
    daemon.worker = quietly(daemon.worker)  # type: ignore[assignment]
    # A worker looks for garbage after every task: some 0.1 s, if among all that was imported.
    gc.freeze()
    daemon.manager()
