"""JOIN: two streams by equal columns and by how far apart their rows happened."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from holdfast.errors import InputError
from holdfast.sql.bounds import WindowBounds, of_join
from holdfast.sql.conditions import Conditions, Sides
from holdfast.sql.dialect import text_of
from holdfast.sql.expressions import conjuncts
from holdfast.sql.refuse import check_arguments, refuse
from holdfast.sql.relation import (
    Known,
    Relation,
    filtered,
    free_name,
    must_append,
    projected,
)
from holdfast.types import quoted

if TYPE_CHECKING:
    from holdfast.stream import Stream

__all__ = ["How", "how_of", "join"]

How = Literal["inner", "left", "right", "full", "semi", "anti"]

_KINDS: dict[tuple[str, str], How] = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("", "CROSS"): "inner",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "semi",
    ("", "SEMI"): "semi",
    ("LEFT", "ANTI"): "anti",
    ("", "ANTI"): "anti",
}
# The side that need not have a match: its rows may be left out before.
_OPTIONAL: dict[How, str] = {"left": "r", "semi": "r", "anti": "r", "right": "l"}
_WIDER = ("tinyint", "smallint", "int", "bigint")


def how_of(node: exp.Join) -> How:
    """The kind of a join."""
    if node.args.get("method"):
        refuse(f"{str(node.method).upper()} JOIN", "say ON a.k = b.k")
    check_arguments(node, {"this", "side", "kind", "on", "using"})
    words = str(node.side or "").upper(), str(node.kind or "").upper()
    if words not in _KINDS:
        refuse(f"{' '.join(word for word in words if word)} JOIN")
    return _KINDS[words]


def join(
    left: Relation,
    right: Relation,
    node: exp.Join,
    where: list[exp.Expr],
    needed: set[str] | None,
    later: set[str],
) -> Relation:
    """Join two relations. ``where`` are conditions of WHERE that may be used up, and then are.

    ``needed`` are the names of columns that the statement uses, None if it uses all; ``later`` those
    of the tables that are joined behind.
    """
    how = how_of(node)
    for relation in (left, right):
        must_append(relation, "a join")
        if relation.cut is not None:
            refuse(
                "a join of a window's rows",
                "group by the window in a subquery, and join the results",
            )
    _check_names(left, right)
    conditions = Conditions(Sides(left, right), exact=how != "inner", optional=_OPTIONAL.get(how))
    for name in (using := [each.name for each in node.args.get("using") or ()]):
        conditions.add_equal(left.find([name])[0].column, right.find([name])[0].column)
    for condition in conjuncts(node.args.get("on")):
        conditions.add(condition)
    if how == "inner":
        _use_up(where, conditions, later)
    bounds = conditions.checked_bounds()
    if conditions.same_time and not conditions.keys:
        conditions.keys.append((_column_of(left.time), _column_of(right.time)))
    if not conditions.keys:
        refuse("a join without equal columns", "add a condition such as a.k = b.k to ON")
    joined = _Join(left, right, how, conditions, using, needed).made(bounds)
    for condition in conditions.behind:
        from holdfast.sql.expressions import scalar

        text = scalar(condition, joined, "ON")
        joined = replace(joined, stream=filtered(joined.stream, text))
    return joined


def _use_up(where: list[exp.Expr], conditions: Conditions, later: set[str]) -> None:
    """Inner joins may have their conditions in WHERE: those that both sides can answer."""
    known = {known.name.lower() for known in conditions.sides.both.names}
    tables = {(k.table or "").lower() for k in conditions.sides.both.names}
    for condition in list(where):
        columns = list(condition.find_all(exp.Column))
        # What is a table of a later join is no struct of these, though one may be called so.
        answered = all(
            column.table.lower() in tables
            or column.parts[0].name.lower() in (known - later if column.table else known)
            for column in columns
        )
        if columns and answered and condition.find(exp.Query, exp.Window) is None:
            conditions.add(condition)
            where.remove(condition)


def _check_names(left: Relation, right: Relation) -> None:
    table = right.names[0].table
    if table is None or any((k.table or "").lower() == table.lower() for k in left.names):
        raise InputError(
            f"SQL: two sides of a join are both called {table or 'nothing'!r}",
            hint="give each a name of its own: FROM a AS x JOIN b AS y",
        )


def _column_of(name: str | None) -> exp.Expr:
    return exp.column(exp.to_identifier(name or "", quoted=True))


@dataclass
class _Join:
    left: Relation
    right: Relation
    how: How
    conditions: Conditions
    using: list[str]
    needed: set[str] | None
    ours: list[tuple[str, str]] = field(default_factory=list)
    """The columns of the left side, as they go into the join; then those of the right."""
    theirs: list[tuple[str, str]] = field(default_factory=list)
    on: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    """What columns of the right side are called in the result."""

    def made(self, bounds: tuple[int, int]) -> Relation:
        left, right = self.left.stream, self.right.stream
        for text in map(text_of, self.conditions.of_left):
            left = filtered(left, text)
        for text in map(text_of, self.conditions.of_right):
            right = filtered(right, text)
        self.ours = [(quoted(name), name) for name in self._kept(self.left)]
        for number, pair in enumerate(self.conditions.keys):
            self._key(number, *pair)
        self._rest_of_right()
        lower, upper = bounds
        joined = projected(left, self.ours).join(
            projected(right, self.theirs),
            self.on,
            between=(f"{lower} ms", f"{upper} ms"),
            how=self.how,
        )
        return Relation(joined.rows, tuple(self._names()), windows=self._windows())

    def _windows(self) -> WindowBounds | None:
        """The windows of both sides, first of the one whose time the results have."""
        left, right = self.left.windows, self.right.windows
        left = left and left.among(name for _, name in self.ours)
        only_left = self.how in ("semi", "anti")
        moved = {} if only_left else {old: [name] for old, name in self.moved.items()}
        right = right and right.called(moved)
        found = of_join(right, left) if self.how == "right" else of_join(left, right)
        # Of a full join either side may be missing.
        return found.unknown() if found is not None and self.how == "full" else found

    def _kept(self, relation: Relation) -> list[str]:
        """The columns of a side that are used, and its time."""
        columns = relation.stream.df.columns
        if self.needed is None:
            return columns
        wanted = {k.column for k in relation.names if k.name.lower() in self.needed}
        return [name for name in columns if name in wanted or name == relation.time]

    def _key(self, number: int, ours: exp.Expr, theirs: exp.Expr) -> None:
        """A column that both sides have under one name and with one type."""
        types = _type(self.left.stream, text_of(ours)), _type(self.right.stream, text_of(theirs))
        if self._is_shared(ours, theirs) and types[0] == types[1]:
            name = ours.name
            if name not in [known for _, known in self.ours]:
                self.ours.append((quoted(name), name))
            self.moved[theirs.name] = name
            self.theirs.append((quoted(theirs.name), name))
        else:
            taken = {*self.left.stream.df.columns, *self.right.stream.df.columns}
            name = free_name(f"_key{number}", taken)
            cast = _common(types, ours, theirs)
            self.ours.append((cast.format(text_of(ours)), name))
            self.theirs.append((cast.format(text_of(theirs)), name))
        self.on.append(name)

    def _is_shared(self, ours: exp.Expr, theirs: exp.Expr) -> bool:
        """Whether both columns may be one: they can't differ in any row of the result."""
        return (
            self.how in ("inner", "semi", "anti")
            and isinstance(ours, exp.Column)
            and isinstance(theirs, exp.Column)
            and ours.name not in (*self.on, self.left.time)
            and theirs.name not in (*self.moved, self.right.time)
        )

    def _rest_of_right(self) -> None:
        kept = self._kept(self.right)
        if self.how in ("semi", "anti"):
            kept = [str(self.right.time)]
        table = self.right.names[0].table
        taken = {*self.left.stream.df.columns, *self.on}
        for column in kept:
            if column in self.moved:
                continue
            lower = {name.lower() for name in taken}
            name = free_name(f"{table}_{column}", taken) if column.lower() in lower else column
            taken.add(name)
            self.moved[column] = name
            self.theirs.append((quoted(column), name))

    def _names(self) -> list[Known]:
        once = [name.lower() for name in self.using]
        kept = {name for _, name in self.ours}
        ours = [known for known in self.left.names if known.column in kept]
        theirs = [
            Known(known.table, known.name, self.moved[known.column])
            for known in self.right.names
            if known.column in self.moved
        ]
        if once and self.how == "full":
            refuse("USING in a full join", "say ON a.k = b.k, and coalesce(a.k, b.k)")
        given = theirs if self.how == "right" else ours
        # Columns of USING come first, as Spark has them.
        first = [k for name in once for k in given if k.name.lower() == name]
        rest = ours if self.how in ("semi", "anti") else ours + theirs
        return first + [k for k in rest if k.name.lower() not in once]


def _type(stream: Stream, text: str) -> str:
    from pyspark.errors import PySparkException

    from holdfast.spark.jvm.quiet import told_by_us

    try:
        with told_by_us():
            return str(stream.df.selectExpr(text).schema[0].dataType.simpleString())
    except PySparkException as error:
        words = str(error).split("\n\n")[0]
        raise InputError(f"SQL: Spark can't read {text}: {words}") from None


def _common(types: tuple[str, str], ours: exp.Expr, theirs: exp.Expr) -> str:
    """How to write a key such that both sides have the same type."""
    if types[0] == types[1]:
        return "{}"
    if types[0] in _WIDER and types[1] in _WIDER:
        return f"CAST({{}} AS {max(types, key=_WIDER.index)})"
    raise InputError(
        f"SQL: a join on {text_of(ours)} = {text_of(theirs)}, which are {types[0]} and {types[1]}",
        hint="cast one of them to the type of the other",
    )
