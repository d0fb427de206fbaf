"""Every error Holdfast raises on purpose.

One root, and a class for each thing a person has to *do* about it. The message says what
happened, to which object, and what to do next; ``kind`` is a stable word for programs.
"""

from __future__ import annotations

__all__ = [
    "ConfigurationError",
    "CorruptionError",
    "FencedError",
    "FormatError",
    "HoldfastError",
    "InputError",
    "InternalError",
    "ProcessingError",
    "StateLostError",
    "StorageError",
    "TimedOutError",
    "UnknownNameError",
]


WHAT_TO_DO = ". What to do: "
"""What stands between a message and its hint."""


def _sayable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


class HoldfastError(Exception):
    """The root of all Holdfast errors.

    >>> HoldfastError("checkpoint 7 failed", hint="free some disk space").kind
    'holdfast'
    >>> print(HoldfastError("checkpoint 7 failed", hint="free some disk space"))
    checkpoint 7 failed. What to do: free some disk space

    What it quotes may be no UTF-8, which neither Spark's workers nor terminals can say:

    >>> print(HoldfastError("no such word: \\udcff"))
    no such word: \\udcff
    """

    kind = "holdfast"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = _sayable(message)
        self.hint = None if hint is None else _sayable(hint)
        parts = (self.message,) if self.hint is None else (self.message, self.hint)
        super().__init__(WHAT_TO_DO.join(parts))


class InputError(HoldfastError):
    """The program asks for something impossible (unknown column, unsupported type): fix the code.

    >>> import holdfast as hf
    >>> hf.tumbling("soon")
    Traceback (most recent call last):
    holdfast.errors.InputError: size can't be 'soon'. What to do: write it like "10 s", ...
    """

    kind = "input"


class UnknownNameError(InputError, AttributeError):
    """An object has no such attribute; the hint says what to say instead.

    It is an ``AttributeError`` too, so that ``hasattr`` and the like work as ever.

    >>> import holdfast as hf
    >>> hf.mean
    Traceback (most recent call last):
    holdfast.errors.UnknownNameError: holdfast has no 'mean'. What to do: say hf.avg(column)
    """


class ConfigurationError(HoldfastError):
    """The surroundings don't fit (Spark too old, wrong directory, missing package): fix the set-up.

    >>> ConfigurationError("entry 2 is not there", hint="holdfast checkpoints CK lists them").hint
    'holdfast checkpoints CK lists them'
    """

    kind = "configuration"


class FormatError(ConfigurationError):
    """The directory was written by a newer Holdfast: upgrade this one.

    >>> issubclass(FormatError, ConfigurationError), FormatError.kind
    (True, 'format')
    """

    kind = "format"


class StorageError(HoldfastError):
    """Storage did not do what was asked (full, unreachable, no permission): mend it and retry.

    >>> StorageError("no space left in /ck", hint="free some").message
    'no space left in /ck'
    """

    kind = "storage"


class CorruptionError(HoldfastError):
    """Bytes read back are not the bytes written, or are missing: restore from another entry.

    >>> CorruptionError("run 7-1 has a wrong checksum", hint="start(…, from_entry=12)").kind
    'corruption'
    """

    kind = "corruption"

    def __init__(self, message: str, *, hint: str | None = None, on_disk: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.on_disk = on_disk
        """Whether it is a file on a host's own disk that is bad, which others can take the place of."""


class StateLostError(HoldfastError):
    """State that no checkpoint holds yet is out of reach: go back to the last checkpoint.

    A running pipeline does so by itself; only one that can't go on raises it to its user.

    >>> StateLostError("partition 3 is on no host that lives").kind
    'state-lost'
    """

    kind = "state-lost"


class TimedOutError(HoldfastError, TimeoutError):
    """What was waited for did not come in time: wait longer, or find out what holds it up.

    It is a ``TimeoutError`` too, and nothing was undone: what is under way goes on.

    >>> raise TimedOutError("no checkpoint of 'orders' was complete within 5 s")
    Traceback (most recent call last):
    holdfast.errors.TimedOutError: no checkpoint of 'orders' was complete within 5 s
    """

    kind = "timed-out"


class ProcessingError(HoldfastError):
    """An epoch failed in Spark or in user code: the state is as of the epoch before it.

    >>> import holdfast as hf
    >>> class Divides(hf.KeyedProcess):
    ...     output = "user string, share double"
    ...
    ...     def process(self, key, rows, ctx):
    ...         yield key.user, 1 / sum(row.n for row in rows)
    >>> tester = hf.testing.ProcessorTester(Divides(), columns="user string, n long", keys="user")
    >>> tester.process([("bob", 0)])
    Traceback (most recent call last):
    holdfast.errors.ProcessingError: Divides.process raised ZeroDivisionError for key (user='bob') ...
    """

    kind = "processing"


class InternalError(HoldfastError):
    """Holdfast broke one of its own invariants: please report it.

    >>> issubclass(InternalError, InputError)  # it is no fault of the program's
    False
    """

    kind = "internal"


class FencedError(HoldfastError, SystemExit):
    """Another driver has taken this pipeline over: this one must stop for good.

    It is also a ``SystemExit``: left uncaught, it ends the process with exit code
    ``FencedError.EXIT_CODE``, so that a supervisor can tell it from a crash and not restart it.

    >>> FencedError("pipeline 'orders' was claimed by another driver").code
    75
    """

    kind = "fenced"
    EXIT_CODE = 75

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = self.EXIT_CODE
