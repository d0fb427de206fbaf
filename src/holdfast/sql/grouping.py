"""GROUP BY: what becomes keys, windows and aggregates, and what is computed of them behind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from holdfast.errors import InputError
from holdfast.operators.window.spec import (
    WINDOW_END,
    WINDOW_START,
    Sliding,
    Tumbling,
    WindowSpec,
)
from holdfast.sql.aggregates import ReadColumns, aggregate_of, is_aggregate
from holdfast.sql.bounds import WindowBounds, cut_into
from holdfast.sql.dialect import name_of, text_of
from holdfast.sql.expressions import resolved, whole_number
from holdfast.sql.forgetting import check_no_bound
from holdfast.sql.refuse import check_arguments, check_scalar, check_ungrouped, refuse
from holdfast.sql.relation import (
    Cut,
    Known,
    Relation,
    changes_of,
    filtered,
    free_name,
    must_append,
    projected,
)
from holdfast.sql.timing import bounds_in, grouped_window, refuse_bound, window_part
from holdfast.types import quoted

if TYPE_CHECKING:
    from holdfast.aggregates import Aggregate
    from holdfast.stream import ResultStream

__all__ = ["Item", "group", "groups_rows"]

_ALL = "_all"
_COUNT = "_rows"


@dataclass(frozen=True)
class Item:
    """A column of the result: what it is called, and what it is over the stream's columns."""

    name: str
    node: exp.Expr
    table: str | None = None
    unnamed: str | None = None
    """How it is written, if no name was given to it."""


def groups_rows(select: exp.Select) -> bool:
    """Whether a SELECT has aggregates or groups."""
    parts = [*select.expressions, select.args.get("having")]
    # What a subquery has is its own.
    calls = (
        each
        for part in parts
        if part is not None
        for each in part.walk(prune=lambda node: isinstance(node, exp.Query))
    )
    return select.args.get("group") is not None or any(
        is_aggregate(each) and not isinstance(each.parent, exp.Window) for each in calls
    )


def group(select: exp.Select, relation: Relation, items: list[Item]) -> tuple[Relation, list[Item]]:
    """The groups of a SELECT, and its columns over them."""
    must_append(relation, "GROUP BY or an aggregate")
    grouping = _Grouping(select, relation, items)
    rewritten = [replace(item, node=grouping.over_groups(item.node, item.name)) for item in items]
    having = select.args.get("having")
    condition = None
    if having is not None:
        check_arguments(having, {"this"})
        if having.find(exp.Query) is not None:
            refuse("a subquery in HAVING", "join the streams instead")
        written = _without_aliases(having.this, select, relation)
        node = grouping.over_groups(resolved(written, relation), None)
        check_scalar(node, "HAVING")
        condition = text_of(node)
    grouped = grouping.made()
    if condition is not None:
        grouped = replace(grouped, stream=filtered(grouped.stream, condition))
    return grouped, rewritten


