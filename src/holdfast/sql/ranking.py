"""ROW_NUMBER() with a bound: the first rows of each key."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from holdfast.choices import SortOrder
from holdfast.errors import InputError
from holdfast.operators.window.spec import WINDOW_END
from holdfast.sql.aggregates import ReadColumns
from holdfast.sql.bounds import WindowBounds
from holdfast.sql.dialect import name_of, text_of
from holdfast.sql.expressions import columns_in, whole_number
from holdfast.sql.grouping import Item
from holdfast.sql.refuse import check_arguments, check_scalar, refuse
from holdfast.sql.relation import (
    Known,
    Rank,
    Relation,
    changes_of,
    must_append,
    projected,
)
from holdfast.types import quoted

__all__ = ["bounded", "is_row_number", "ranked"]

_ALL = "_all"
_CHANGE = "change"


def is_row_number(node: exp.Expr) -> bool:
    """Whether a column of SELECT is a row number."""
    return isinstance(node, exp.Window) and name_of(node.this) == "ROW_NUMBER"


def ranked(relation: Relation, items: list[Item], windows: WindowBounds | None) -> Relation:
    """Rows that wait for a bound of their row number."""
    must_append(relation, "ROW_NUMBER()")
    numbers = [item for item in items if is_row_number(item.node)]
    if len(numbers) > 1:
        refuse("more than one ROW_NUMBER() in a SELECT", "use one per subquery")
    window = numbers[0].node
    assert isinstance(window, exp.Window)
    check_arguments(window, {"this", "partition_by", "order", "over"})
    inputs = ReadColumns(relation.time)
    for item in items:
        if item is not numbers[0]:
            check_scalar(item.node, "SELECT")
            inputs.items[item.name] = text_of(item.node)
    inputs.add_time()
    parts = window.args.get("partition_by") or []
    keys = [_added(inputs, each, "PARTITION BY") for each in parts]
    end = _end(relation, {text_of(each) for each in parts}, inputs)
    if end is not None and end not in keys:
        keys.append(end)
    if not keys:
        keys = [inputs.add(exp.Literal.number(1), _ALL)]
    clause = window.args.get("order")
    order = [_ordered(inputs, each) for each in (clause.expressions if clause else ())]
    if not order:
        raise InputError("SQL: ROW_NUMBER() needs an order", hint="add ORDER BY to OVER (...)")
    return Relation(
        projected(relation.stream, inputs.projection),
        tuple(Known(None, item.name, item.name) for item in items),
        relation.changes,
        windows,
        rank=Rank(numbers[0].name, tuple(keys), tuple(order), end),
    )


def _end(relation: Relation, parts: set[str], inputs: ReadColumns) -> str | None:
    """The column with the end of the windows, if rows are numbered in each window."""
    mark, windows = relation.stream.watermark, relation.windows or WindowBounds(None)
    ends = windows.ends | ({mark.column} if mark is not None and mark.is_end else set())
    if not parts & set(map(quoted, windows.bounds | ends)):
        return None
    # The time may be an end that a step has made anew: only a part that is the time tells it then.
    told = windows.ends if parts & set(map(quoted, windows.telling)) else ends
    if mark is not None and parts & set(map(quoted, windows.telling | ends)):
        end = mark.column if mark.column in told else min(told)
        return inputs.add(exp.column(exp.to_identifier(end, quoted=True)), end)
    if mark is not None and ends:
        end = relation.spoken_time if mark.column in ends else min(ends)
        hint = f"add {end} to PARTITION BY: rows of windows that end apart are numbered apart then"
    else:
        hint = (
            f"select {WINDOW_END} in the subquery, too, and if it has no GROUP BY the column with the "
            f"time, and add {WINDOW_END} to PARTITION BY: else nobody knows when a window is complete. "
            "The results of a FULL JOIN have no time"
        )
    return refuse("PARTITION BY bounds of windows that don't say when these end", hint)


def _added(inputs: ReadColumns, node: exp.Expr, where: str) -> str:
    check_scalar(node, where)
    return inputs.add(node, "_by")


def _ordered(inputs: ReadColumns, node: exp.Expr) -> tuple[str, bool]:
    descending = bool(node.args.get("desc"))
    if not isinstance(node, exp.Ordered) or bool(node.args.get("nulls_first")) == descending:
        refuse(
            f"ORDER BY {text_of(node)}",
            "nulls count as the least value: they come first, or with DESC last",
        )
    check_arguments(node, {"this", "desc", "nulls_first"})
    return _added(inputs, node.this, "ORDER BY"), descending


def bounded(
    relation: Relation, where: list[exp.Expr], select: exp.Select
) -> tuple[Relation, list[exp.Expr]]:
    """The first rows of each key, by the condition on their number, and the other conditions."""
    rank = relation.rank
    assert rank is not None
    name = relation.spoken_rank
    found = [(each, n) for each in where if (n := _bound(each, relation)) is not None]
    if not found:
        refuse(f"ROW_NUMBER() without a bound, as {name!r},", f"say WHERE {name} <= n around it")
    condition, n = min(found, key=lambda pair: pair[1])
    if n < 1:
        raise InputError(f"SQL: {text_of(condition)} is true for no row")
    rest = [each for each in where if each is not condition]
    if isinstance(condition, exp.EQ) and n > 1:
        rest.append(condition)
    used = _uses(select, rest, name)
    keyed = relation.stream.key_by(*rank.keys)
    order: list[tuple[str, SortOrder]] = [
        (name, "desc" if down else "asc") for name, down in rank.order
    ]
    named = rank.name if used else None
    if rank.end is not None and relation.time is not None:
        result = keyed.top(n, order, rank=named, until=rank.end, output_mode="append")
    else:
        result = keyed.top(n, order, rank=named)
    names = [known for known in relation.names if used or known.column != rank.name]
    changes = changes_of(result)
    if changes == "retract":
        names.append(Known(relation.names[0].table, _CHANGE, _CHANGE))
    windows = relation.windows if changes == "append" else None
    stream = result.rows
    return replace(
        relation, stream=stream, names=tuple(names), changes=changes, rank=None, windows=windows
    ), rest


def _bound(node: exp.Expr, relation: Relation) -> int | None:
    """The n of ``rn <= n``, ``rn < n + 1`` and ``rn = n``."""
    while isinstance(node, exp.Paren):
        node = node.this
    if not isinstance(node, exp.LTE | exp.LT | exp.EQ | exp.GTE | exp.GT):
        return None
    left, right = node.this, node.expression
    swapped = isinstance(node, exp.GTE | exp.GT)
    if isinstance(node, exp.EQ) and isinstance(left, exp.Literal):
        swapped = True
    if swapped:
        left, right = right, left
    n = whole_number(right)
    if n is None or not isinstance(left, exp.Column):
        return None
    known, fields = relation.find([part.name for part in left.parts])
    if fields or relation.rank is None or known.column != relation.rank.name:
        return None  # A field of a struct may have the number's name.
    return n - 1 if isinstance(node, exp.LT | exp.GT) else n


def _uses(select: exp.Select, rest: list[exp.Expr], rank: str) -> bool:
    """Whether the number itself is wanted."""
    clauses = [*rest, *select.expressions]
    clauses += [select.args[name] for name in ("group", "having") if select.args.get(name)]
    for clause in clauses:
        if isinstance(clause, exp.Star) or any(
            isinstance(column.this, exp.Star) or column.name.lower() == rank.lower()
            for column in columns_in(clause)
        ):
            return True
    return False
