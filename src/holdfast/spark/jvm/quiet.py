"""Spark's stack traces of Holdfast's own queries go to a file, not to the console.

When user code raises, Spark tells of it four times, in hundreds of lines: the executor, the scheduler
twice, and the query. Holdfast says the same in one message that names this file. What other queries
and jobs have to say stays where it was, and so do all appenders of the user's that aren't consoles.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from traceback import walk_stack
from types import TracebackType
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.spark.jvm.gateway import array, java_class, jvm_of
from holdfast.spark.jvm.probing import Capability, why_off

__all__ = ["QUIET", "mark_jobs", "marked_epoch", "marked_start", "told_by_us", "told_elsewhere"]

_LOG4J = "org.apache.logging.log4j"
QUIET = Capability(
    "Spark's stack traces in a file",
    {
        f"{_LOG4J}.core.LoggerContext": ["getConfiguration/0", "updateLoggers/0"],
        f"{_LOG4J}.core.config.Configuration": ["getAppenders/0", "getRootLogger/0"],
        f"{_LOG4J}.core.filter.RegexFilter": ["createFilter/5"],
        f"{_LOG4J}.core.filter.ThreadContextMapFilter": ["createFilter/4"],
        f"{_LOG4J}.core.filter.CompositeFilter": ["createFilters/1"],
        f"{_LOG4J}.core.appender.FileAppender": ["newBuilder/0"],
        f"{_LOG4J}.core.layout.PatternLayout": ["newBuilder/0"],
    },
    slower="Spark tells of an error in hundreds of lines on the console",
)

logger = logging.getLogger("holdfast.spark")

# Where a thread of a running pipeline comes from: that of epochs, that of checkpoints, and that which waits
# for the end and runs the last epochs.
_RUNNING = {
    "holdfast.driver.checkpoint_thread",
    "holdfast.driver.epoch_calls",
    "holdfast.driver.running",
}
_MARK = "mdc.holdfast"
_PATTERN = "%d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex"
_QUERY, _RUN = "sql.streaming.queryId", "spark.jobGroup.id"
# PySpark tells by these, with a stack of the JVM's, of an error that it turns into one of Python's.
_CONTEXTS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
# Modules that may stand between such an error and who asked.
_BETWEEN = ("collections", "contextlib", "functools", "logging", "py4j", "pyspark")
_asking: ContextVar[bool] = ContextVar("holdfast_asking", default=False)
# How long a query's id is in front of what the scheduler says of its tasks.
_SHORT = 5


def mark_jobs(context: SparkContext) -> None:
    """Have executors know the tasks of this thread's jobs as Holdfast's, where they write logs."""
    context.setLocalProperty(_MARK, "yes")


@contextmanager
def marked_start(spark: SparkSession, name: str) -> Iterator[None]:
    """The same for the thread of the query of this name that starts in here, and all that it says itself.

    When a query stops, Spark interrupts that thread, and whatever it does just then complains: also
    before the first epoch, if the stop comes so soon.
    """
    context = spark.sparkContext
    _quieten(context)
    listener = _Starting(context, name)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)


class _Starting(StreamingQueryListener):
    """Spark calls for it in the thread of the query, before it lets whoever started that go on."""

    def __init__(self, context: SparkContext, name: str) -> None:
        self._context = context
        self._name = name

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - PySpark's names
        if event.name == self._name:
            _mark_epochs(self._context, str(event.id), str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass


def _mark_epochs(context: SparkContext, query: str, run: str) -> None:
    mark_jobs(context)
    java_class(jvm_of(context), f"{_LOG4J}.ThreadContext").put(_MARK, "yes")
    _quieten(context, query, run)


@contextmanager
def marked_epoch(context: SparkContext, query: StreamingQuery) -> Iterator[None]:
    """The same for an epoch that Spark doesn't call for: as one of this query's."""
    names = {_QUERY: str(query.id), _RUN: str(query.runId)}
    for name, value in names.items():
        context.setLocalProperty(name, value)
    _mark_epochs(context, *names.values())
    try:
        yield
    finally:
        # What follows in this thread may be functions of the user's, and their jobs are theirs.
        java_class(jvm_of(context), f"{_LOG4J}.ThreadContext").remove(_MARK)
        for name in (_MARK, *names):
            context.setLocalProperty(name, None)  # type: ignore[arg-type] # The JVM takes it away.


def _quieten(context: SparkContext, query: str | None = None, run: str | None = None) -> None:
    """Divert what Spark says of the failures of Holdfast's queries, by name and by these ids."""
    if why_off(QUIET, context) is not None:
        return
    with _lock:
        global _diverted
        # A context may come behind another, in the same JVM.
        if _diverted is None or _diverted.jvm is not jvm_of(context):
            _diverted = _Diverted(context)
        try:
            _diverted.add(query, run)
        except (Py4JError, AttributeError, TypeError) as error:
            # Somebody has put another logger into Spark: it is as loud as it was.
            logger.debug("Spark's log is left as it is: %s", error)


def told_elsewhere() -> Path | None:
    """The file with what Spark said, if it has said anything."""
    with _lock:
        return _diverted.file if _diverted is not None and _diverted.file.exists() else None