class _Grouping:
    def __init__(self, select: exp.Select, relation: Relation, items: list[Item]) -> None:
        # Everything from here on is over the columns of the stream.
        columns = [*relation.stream.df.columns, *_bounds(relation)]
        self.relation = replace(relation, names=tuple(Known(None, c, c) for c in columns))
        self.inputs = ReadColumns(relation.time)
        self.keys: dict[str, str] = {}
        self.bounds: dict[str, str] = {}
        """Columns that hold the bounds of the windows, and which of the two."""
        self.cut = relation.cut
        self.groups_results = False
        """Whether the rows are results of windows, which are grouped once more."""
        self.aggregates: dict[str, Aggregate] = {}
        self.calls: dict[str, str] = {}
        if relation.cut is not None:
            self.bounds = {quoted(bound): bound for bound in (WINDOW_START, WINDOW_END)}
        nodes = [resolved(each, relation) for each in _group_nodes(select, relation)]
        bound = [node for node in nodes if self._is_cut(node)]
        if self.cut is None:
            bound = self._use_windows_of_rows(nodes)
        for node in nodes:
            if node not in bound:
                if self.cut is None:
                    check_no_bound(node, nodes, relation)
                self._key(node, items)
        self._check_cut(bound)

    def _is_cut(self, node: exp.Expr) -> bool:
        """Whether it cuts rows into windows, or is a bound of those that FROM cuts them into."""
        cut = grouped_window(node, self.relation)
        if cut is None:
            return text_of(node) in self.bounds
        if self.cut is not None:
            raise InputError("SQL: two windows in one GROUP BY", hint="use one, or group twice")
        self.cut = cut
        return True

    def _use_windows_of_rows(self, nodes: list[exp.Expr]) -> list[exp.Expr]:
        """Those of the nodes that are bounds of windows that rows are already in, or are results of."""
        mark, windows = self.relation.stream.watermark, self.relation.windows
        if mark is None or windows is None:
            return []
        spec, columns = windows.spec, windows.columns
        bound = [node for node in nodes if text_of(node) in columns]
        if not bound:
            return []
        if mark.is_end and mark.column in windows.ends and isinstance(spec, Tumbling | Sliding):
            # Results are of the moment before their end: between two ends there is no other.
            offset = (spec.offset_ms + spec.size_ms) % spec.slide_ms
            self.cut, self.groups_results = Cut(Tumbling(spec.slide_ms, offset)), True
        elif mark.column in windows.times and isinstance(spec, Tumbling):
            # Rows that were put into windows by their time, which they still have: each into one.
            self.cut = Cut(spec)
        else:
            return []
        self.bounds = columns
        return bound

    def _check_cut(self, bound: list[exp.Expr]) -> None:
        if self.cut is None:
            return
        if not bound:
            refuse(
                "a window without GROUP BY window_start, window_end",
                "add them to GROUP BY; without them groups would be of all time",
            )
        keys = self.cut.keys
        if keys is not None and {quoted(key) for key in keys} != set(self.keys):
            raise InputError(
                "SQL: a SESSION is kept by its PARTITION BY, and GROUP BY has other columns",
                hint="partition by what you group by: SESSION(TABLE t PARTITION BY k, ...) with "
                "GROUP BY k, window_start, window_end",
            )

    def _key(self, node: exp.Expr, items: list[Item]) -> None:
        check_scalar(node, "GROUP BY")
        text = text_of(node)
        if self.cut is not None and (bounds := bounds_in(node, self.relation)):
            refuse(
                f"{text} in GROUP BY, which is made of a bound of the windows in FROM",
                f"group by {bounds[0]} in its place: SELECT may have any expression over that, and there "
                "is a result for each window",
            )
        if text in self.keys:
            return
        wanted = next((item.name for item in items if text_of(item.node) == text), "_key")
        if self.cut is not None and node.name.lower() in (WINDOW_START, WINDOW_END):
            # The windows' own bounds are called so.
            name = free_name(f"_{node.name}", set(self.relation.stream.df.columns))
            self.inputs.items[name] = text
            self.keys[text] = name
        else:
            self.keys[text] = self.inputs.add(node, wanted)

    def over_groups(self, node: exp.Expr, name: str | None) -> exp.Expr:
        """An expression of SELECT or HAVING over the columns that the operator puts out."""
        whole = is_aggregate(node)

        def rewritten(each: exp.Expr) -> exp.Expr:
            if isinstance(each, exp.Window) and name_of(each.this) != "ROW_NUMBER":
                check_scalar(each, "SELECT")
            column = self._column(each, name if whole else None)
            return each if column is None else exp.column(exp.to_identifier(column, quoted=True))

        made: exp.Expr = node.copy().transform(rewritten)
        return made

    def _column(self, node: exp.Expr, name: str | None) -> str | None:
        if isinstance(node, exp.Ordered):  # Its text may be that of the column alone.
            return None
        text = text_of(node)
        if text in self.keys:
            return self.keys[text]
        if text in self.bounds:
            return self.bounds[text]
        if self.cut is not None and not self.groups_results:
            part = window_part(node, self.relation, self.cut)
            if part is not None:
                return part
        check_ungrouped(node, "SELECT")
        if isinstance(node, exp.Any) and not isinstance(node.parent, exp.Like | exp.ILike):
            check_scalar(node, "SELECT")  # It looks like an aggregate, and is read as none.
        if is_aggregate(node):
            return self._aggregate(node, text, name)
        if isinstance(node, exp.Column):
            self._refuse_column(node)
        return None

    def _refuse_column(self, node: exp.Column) -> NoReturn:
        from holdfast.spark.jvm.sqlparser import is_builtin

        session = self.relation.stream.df.sparkSession
        around = node.find_ancestor(exp.Anonymous)
        if around is not None and not is_builtin(session, around.name):
            raise InputError(
                f"SQL: {around.name} is no aggregate that there is here, and column {node.name!r} in "
                "it is not in GROUP BY",
                hint="aggregates of your own are not supported: say count, sum, ... (see docs/sql.md), "
                "or write a hf.KeyedProcess",
            )
        raise InputError(
            f"SQL: column {node.name!r} is neither in GROUP BY nor in an aggregate",
            hint=f"group by it, or say any_value({node.name}), max({node.name}), ...",
        )

    def _aggregate(self, node: exp.Expr, text: str, name: str | None) -> str:
        if text not in self.calls:
            if self.cut is not None and (bounds := bounds_in(node, self.relation)):
                refuse_bound(bounds[0], "an aggregate", self.cut)
            taken = {*self.keys.values(), *self.aggregates, WINDOW_START, WINDOW_END, _ALL}
            column = free_name(name or f"_{(name_of(_bare(node)) or 'value').lower()}", taken)
            self.aggregates[column] = aggregate_of(node, self.inputs)
            self.calls[text] = column
        return self.calls[text]

    def made(self) -> Relation:
        """The operator's results."""
        from holdfast.aggregates import count

        keys = list(self.keys.values())
        if self.cut is not None:
            self.inputs.add_time()
            return self._in_windows(keys, self.aggregates or {free_name(_COUNT, keys): count()})
        constant = () if keys else (self.inputs.add(exp.Literal.number(1), _ALL),)
        stream = projected(self.relation.stream, self.inputs.projection)
        keyed = stream.key_by(*keys, *constant)
        if self.aggregates:
            result = keyed.aggregate(**self.aggregates)
            return _results(replace(result, constant=constant), None)
        return _results(keyed.drop_duplicates(), None)

    def _in_windows(self, keys: list[str], aggregates: dict[str, Aggregate]) -> Relation:
        assert self.cut is not None
        stream = projected(self.relation.stream, self.inputs.projection)
        if keys:
            windows = stream.key_by(*keys).window(self.cut.spec)
        else:
            windows = stream.window(self.cut.spec)
        result = windows.aggregate(**aggregates)
        before = self.relation.windows
        spec = before.spec if self.groups_results and before is not None else self.cut.spec
        assert spec is not None
        kept = self._bounds_among_keys(before)
        relation = _results(result, cut_into(spec, kept, keys))
        return _as_before(relation, spec) if self.groups_results else relation

    def _bounds_among_keys(self, before: WindowBounds | None) -> WindowBounds | None:
        """Bounds of windows that rows were in, by which they are grouped besides."""
        if before is None:
            return None
        names = {
            bound: [self.keys[quoted(bound)]]
            for bound in before.bounds
            if quoted(bound) in self.keys
        }
        return before.called(names)


