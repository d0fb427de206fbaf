"""Groups and distinct rows of windows, of which nothing says when they can be forgotten, are refused."""

from __future__ import annotations

from sqlglot import exp

from holdfast.operators.window.spec import WINDOW_END, Tumbling
from holdfast.sql.bounds import WindowBounds
from holdfast.sql.dialect import text_of
from holdfast.sql.expressions import columns_in
from holdfast.sql.refuse import refuse
from holdfast.sql.relation import Relation
from holdfast.types import quoted

__all__ = ["check_distinct", "check_no_bound"]

_END_TOO = (
    f"select {WINDOW_END} in the subquery, too, {{}}and if it has no GROUP BY the column with the time, "
    "in UNION ALL as the same column of both sides: else nobody knows when a window is complete. "
    "The results of a FULL JOIN have no time"
)


def check_no_bound(node: exp.Expr, nodes: list[exp.Expr], relation: Relation) -> None:
    """Raise for a bound by which windows can't be told: groups would be kept for ever.

    ``nodes`` are all that GROUP BY has, and no window is among them.
    """
    bound = _bound_in(node, relation)
    if bound is None:
        return
    if isinstance(node, exp.Column):
        refuse(
            f"GROUP BY {bound}, which is a bound of windows, of these rows",
            _how_to_group(node, bound, nodes, relation),
        )
    refuse(
        f"GROUP BY {text_of(node)}, which is made of a bound of windows, of these rows",
        f"{_how_to_group(node, bound, nodes, relation)}. For a running aggregate, whose groups are kept "
        "for ever, select the expression under a name in a subquery, and group by that",
    )


def _bound_in(node: exp.Expr, relation: Relation) -> str | None:
    """The first column in an expression that holds a bound of windows."""
    bounds = (relation.windows or WindowBounds(None)).bounds
    if _is_end(relation):
        bounds |= {str(relation.time)}
    return next((each.name for each in columns_in(node) if each.name in bounds), None)


def _is_end(relation: Relation) -> bool:
    """Whether the time of the rows is the end of a window."""
    mark, windows = relation.stream.watermark, relation.windows or WindowBounds(None)
    return mark is not None and (mark.is_end or mark.column in windows.ends)


def _is_told(nodes: list[exp.Expr], relation: Relation) -> bool:
    """Whether columns among these tell the end of a row's window, which is its time."""
    windows = relation.windows or WindowBounds(None)
    # A step may have made the time anew: then it is no end of the windows that are known.
    told = windows.telling if relation.time in windows.ends else set()
    return bool({text_of(node) for node in nodes} & set(map(quoted, {*told, str(relation.time)})))


def _how_to_group(node: exp.Expr, bound: str, nodes: list[exp.Expr], relation: Relation) -> str:
    windows, time = relation.windows or WindowBounds(None), relation.spoken_time
    plain = isinstance(node, exp.Column)
    if relation.time is None:
        return _END_TOO.format("" if plain else "and group by it besides, ")
    if _is_end(relation):
        return _how_to_end(nodes, relation)
    if bound in windows.others:
        return (
            f"group by a window, too, as in GROUP BY ..., TUMBLE({time}, INTERVAL '1' HOUR): "
            "there is a result for each of its windows then"
        )
    if not plain and relation.time in windows.times and isinstance(windows.spec, Tumbling):
        return f"add {_spoken(bound, relation)} to GROUP BY: there is a result for each window then"
    return "say GROUP BY in the SELECT that has the windows in FROM"


def _how_to_end(nodes: list[exp.Expr], relation: Relation) -> str:
    """Rows that have the end of their windows: with it in GROUP BY, any window is a wider one."""
    end = relation.spoken_time
    call = f"TUMBLE({end}, INTERVAL '1' SECOND)"
    if _is_told(nodes, relation):
        return f"add {call} to GROUP BY: groups stay the same, and it says when they are complete"
    return (
        f"add {end} and {call} to GROUP BY: there is a result for each end of a window then, "
        "which says when it is complete"
    )


def _spoken(column: str, relation: Relation) -> str:
    """What a statement calls a column of the stream."""
    known = next(known for known in relation.names if known.column == column)
    return known.name if known.table is None else f"{known.table}.{known.name}"


def check_distinct(nodes: list[exp.Expr], relation: Relation, grouped: bool) -> None:
    """Raise for bounds of windows without the time of the rows: each would be kept for ever.

    ``nodes`` are the columns of SELECT over a relation; ``grouped`` says that it has groups.
    """
    if relation.time is not None and quoted(relation.time) in map(text_of, nodes):
        return
    made = next((each for each in nodes if _bound_in(each, relation) is not None), None)
    if made is None:
        return
    hint = _how_to_forget(nodes, made, relation, grouped)
    if not isinstance(made, exp.Column):
        hint += (
            ". For rows that are kept for ever, select the expression under a name in a subquery, and "
            "say SELECT DISTINCT of that"
        )
    refuse(f"DISTINCT of {text_of(made)}, a bound of windows, without the time of the rows", hint)


def _how_to_forget(nodes: list[exp.Expr], made: exp.Expr, relation: Relation, grouped: bool) -> str:
    windows, time = relation.windows or WindowBounds(None), relation.spoken_time
    if relation.time is None:
        return _END_TOO.format("and here, ")
    if _is_end(relation):
        if grouped:
            time = "the end of the windows (window_end, or TUMBLE_END(...) of TUMBLE in GROUP BY)"
        if _is_told(nodes, relation):
            return (
                f"add {time} to SELECT: rows stay the same, and it says when they can be forgotten"
            )
        return (
            f"add {time} to SELECT: there is a row for each end of a window then, which says when it "
            "can be forgotten"
        )
    if isinstance(made, exp.Column) and relation.time in windows.times and not grouped:
        return (
            "say GROUP BY in place of DISTINCT, in the SELECT that has the windows in FROM: the rows are "
            "the same, and come when their windows are complete"
        )
    return f"add {time} to SELECT: there is a row for each time then, which says when it can be forgotten"
