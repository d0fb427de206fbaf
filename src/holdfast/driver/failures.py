"""Errors of threads, in words for the pipeline's user."""

from __future__ import annotations

from holdfast.errors import HoldfastError, InternalError, ProcessingError

__all__ = ["STOP_FIRST", "unexpected"]

STOP_FIRST = "stop a pipeline before spark.stop()"
"""What to do where Spark was stopped below a pipeline."""


def unexpected(error: BaseException) -> HoldfastError:
    """A checkpoint ended in something nobody foresaw, or a user's function left the thread."""
    named = f"{type(error).__name__}: {error}"
    wrapped: HoldfastError = InternalError(f"a checkpoint ended in {named}")
    if not isinstance(error, Exception):
        wrapped = ProcessingError(
            f"a sink or a callback ended in {named}",
            hint="let it raise an Exception, or set a threading.Event that your program waits for",
        )
    wrapped.__cause__ = error
    return wrapped
