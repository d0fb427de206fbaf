"""Which kind of rows a stream has: whether they are new, replace others, or take others back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast.choices import ChangeKind, check_choice
from holdfast.operators.window.spec import CHANGE, WINDOW_END, WINDOW_START
from holdfast.spark.flow.branch import Branch, LoopStart, Output
from holdfast.stream import ResultStream, Stream, result_of

if TYPE_CHECKING:
    from holdfast.spark.jvm.lineage import Followed

__all__ = ["Changes", "changes_of", "passed_on"]


@dataclass(frozen=True, slots=True)
class Changes:
    """What the rows of a stream say about the ones before them; :attr:`Rows.changes` has it.

    >>> Changes("update", ("word",))
    Changes(kind='update', key=('word',), why='')
    """

    kind: ChangeKind
    """``append``: every row is new, and stays. ``update``: a row replaces the earlier one with the same
    key. ``retract``: a column ``change`` is 1 for rows that come and -1 for those that go."""
    key: tuple[str, ...] | None = None
    """Of an ``update`` the columns by which rows replace each other; None if nothing tells."""
    why: str = ""
    """Why rows can't be folded to current ones; empty if they can."""

    def __post_init__(self) -> None:
        check_choice("the kind of changes", self.kind, ChangeKind)


def changes_of(stream: Stream) -> Changes:
    """What the rows of a stream say, behind all its steps."""
    each = [_of_branch(branch) for branch in stream.branches]
    kinds = {one.kind for one in each}
    if kinds == {"append"} or len(each) == 1:
        return each[0]
    if kinds == {"retract"}:
        return next((one for one in each if one.why), each[0])
    kind: ChangeKind = "retract" if "retract" in kinds else "update"
    return Changes(kind, None, "a union doesn't say of which stream a row is")


def passed_on(inputs: Iterable[Stream], what: str) -> Changes:
    """What the rows of an operator say that puts its input's rows out again."""
    for stream in inputs:
        changes = stream.changes
        if changes.kind != "append":
            return Changes(changes.kind, None, f"{what} takes every row for a new one")
    return Changes("append")


def _of_branch(branch: Branch) -> Changes:
    origin = branch.origin
    if not isinstance(origin, Output) or isinstance(origin, LoopStart) or origin.name:
        return Changes("append")
    result = result_of(origin)
    changes = result.puts_out
    if changes.kind == "append" or changes.why or not branch.steps:
        return changes
    from holdfast.spark.jvm.lineage import follow

    followed = follow(result.rows.df, branch.steps)
    if changes.kind == "retract":
        return replace(changes, why=_why_not_retracted(followed))
    return _updated(changes, followed, result)


def _why_not_retracted(followed: Followed) -> str:
    if CHANGE not in followed.names.get(CHANGE, ()):
        return f"a step leaves out or replaces the column {CHANGE!r}"
    if CHANGE in followed.tested:
        return f"a step filters by {CHANGE!r}"
    if made := [name for name, of in followed.made_of.items() if CHANGE in of and name != CHANGE]:
        return f"a step makes {made[0]!r} of {CHANGE!r}: a row and what takes it back are not alike"
    if followed.others or not followed.deterministic:
        unlike = followed.others[0] if followed.others else "random values or the current time"
        return f"a step ({unlike}) may treat a row otherwise when it is taken back"
    return ""


def _updated(changes: Changes, followed: Followed, result: ResultStream) -> Changes:
    key = _found(changes.key or (), followed, result)
    if key is None:
        gone = ", ".join(name for name in changes.key or () if name not in followed.names)
        return Changes("update", None, f"a step leaves out or replaces {gone}, of the key")
    kept = {*(changes.key or ()), *_same_as(changes.key or (), result).values()}
    if followed.others or followed.repeats:
        step = (followed.others or followed.repeats)[0]
        return Changes("update", None, f"a step ({step}) makes none or several rows of one")
    if not followed.tested <= kept:
        return Changes(
            "update",
            None,
            "a step filters by values that change: what it leaves out replaces nothing",
        )
    if not followed.tests_alike:
        return Changes(
            "update",
            None,
            "a step filters by random values or the current time: what it leaves out replaces nothing",
        )
    return replace(changes, key=key)


def _found(key: Sequence[str], followed: Followed, result: ResultStream) -> tuple[str, ...] | None:
    """What the key's columns are called behind the steps."""
    same = _same_as(key, result)
    found = [followed.names.get(name) or followed.names.get(same.get(name, "")) for name in key]
    return tuple(names[0] for names in found if names) if all(found) else None


def _same_as(key: Sequence[str], result: ResultStream) -> dict[str, str]:
    """Columns that say as much as one of the key: a window's end, if windows have one size."""
    from holdfast.windows import WindowResultStream

    if isinstance(result, WindowResultStream) and WINDOW_START in key:
        return {WINDOW_START: WINDOW_END}
    return {}
