"""Errors of Spark, in words for the pipeline's user."""

from __future__ import annotations

import itertools

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from holdfast.driver.failures import STOP_FIRST
from holdfast.errors import ProcessingError
from holdfast.spark.jvm.jobs import spark_has_stopped
from holdfast.spark.jvm.quiet import told_elsewhere
from holdfast.tasks.failing import read_error

__all__ = ["failure_of"]

_FOLLOWS = ("from the Python worker:", "PythonException:")  # Spark 4.1 says no more there
_AGAIN = "it continues after the last checkpoint"
_CALL, _BECAUSE = "py4j.protocol.Py4JJavaError: ", "Caused by: "


def failure_of(error: BaseException, pipeline: str, epoch: int) -> ProcessingError:
    """What made Spark's query fail, after an epoch; -1 if there was none yet."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    when = f"after epoch {epoch}" if epoch >= 0 else "before its first epoch was done"
    # What a task of ours raised comes as it was; of other errors Spark's words are taken apart.
    raised = read_error(str(error))
    cause = _cause(lines) if raised is None else raised.message
    hint = "" if raised is None else raised.hint or ""
    # An error of the user's own is what ended it, whatever became of Spark afterwards; of others it can't
    # be told, so they are said too.
    of_spark = isinstance(error, PySparkException | Py4JError)
    if of_spark and raised is None and spark_has_stopped():
        cause = f"Spark was stopped below it, so there may be no last checkpoint (it met: {cause})"
        hint = STOP_FIRST
    failed = ProcessingError(
        f"pipeline {pipeline!r} failed {when}: {cause}", hint=_with_again(hint) + _more()
    )
    # Kept, but not shown: its text is hundreds of lines that say the same.
    failed.__context__, failed.__suppress_context__ = error, True
    return failed


def _with_again(hint: str) -> str:
    """What to do, and that all is well then."""
    if not hint:
        return f"mend the cause and start it again: {_AGAIN}"
    return hint if _AGAIN in hint else f"{hint}; then start it again: {_AGAIN}"


def _more() -> str:
    file = told_elsewhere()
    return "" if file is None else f"; what Spark said is in {file}"


def _cause(lines: list[str]) -> str:
    """The line of Spark's report that names the error: the last of a Python traceback, if there is one."""
    for index, line in enumerate(lines):
        if "Traceback (most recent call last)" in line:
            ends = (rest for rest in lines[index + 1 :] if not rest.startswith((" ", "\t")))
            # Spark's own error for one in a worker only says that another follows.
            if (end := next(ends, "").strip()) and not end.endswith(_FOLLOWS):
                return _of_the_jvm(lines[index + 1 :]) or end
    return lines[0].strip() if lines else "unknown"


def _of_the_jvm(lines: list[str]) -> str | None:
    """What the JVM said, if the last line of a Python traceback names only the call of it."""
    at = next((i for i, line in enumerate(lines) if not line.startswith((" ", "\t"))), len(lines))
    said = lines[at : at + 2]
    if len(said) < 2 or not (said[0].startswith(_CALL) and said[1].startswith(": ")):
        return None
    message = said[1].removeprefix(": ").strip().rstrip(".")
    stack = itertools.takewhile(
        lambda line: line.startswith((" ", "\t", _BECAUSE, "...")), lines[at + 2 :]
    )
    causes = [line.removeprefix(_BECAUSE).strip() for line in stack if line.startswith(_BECAUSE)]
    return f"{message}, because of {causes[-1]}" if causes else message
