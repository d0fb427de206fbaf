"""The words that options may be, each option's in one type.

The type is what editors offer and type checkers demand; what runs asks it too (:func:`check_choice`),
so that the two can't differ.

>>> import holdfast as hf
>>> from typing import get_args
>>> get_args(hf.OutputMode)
('append', 'update', 'retract')
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from holdfast.errors import InputError

__all__ = [
    "ChangeKind",
    "Durability",
    "JoinKind",
    "MergeName",
    "OutputMode",
    "QueryState",
    "SortOrder",
    "TimeKind",
    "TimeMode",
    "TopOutputMode",
    "Trigger",
    "TtlOn",
    "VersionedKind",
    "check_choice",
]

OutputMode = Literal["append", "update", "retract"]
"""``append``: a result when its window closes. ``update``: the new result of every window that
changed. ``retract``: the same, with the result put out before taken back."""

TopOutputMode = Literal["append", "retract"]
"""``retract``: rows that come in and rows that leave. ``append``: all of them once, when the time that
``until`` names has come."""

ChangeKind = Literal["append", "update", "retract"]
"""``append``: every row is new, and stays. ``update``: a row replaces the earlier one with the same
key. ``retract``: a column ``change`` is 1 for rows that come and -1 for those that go."""

JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]
"""Which rows a join puts out: pairs, and of a side those without a match; of ``semi`` and ``anti`` the
left rows with and without one."""

VersionedKind = Literal["inner", "left"]
"""Whether ``join_as_of`` leaves out rows for which there is no version, or puts them out with nulls."""

SortOrder = Literal["asc", "desc"]
"""How ``top`` orders by a column."""

Trigger = Literal["available-now", "manual"]
"""When Spark looks for input, if not every so often: once, or when ``query.step()`` is called."""

Durability = Literal["checkpoint", "epoch"]
"""Whether an epoch is in the log with the next checkpoint, or before Spark hears that it is done."""

TimeKind = Literal["processing", "event"]
"""The clock that a timer or a time to live goes by."""

TtlOn = Literal["write", "read"]
"""Whether a time to live begins anew when a value is written, or also when it is read."""

MergeName = Literal["sum", "min", "max"]
"""How a ``ReducingState`` merges values, if not by a function."""

TimeMode = Literal["None", "ProcessingTime", "EventTime"]
"""PySpark's ``timeMode``, in any spelling of upper and lower case."""

QueryState = Literal["running", "waiting", "stopped", "failed"]
"""How a pipeline is doing, in a word."""


def check_choice(what: str, given: object, choices: Any) -> None:
    """Raise ``InputError`` unless an option is one of the words of its type.

    >>> check_choice("output_mode", "complete", TopOutputMode)
    Traceback (most recent call last):
    holdfast.errors.InputError: output_mode can't be 'complete'. What to do: it is "append" or "retract"
    """
    # By type as well: what isn't text might not even be comparable.
    if not isinstance(given, str) or given not in get_args(choices):
        words = [f'"{choice}"' for choice in get_args(choices)]
        listed = " or ".join([", ".join(words[:-1]), words[-1]])
        raise InputError(f"{what} can't be {given!r}", hint=f"it is {listed}")