class _Diverted:
    """The filters and the file in one JVM."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self.jvm = jvm_of(context)
        name = f"holdfast-spark-{os.getpid()}-{secrets.token_hex(4)}.log"
        self.file = Path(tempfile.gettempdir()) / name
        self._ids: list[str] = []
        self._runs: list[str] = []
        self._filters: list[tuple[Any, Any]] = []
        self._appender: Any = None
        logging.getLogger("py4j.clientserver").addFilter(_not_of_ours)
        _listen()

    def add(self, query: str | None, run: str | None) -> None:
        """Divert what is said of one more query."""
        if query is not None:
            self._ids.append(re.escape(query[:_SHORT]))
        if run is not None:
            self._runs.append(re.escape(run))
        if self._appender is not None and query is None:
            return
        log = java_class(self.jvm, f"{_LOG4J}.LogManager").getContext(False)
        config = log.getConfiguration()
        for appender, old in self._filters:
            appender.removeFilter(old)
        consoles = [a for a in config.getAppenders().values() if _is_console(a)]
        self._filters = [(console, self._filter("DENY", "NEUTRAL")) for console in consoles]
        for console, made in self._filters:
            console.addFilter(made)
        root = config.getRootLogger()
        if self._appender is not None:
            root.removeAppender(self._appender.getName())
            self._appender.stop()
        self._appender = self._written_to_file(config)
        root.addAppender(self._appender, None, None)
        log.updateLoggers()

    def _filter(self, ours: str, others: str) -> Any:
        """A filter of log events: those of Holdfast's jobs and queries, and all others."""
        results = java_class(self.jvm, f"{_LOG4J}.core.Filter.Result")
        match, neutral = getattr(results, ours), results.NEUTRAL
        text = java_class(self.jvm, f"{_LOG4J}.core.filter.RegexFilter")
        by_text = text.createFilter(self._words(), None, False, match, neutral)
        name = f"{_LOG4J}.core.util.KeyValuePair"
        pairs = array(self._context, name, [java_class(self.jvm, name)(_MARK, "yes")])
        marked = java_class(self.jvm, f"{_LOG4J}.core.filter.ThreadContextMapFilter")
        by_mark = marked.createFilter(pairs, "and", match, getattr(results, others))
        both = array(self._context, f"{_LOG4J}.core.Filter", [by_text, by_mark])
        made = java_class(self.jvm, f"{_LOG4J}.core.filter.CompositeFilter").createFilters(both)
        made.start()
        return made

    def _words(self) -> str:
        """What messages look like that tell of these queries."""
        ids, runs = ("|".join(known) or "none" for known in (self._ids, self._runs))
        return (
            r"(?s)(?:Query holdfast-.*"
            rf"|.*\[queryId = (?:{ids})\].*"
            rf"|Failed to cancel job group (?:{runs})\..*"
            # A warning of lost data, for a source that only keeps time.
            r"|Activating the wrapper implementation of Trigger.AvailableNow for source "
            r"\[RateStreamV2\[rowsPerSecond=1, rampUpTimeSeconds=0, numPartitions=1\].*"
            r'|.*[/\\]holdfast[/\\]spark[/\\][\w/\\]+\.py", line .*)'
        )

    def _written_to_file(self, config: Any) -> Any:
        layout = java_class(self.jvm, f"{_LOG4J}.core.layout.PatternLayout").newBuilder()
        builder = java_class(self.jvm, f"{_LOG4J}.core.appender.FileAppender").newBuilder()
        builder.setName(self.file.name).setConfiguration(config)
        builder.setLayout(layout.withPattern(_PATTERN).withConfiguration(config).build())
        builder.setFilter(self._filter("ACCEPT", "DENY"))
        # Only when there is something to write, and for nobody else's eyes: there may be data in it.
        builder.withFileName(str(self.file)).withCreateOnDemand(True)
        builder.withFilePermissions("rw-------")
        made = builder.build()
        made.start()
        return made


def _is_console(appender: Any) -> bool:
    return str(appender.getClass().getSimpleName()) == "ConsoleAppender"


def _not_of_ours(record: logging.LogRecord) -> bool:
    """Whether py4j may tell of an error: one on its way from an epoch to Spark is told by us."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None or not _left_an_epoch(error.__traceback__):
        return True
    logger.debug("an epoch ends in an error", exc_info=error)
    return False


def _listen() -> None:
    for name in _CONTEXTS:
        # As PySpark asks for it: whoever asks first makes it, with the handler it writes to.
        PySparkLogger.getLogger(name).addFilter(_not_asked_by_us)


@contextmanager
def told_by_us() -> Iterator[None]:
    """What Spark refuses in here is told by an error of ours, and by nothing else."""
    _listen()
    token = _asking.set(True)
    try:
        yield
    finally:
        _asking.reset(token)


def _not_asked_by_us(record: logging.LogRecord) -> bool:
    """Whether PySpark may tell of an error: one that a running pipeline meets is told by us.

    What a function of the user's asks of Spark is his, though Holdfast calls it.
    """
    callers = [str(f.f_globals.get("__name__")) for f, _ in walk_stack(sys._getframe(1))]
    asking = next((name for name in callers if name.split(".")[0] not in _BETWEEN), "")
    in_pipeline = not _RUNNING.isdisjoint(callers) and asking.startswith("holdfast.")
    if not in_pipeline and not _asking.get():
        return True
    logger.debug("Spark refuses: %s", record.getMessage(), exc_info=record.exc_info)
    return False


def _left_an_epoch(traceback: TracebackType | None) -> bool:
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__name__") in _RUNNING:
            return True
        traceback = traceback.tb_next
    return False


_lock = threading.Lock()
_diverted: _Diverted | None = None
