"""The rows that a part of a statement stands for, and the names its columns go by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from holdfast.choices import ChangeKind
from holdfast.errors import InputError
from holdfast.operators.window.spec import CHANGE, WindowSpec
from holdfast.sql.bounds import Spread, WindowBounds, timed, windows_of
from holdfast.sql.refuse import refuse
from holdfast.stream import Branch, Output, ResultStream, Rows, Stream, result_of
from holdfast.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "Cut",
    "Known",
    "Rank",
    "Relation",
    "changes_of",
    "filtered",
    "free_name",
    "must_append",
    "projected",
    "table",
]


@dataclass(frozen=True)
class Known:
    """A column as a statement knows it."""

    table: str | None
    name: str
    column: str
    """What it is called in the stream."""


@dataclass(frozen=True)
class Cut:
    """Windows that rows will be cut into by the GROUP BY behind."""

    spec: WindowSpec
    keys: tuple[str, ...] | None = None
    """By which columns a session is kept; None: whatever GROUP BY says."""


@dataclass(frozen=True)
class Rank:
    """A row number that rows will get when it is known how many are wanted."""

    name: str
    keys: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    end: str | None = None
    """Which of the keys is the end of the rows' window."""


@dataclass(frozen=True)
class Relation:
    """Rows, and what is known of them."""

    stream: Stream
    names: tuple[Known, ...]
    changes: ChangeKind = "append"
    windows: WindowBounds | None = None
    cut: Cut | None = None
    rank: Rank | None = None
    unnamed: Mapping[str, str] = field(default_factory=dict)
    """Columns that no name was given to, and how they are written."""

    @property
    def time(self) -> str | None:
        """The column that says when rows happened."""
        return self.stream.watermark.column if self.stream.watermark else None

    @property
    def spoken_time(self) -> str:
        """What a statement calls the column that says when rows happened."""
        known = next((k for k in self.names if k.column == self.time), None)
        if known is None:
            return str(self.time)
        return known.name if known.table is None else f"{known.table}.{known.name}"

    @property
    def spoken_rank(self) -> str:
        """What a statement calls the row number that rows will get."""
        assert self.rank is not None
        return next(known.name for known in self.names if known.column == self.rank.name)

    def called(self, alias: str | None, columns: Sequence[str] = ()) -> Relation:
        """The same rows under another name."""
        self.check_named()
        if columns and len(columns) != len(self.names):
            raise InputError(
                f"SQL: {alias!r} names {len(columns)} columns, there are {len(self.names)}"
            )
        names = columns or [known.name for known in self.names]
        pairs = zip(self.names, names, strict=True)
        return replace(self, names=tuple(Known(alias, name, known.column) for known, name in pairs))

    def check_named(self) -> None:
        """Raise for a column without a name: behind all that names would not help."""
        for text in self.unnamed.values():
            raise InputError(
                f"SQL: {text} has no name", hint=f"give the column one: {text} AS some_name"
            )

    def find(self, parts: Sequence[str]) -> tuple[Known, Sequence[str]]:
        """The column that ``a.b.c`` names, and the fields in it."""
        if len(parts) > 1 and any(_same(known.table, parts[0]) for known in self.names):
            found = [k for k in self.names if _same(k.table, parts[0]) and _same(k.name, parts[1])]
            rest = parts[2:]
        else:
            found, rest = [k for k in self.names if _same(k.name, parts[0])], parts[1:]
        if not found:
            known = ", ".join(
                k.name if k.table is None else f"{k.table}.{k.name}" for k in self.names
            )
            raise InputError(
                f"SQL: there is no column {'.'.join(parts)!r}", hint=f"columns are {known}"
            )
        if len({known.column for known in found}) > 1:
            tables = " and ".join(str(known.table) for known in found)
            raise InputError(
                f"SQL: column {parts[0]!r} is in {tables}",
                hint=f"say which: {found[0].table}.{parts[0]}",
            )
        return found[0], rest


def _same(name: str | None, other: str) -> bool:
    return name is not None and name.lower() == other.lower()


def free_name(wanted: str, taken: Sequence[str] | set[str]) -> str:
    """A name that no other column has."""
    lower = {name.lower() for name in taken}
    name, number = wanted, 1
    while name.lower() in lower:
        number += 1
        name = f"{wanted}_{number}"
    return name


