"""Folding: what rows that replace or take back others come to."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from holdfast.arguments import said
from holdfast.changes import Changes
from holdfast.errors import InputError
from holdfast.operators.window.spec import CHANGE
from holdfast.state.text import python_values

if TYPE_CHECKING:
    from holdfast.stream import Rows

__all__ = ["fold"]

Table = TypeVar("Table")
"""A Spark DataFrame, an Arrow table or a pandas DataFrame."""


def fold(
    rows: Table,
    of: Rows | Changes | None = None,
    *,
    key: str | Sequence[str] | None = None,
    epoch: str | None = None,
    in_order: bool = False,
) -> Table:
    """The current rows: what all the rows that a stream has put out come to.

    ``rows`` are published rows, as a Spark DataFrame, an Arrow table or a pandas DataFrame, and ``of``
    is the stream that was written, or what its :attr:`~holdfast.Rows.changes` are: whether rows are
    new, replace the row before with the same key, or take rows back. Without it, say by what ``key``
    rows replace each other; rows with a column ``change`` need none.

    Which row of a key is the newest is told by its epoch. In what ``spark.read.parquet`` gives of a
    folder of :func:`holdfast.sinks.parquet` it is found in the names of the files; elsewhere ``epoch``
    names the column that has it. Of Arrow and pandas rows say ``in_order=True`` if they stand in the order
    of their epochs, as in memory tables and in what ``pandas.read_parquet`` makes of such a folder.
    The result has the columns of the stream.

    >>> import pyarrow as pa
    >>> put_out = pa.table({"word": ["kelp", "rock", "kelp"], "n": [1, 1, 2]})
    >>> fold(put_out, key="word", in_order=True).to_pylist()
    [{'word': 'kelp', 'n': 2}, {'word': 'rock', 'n': 1}]
    >>> fold(pa.table({"word": ["kelp", "kelp"], "change": [1, -1]})).num_rows
    0
    """
    given: Any = rows
    _check_given(given, of, key)
    present = given.column_names if isinstance(given, pa.Table) else list(given.columns)
    stream = None if isinstance(of, Changes) else of
    wanted = list(present) if stream is None else stream.rows.df.columns
    changes = _changes(present, of, (key,) if isinstance(key, str) else key)
    columns = [name for name in wanted if name != epoch or stream is not None]
    if changes.kind == "retract":
        columns = [name for name in columns if name != CHANGE]
    _check(present, changes, [*columns, *([epoch] if epoch else [])])
    folded: Any
    if type(rows).__module__.startswith("pyspark."):
        if in_order:
            raise InputError(
                "rows of a Spark DataFrame are in no order",
                hint="leave in_order= out, or say epoch=",
            )
        from holdfast.spark.folding import fold_frame

        folded = fold_frame(given, changes.kind, columns, changes.key or (), epoch)
    else:
        if changes.kind == "update" and epoch is None:
            _must_be_in_order(present, columns, in_order=in_order)
        places = _places(given, changes, columns, epoch)
        if isinstance(given, pa.Table):
            folded = given.select(columns).take(pa.array(places, pa.int64()))
        else:
            folded = given[columns].iloc[places].reset_index(drop=True)
    result: Table = folded
    return result


def _check_given(rows: object, of: object, key: object) -> None:
    if not isinstance(rows, pa.Table) and not (
        hasattr(rows, "columns") and hasattr(rows, "dtypes")
    ):
        raise InputError(
            f"hf.fold takes a Spark DataFrame, an Arrow table or a pandas DataFrame, not {said(rows)}",
            hint='fold what was published, as in hf.fold(spark.read.parquet("out"), of=counts)',
        )
    if of is not None and not isinstance(of, Changes) and not hasattr(of, "changes"):
        raise InputError(
            f"of= of hf.fold takes a stream, not {said(of)}",
            hint="give the stream whose rows were published, or its changes",
        )
    if key is not None and not (isinstance(key, Sequence) and all(isinstance(k, str) for k in key)):
        raise InputError(
            f"key= of hf.fold takes names of columns, not {said(key)}", hint='say key="word"'
        )


def _changes(
    present: Sequence[str], of: Rows | Changes | None, key: Sequence[str] | None
) -> Changes:
    """What the rows say, by the stream or by what the caller says."""
    if of is not None:
        changes = of if isinstance(of, Changes) else of.changes
        if key is not None and changes.kind == "update":
            return Changes("update", tuple(key))
        if key is not None:
            raise InputError(
                f"the stream's rows don't replace each other by key: they are of kind {changes.kind!r}",
                hint="leave key= out",
            )
        if changes.why:
            raise InputError(
                f"the rows can't be folded: {changes.why}",
                hint="write the operator's own results and take that step behind hf.fold; or, if you "
                "know what rows replace each other by, say key=",
            )
        return changes
    if key is not None and CHANGE in present:
        raise InputError(
            f"rows with a column {CHANGE!r} take rows back, and don't replace each other by key",
            hint="leave key= out; or, if the column is one of your own, say of= with the stream",
        )
    if key is not None:
        return Changes("update", tuple(key))
    if CHANGE in present:
        return Changes("retract")
    raise InputError(
        "hf.fold doesn't know whether these rows replace each other",
        hint='say of which stream they are, or by what they replace each other: key="word"',
    )


def _check(present: Sequence[str], changes: Changes, columns: Sequence[str]) -> None:
    wanted = [*columns, *(changes.key or ()), *([CHANGE] if changes.kind == "retract" else [])]
    missing = [name for name in dict.fromkeys(wanted) if name not in present]
    if missing:
        raise InputError(
            f"the rows have no column {', '.join(map(repr, missing))}",
            hint=f"fold rows as they were published; these have {', '.join(present)}",
        )


def _must_be_in_order(present: Sequence[str], columns: Sequence[str], *, in_order: bool) -> None:
    """Raise unless rows are said to be in order, and have no more columns than the stream.

    Those that have may come of folders in any order; and what Spark has read is in no order of epochs.
    """
    if not in_order:
        raise InputError(
            "nothing says which of these rows are newer",
            hint="fold what spark.read.parquet gives, before toPandas() or toArrow(); or say epoch= with the "
            "column of the epoch, or in_order=True if the rows stand in the order of their epochs, as in "
            "memory tables and in what pandas.read_parquet makes of a folder",
        )
    more = [name for name in present if name not in columns]
    if more:
        raise InputError(
            f"the rows have columns that the stream has not: {', '.join(map(repr, more))}",
            hint='if one of them is the epoch, say so: epoch="epoch"; leave out the others',
        )


def _places(rows: Any, changes: Changes, columns: Sequence[str], epoch: str | None) -> list[int]:
    """Which rows are left, by their place; one that is there twice is named twice."""
    if changes.kind == "append":
        return list(range(len(rows)))
    if changes.kind == "update":
        epochs = range(len(rows)) if epoch is None else _numbers(rows, epoch)
        newest: dict[str, tuple[int, int]] = {}
        for place, (number, one) in enumerate(
            zip(epochs, _each(rows, changes.key or ()), strict=True)
        ):
            if one not in newest or newest[one][0] <= number:
                newest[one] = (number, place)
        return [place for _, place in newest.values()]
    left: dict[str, list[int]] = {}
    for place, (change, one) in enumerate(
        zip(_numbers(rows, CHANGE), _each(rows, columns), strict=True)
    ):
        left.setdefault(one, [place, 0])[1] += change
    if any(times < 0 for _, times in left.values()):
        raise InputError(
            "rows are taken back that aren't there",
            hint="fold all rows that were published; if they have a column of the epoch, say epoch=",
        )
    return [place for place, times in left.values() for _ in range(times)]


def _each(rows: Any, names: Sequence[str]) -> list[str]:
    """The values of some columns, row by row, as something that can be compared, lists too."""
    if not names:
        return [""] * len(rows)
    columns = ([_alike(value) for value in _values(rows, name)] for name in names)
    return [repr(values) for values in zip(*columns, strict=True)]


def _alike(value: Any) -> Any:
    """A value in the words of all that Spark takes for the same one: −0.0 is 0.0."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, (list, tuple)):
        return [_alike(inner) for inner in value]
    if isinstance(value, dict):
        return {name: _alike(inner) for name, inner in value.items()}
    return value


def _numbers(rows: Any, name: str) -> list[int]:
    found = _values(rows, name)
    for value in found:
        if not isinstance(value, (int, float)):
            raise InputError(
                f"the column {name!r} has {value!r}, which is no number",
                hint="fold rows as they were published",
            )
    return found


def _values(rows: Any, name: str) -> list[Any]:
    column = rows[name]
    if isinstance(rows, pa.Table):
        return python_values(column)
    return [_plain(value) for value in column.tolist()]


def _plain(value: Any) -> Any:
    """A value without NumPy in it: the words of an array leave out places and digits."""
    if type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and isnan(value)):
        return None  # To pandas they are all one: which a column has depends on how it came about.
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, dict):
        return {_plain(name): _plain(inner) for name, inner in value.items()}
    return value