def _as_before(relation: Relation, spec: WindowSpec) -> Relation:
    """Results of results: their windows are those of the rows they were made of."""
    if not isinstance(spec, Sliding):
        return relation
    start = _before(relation, spec.size_ms)
    items = [
        (start if name == WINDOW_START else quoted(name), name)
        for name in relation.stream.df.columns
    ]
    return replace(relation, stream=projected(relation.stream, items))


def _before(relation: Relation, size_ms: int) -> str:
    """The time so much before the end of a window, which has that length in every time zone."""
    from pyspark.sql.types import TimestampNTZType

    end = quoted(WINDOW_END)
    if isinstance(relation.stream.df.schema[WINDOW_END].dataType, TimestampNTZType):
        return f"{end} - INTERVAL '{size_ms / 1000:.3f}' SECOND"
    # An INTERVAL of whole days is one of the days of the session's zone, some of which have 23 hours.
    return f"timestamp_micros(unix_micros({end}) - {size_ms * 1000})"


def _results(result: ResultStream, windows: WindowBounds | None) -> Relation:
    stream = result.rows
    names = tuple(Known(None, name, name) for name in stream.df.columns)
    return Relation(stream, names, changes_of(result), windows)


def _bounds(relation: Relation) -> list[str]:
    return [] if relation.cut is None else [WINDOW_START, WINDOW_END]


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        node = node.this
    return node


def _group_nodes(select: exp.Select, relation: Relation) -> list[exp.Expr]:
    """What is grouped by, with positions and aliases replaced by what they stand for."""
    clause = select.args.get("group")
    if clause is None:
        return []
    check_arguments(clause, {"expressions"})
    nodes = []
    for each in clause.expressions:
        node = each
        while isinstance(node, exp.Paren):
            node = node.this
        position = whole_number(node)
        if isinstance(node, exp.Tuple):
            refuse(f"GROUP BY {text_of(node)}", "leave out the parentheses")
        if isinstance(node, exp.GroupingSets | exp.Rollup | exp.Cube):
            refuse(text_of(node), "write a statement for each set of columns and UNION ALL")
        if position is not None:
            node = _at(select, position)
        nodes.append(_without_aliases(node, select, relation))
    return nodes


def _without_aliases(node: exp.Expr, select: exp.Select, relation: Relation) -> exp.Expr:
    """Names of SELECT replaced by what they stand for; columns of the input come first."""
    aliases = {e.alias.lower(): e.this for e in select.expressions if isinstance(e, exp.Alias)}
    known = {known.name.lower() for known in relation.names}

    def replaced(each: exp.Expr) -> exp.Expr:
        name = each.name.lower() if isinstance(each, exp.Column) and not each.table else ""
        if not name or name in known or name not in aliases:
            return each
        return exp.Paren(this=aliases[name].copy())

    made: exp.Expr = node.copy().transform(replaced)
    while isinstance(made, exp.Paren):
        made = made.this
    return made


def _at(select: exp.Select, position: int) -> exp.Expr:
    if not 1 <= position <= len(select.expressions):
        raise InputError(f"SQL: GROUP BY {position}: SELECT has no such column")
    node: exp.Expr = select.expressions[position - 1].unalias()
    if is_aggregate(node) or isinstance(node, exp.Star):
        raise InputError(f"SQL: GROUP BY {position} is {text_of(node)}", hint="name a column")
    return node
