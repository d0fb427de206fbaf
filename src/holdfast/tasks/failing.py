"""Errors of tasks, as values: a task says them in a text, from which the driver reads them back.

What fails in a task reaches the driver as text, with a traceback and whatever the engine has to say around
it. So an error of ours goes with a line that holds all of it, encoded; nothing of the words is guessed at,
and nothing that is read is ever executed (invariant 7).
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from holdfast.errors import (
    ConfigurationError,
    CorruptionError,
    FormatError,
    HoldfastError,
    InputError,
    InternalError,
    ProcessingError,
    StateLostError,
    StorageError,
)

__all__ = ["TaskFailedError", "encode_errors", "read_error"]

_LINE = re.compile(r"holdfast-task-error:([A-Za-z0-9+/=]+);")
_KINDS = {
    each.kind: each
    for each in (
        ConfigurationError,
        CorruptionError,
        FormatError,
        HoldfastError,
        InputError,
        InternalError,
        ProcessingError,
        StateLostError,
        StorageError,
    )
}


class _Encoded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    message: str
    hint: str | None = None
    on_disk: bool = False


class TaskFailedError(Exception):
    """What leaves a task in which an error of ours was raised: its words, and all of it, encoded."""

    def __init__(self, error: HoldfastError) -> None:
        on_disk = isinstance(error, CorruptionError) and error.on_disk
        kind = error.kind if error.kind in _KINDS else HoldfastError.kind
        encoded = msgspec.json.encode(_Encoded(kind, error.message, error.hint, on_disk))
        # The words may quote data, which may look like such a line.
        words = _LINE.sub("(…)", str(error))
        super().__init__(f"{words}\nholdfast-task-error:{b64encode(encoded).decode()};")


@contextmanager
def encode_errors() -> Iterator[None]:
    """Errors of ours leave the block in a form that :func:`read_error` can read wherever it ends up."""
    try:
        yield
    except HoldfastError as error:
        told = TaskFailedError(error).with_traceback(error.__traceback__)
        # Errors in users' code quote it with its own error, which would only be said twice.
        quotes = isinstance(error, (ProcessingError, InputError))
        raise told from (None if quotes else error.__cause__)


def read_error(text: str) -> HoldfastError | None:
    """The error that a task encoded into a text; None if there is none.

    >>> said = TaskFailedError(StateLostError("run 7-1 is not here", hint="go back"))
    >>> error = read_error(f"Job aborted: Traceback … {said} SQLSTATE: 38000")
    >>> type(error).__name__, error.message, error.hint
    ('StateLostError', 'run 7-1 is not here', 'go back')
    >>> read_error("Job aborted: StateLostError") is None
    True
    """
    for found in _LINE.finditer(text):
        try:
            encoded = msgspec.json.decode(b64decode(found[1], validate=True), type=_Encoded)
        except (binascii.Error, UnicodeDecodeError, msgspec.MsgspecError):
            continue
        made = _KINDS.get(encoded.kind)
        if made is CorruptionError:
            return CorruptionError(encoded.message, hint=encoded.hint, on_disk=encoded.on_disk)
        if made is not None:
            return made(encoded.message, hint=encoded.hint)
    return None
