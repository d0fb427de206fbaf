"""Errors of Spark and of threads, in words for the pipeline's user."""

from __future__ import annotations

from holdfast.errors import InternalError, ProcessingError

__all__ = ["failure_of", "unexpected"]


def failure_of(error: Exception, pipeline: str, epoch: int) -> ProcessingError:
    """What made Spark's query fail, after an epoch."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    failed = ProcessingError(
        f"pipeline {pipeline!r} failed after epoch {epoch}: {_cause(lines)}",
        hint="mend the cause and start it again: it continues after the last checkpoint",
    )
    failed.__cause__ = error
    return failed


def unexpected(error: Exception) -> InternalError:
    """A checkpoint ended in something nobody foresaw."""
    wrapped = InternalError(f"a checkpoint ended in {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def _cause(lines: list[str]) -> str:
    """The line of Spark's report that names the error: the last of a Python traceback, if any."""
    for index, line in enumerate(lines):
        if line.startswith("holdfast.errors."):
            return _own_words(lines[index:])
    for index, line in enumerate(lines):
        if "Traceback (most recent call last)" in line:
            ends = (rest for rest in lines[index + 1 :] if not rest.startswith((" ", "\t")))
            # Spark's own error for one in a worker only says that another follows.
            if (end := next(ends, "")) and not end.endswith("from the Python worker:"):
                return end.strip()
    return lines[0].strip() if lines else "unknown"


def _own_words(lines: list[str]) -> str:
    """An error of Holdfast's own in full, with the traceback of user code that it may quote."""
    end = 1
    while end < len(lines) and not lines[end].startswith((" SQLSTATE", "===", "JVM stacktrace")):
        end += 1
    text = "\n".join(lines[:end]).partition(": ")[2]
    return text.partition(". What to do: ")[0].rstrip()