def must_append(relation: Relation, what: str) -> None:
    """Raise for rows that take the place of others: counted again they would be wrong."""
    if relation.rank is not None:
        name = relation.spoken_rank
        refuse(
            f"ROW_NUMBER() without a bound, in {what},",
            "select it AS rn, and say WHERE rn <= n around it"
            if name in relation.unnamed
            else f"say WHERE {name} <= n around it",
        )
    if relation.changes != "append":
        why = "a GROUP BY without a window" if relation.changes == "update" else "a top-n"
        hint = "group by a window, whose results are final"
        if relation.windows is not None:
            why = "windows that have several each"
            hint = (
                "leave out allowed_lateness, and emit= and output_mode= of the windows: they have "
                "one result each then, which is final"
            )
        refuse(f"{what} of rows that change (the results of {why})", hint)


def projected(
    stream: Stream, items: Sequence[tuple[str, str]], into: WindowSpec | None = None
) -> Stream:
    """The rows with these columns: what Spark is to compute, and the name of it.

    ``into`` says that they are put into windows by it.

    The watermark goes with its column, whatever that is called now, or goes if it does.
    """
    if [name for _, name in items] == stream.df.columns and all(
        text == quoted(name) for text, name in items
    ):
        return stream
    mark = stream.watermark
    time = None
    if mark is not None:
        time = next((name for text, name in items if text == quoted(mark.column)), None)
    texts = [text if text == quoted(name) else f"{text} AS {quoted(name)}" for text, name in items]
    bare = Stream(tuple(replace(branch, watermark=None) for branch in stream.branches))
    step = partial(_selected, texts) if into is None else Spread(into, str(time), tuple(texts))
    made = _tried(bare, step)
    pairs = zip(made.branches, stream.branches, strict=True)
    return Stream(tuple(_timed(branch, before, time) for branch, before in pairs))


def _selected(texts: Sequence[str], frame: DataFrame) -> DataFrame:
    return frame.selectExpr(*texts)


def _timed(branch: Branch, before: Branch, time: str | None) -> Branch:
    if time is None or before.watermark is None:
        return replace(branch, watermark=None)
    return replace(branch, watermark=replace(before.watermark, column=time))


def filtered(stream: Stream, condition: str) -> Stream:
    """The rows for which the condition is true."""
    return _tried(stream, lambda df: df.filter(condition))


def _tried(stream: Stream, step: Callable[[DataFrame], DataFrame]) -> Stream:
    from pyspark.errors import PySparkException

    from holdfast.spark.jvm.quiet import told_by_us
    from holdfast.spark.jvm.sqlparser import aggregates_rows

    try:
        with told_by_us():
            if aggregates_rows(step(stream.df)):
                # It is none of those that are known by name. Of results it would be of one epoch's.
                _refuse_own()
            return stream.then(step)
    except PySparkException as error:
        if error.getCondition() == "MISSING_GROUP_BY":  # The same beside other columns.
            _refuse_own()
        words = str(error).strip().split("\n")[0].split("; line")[0]
        raise InputError(f"SQL: Spark can't read a part of the statement: {words}") from None


def _refuse_own() -> NoReturn:
    refuse(
        "an aggregate of your own",
        "say count, sum, ... (see docs/sql.md), or write a hf.KeyedProcess",
    )


def table(name: str, rows: Rows) -> Relation:
    """A stream under the name that a statement gives it."""
    if not isinstance(rows, Rows):
        raise InputError(
            f"SQL: table {name!r} is {type(rows).__name__}, no stream",
            hint=f"say {name}=hf.stream(df)",
        )
    rows.rows.must_stream()
    stream = timed(rows.rows)
    known = tuple(Known(name, column, column) for column in stream.df.columns)
    changes: ChangeKind = "append"
    for branch in stream.branches:
        if isinstance(branch.origin, Output) and not branch.origin.name:
            found = changes_of(result_of(branch.origin))
            changes = found if found != "append" else changes
    if changes == "retract" and CHANGE not in stream.df.columns:
        raise InputError(
            f"SQL: rows of table {name!r} come and go, and a step has left out the column {CHANGE!r}",
            hint="keep it: it says which of the two a row does",
        )
    return Relation(stream, known, changes, windows=windows_of(stream))


def changes_of(result: ResultStream) -> ChangeKind:
    """What the rows of an operator's results say."""
    return result.puts_out.kind
