"""Windows in SQL: tables that are cut by time, and GROUP BY TUMBLE(...)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import NoReturn

from sqlglot import exp

from holdfast.errors import InputError
from holdfast.operators.window.spec import (
    WINDOW_END,
    WINDOW_START,
    SessionGap,
    Sliding,
    Tumbling,
    WindowSpec,
)
from holdfast.sql.bounds import cut_into
from holdfast.sql.dialect import WINDOW_TABLES, name_of, text_of
from holdfast.sql.expressions import columns_in, interval_ms
from holdfast.sql.refuse import refuse
from holdfast.sql.relation import Cut, Known, Relation, free_name, must_append, projected
from holdfast.types import quoted

__all__ = [
    "bounds_in",
    "cut_table",
    "grouped_window",
    "refuse_bound",
    "spread",
    "window_part",
]

_SHAPES = {
    "TUMBLE": "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
    "HOP": "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)",
    "SESSION": "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
}


def _spec(name: str, times: list[exp.Expr]) -> WindowSpec:
    lengths = [_whole(interval_ms(time)) for time in times]
    if name == "TUMBLE" and len(lengths) in (1, 2):
        return Tumbling(lengths[0], lengths[1] if len(lengths) == 2 else 0)
    if name == "HOP" and len(lengths) in (2, 3):
        return Sliding(lengths[1], lengths[0], lengths[2] if len(lengths) == 3 else 0)
    if name == "SESSION" and len(lengths) == 1:
        return SessionGap(lengths[0])
    if name not in _SHAPES:
        refuse(f"{name} windows", "use TUMBLE, HOP or SESSION")
    raise InputError(f"SQL: {name} has {len(lengths)} times", hint=f"say {_SHAPES[name]}")


def _whole(length: Fraction) -> int:
    if length.denominator != 1:
        refuse("a window that is not a whole number of milliseconds long")
    return int(length)


def _check_time(node: exp.Expr, relation: Relation, name: str) -> None:
    """The windows of a stream are those of its watermark's column."""
    if not isinstance(node, exp.Column):
        raise InputError(
            f"SQL: {name} is by {text_of(node)}, which is no column",
            hint="name the column with the event time",
        )
    known, fields = relation.find([part.name for part in node.parts])
    if relation.time is None:
        raise InputError(
            f"SQL: {name} needs to know when rows happened, but the stream has no watermark",
            hint=f'say with_watermark("{known.name}", "10 seconds") on the stream',
        )
    if known.column != relation.time or fields:
        raise InputError(
            f"SQL: {name} is by {text_of(node)}, but the watermark is on {relation.time!r}",
            hint=f"say DESCRIPTOR({relation.time}), or give the stream another watermark",
        )


def cut_table(call: exp.Anonymous, relation: Relation) -> Relation:
    """``FROM TUMBLE(TABLE t, DESCRIPTOR(ts), …)``: the rows, to be cut into windows."""
    name = name_of(call) or ""
    must_append(relation, name)
    relation = _under_its_names(relation)
    first, *rest = call.expressions
    descriptor = rest[0] if rest else None
    if (
        descriptor is None
        or name_of(descriptor) != "DESCRIPTOR"
        or len(descriptor.expressions) != 1
    ):
        raise InputError(
            f"SQL: {name} doesn't say which column has the time",
            hint=f"say {_SHAPES.get(name, _SHAPES['TUMBLE'])}",
        )
    spec = _spec(name, rest[1:])
    _check_time(descriptor.expressions[0], relation, name)
    keys = None
    if isinstance(spec, SessionGap):
        keys = tuple(_key(column, relation) for column in first.args.get("partition_by") or ())
    elif first.args.get("partition_by"):
        refuse(f"PARTITION BY in {name}", "leave it out and group by the columns")
    for bound in (WINDOW_START, WINDOW_END):
        if any(known.name.lower() == bound for known in relation.names):
            raise InputError(
                f"SQL: the table of {name} already has a column {bound!r}",
                hint="rename it in a subquery, or GROUP BY it: results of windows can be grouped again",
            )
    table = relation.names[0].table
    bounds = tuple(Known(table, bound, bound) for bound in (WINDOW_START, WINDOW_END))
    return replace(relation, names=(*relation.names, *bounds), cut=Cut(spec, keys))


def _under_its_names(relation: Relation) -> Relation:
    """The same, if a column is called as a bound in the stream alone: it has a new name by WITH t(a, b)."""
    named = {known.column: [known.name] for known in relation.names}
    if not {WINDOW_START, WINDOW_END} & named.keys():
        return relation
    return replace(
        relation,
        stream=projected(relation.stream, [(quoted(old), new) for old, (new,) in named.items()]),
        names=tuple(replace(known, column=known.name) for known in relation.names),
        windows=relation.windows and relation.windows.called(named),
    )


def _key(column: exp.Expr, relation: Relation) -> str:
    if not isinstance(column, exp.Column):
        refuse(f"PARTITION BY {text_of(column)}", "name a column; compute it in a subquery")
    known, fields = relation.find([part.name for part in column.parts])
    if fields:
        refuse(f"PARTITION BY {text_of(column)}", "name a column; compute it in a subquery")
    return known.column


def bounds_in(node: exp.Expr, relation: Relation) -> list[str]:
    """The bounds that an expression names of windows that rows will be cut into behind."""
    columns = relation.stream.df.columns
    found = (relation.find([part.name for part in each.parts])[0] for each in columns_in(node))
    return [known.name for known in found if known.column not in columns]


def refuse_bound(bound: str, where: str, cut: Cut, hint: str | None = None) -> NoReturn:
    """Raise for a bound of windows in what is asked of each row: only groups have one."""
    if hint is None and isinstance(cut.spec, Tumbling):
        hint = "select the rows with their bounds in a subquery, (SELECT * FROM TUMBLE(...)), and group those"
    refuse(f"{bound} in {where}", hint or "use key_by(...).window(...).apply(function, columns)")


def spread(relation: Relation) -> Relation:
    """Rows with the bounds of the windows that they are in, a row for each."""
    assert relation.cut is not None
    spec = relation.cut.spec
    if not isinstance(spec, Tumbling | Sliding):
        refuse(
            "a SESSION without GROUP BY window_start, window_end",
            "where a session ends is known when it is complete: group by it",
        )
    times = [spec.size_ms, spec.slide_ms, spec.offset_ms % spec.slide_ms]
    words = ", ".join(f"'{ms} milliseconds'" for ms in times)
    stream = relation.stream
    columns = [(quoted(name), name) for name in stream.df.columns]
    time = quoted(relation.time or "")
    if stream.watermark is not None and stream.watermark.is_end:
        time += " - INTERVAL '1' MICROSECOND"  # Results are of the moment before their end.
    window = f"window({time}, {words})"
    name = free_name("_window", stream.df.columns)
    stream = projected(stream, [*columns, (window, name)])
    bounds = [(f"`{name}`.`start`", WINDOW_START), (f"`{name}`.`end`", WINDOW_END)]
    stream = projected(stream, [*columns, *bounds], into=spec)
    windows = cut_into(spec, relation.windows, stream.df.columns, relation.time)
    return replace(relation, stream=stream, cut=None, windows=windows)


def grouped_window(node: exp.Expr, relation: Relation) -> Cut | None:
    """``TUMBLE(ts, INTERVAL '10' SECOND)`` as something to group by; None if it isn't that."""
    name = name_of(node)
    if name not in WINDOW_TABLES or not isinstance(node, exp.Anonymous):
        return None
    if not node.expressions:
        raise InputError(f"SQL: {name} is empty", hint=f"say {name}(ts, INTERVAL '10' SECOND)")
    time, *lengths = node.expressions
    spec = _spec(str(name), lengths)
    _check_time(time, relation, str(name))
    return Cut(spec)


def window_part(node: exp.Expr, relation: Relation, cut: Cut) -> str | None:
    """The column of ``TUMBLE_START(ts, …)`` and ``TUMBLE_END(ts, …)``; None if it isn't that."""
    kind, _, part = (name_of(node) or "").rpartition("_")
    if kind not in WINDOW_TABLES or not isinstance(node, exp.Anonymous):
        return None
    same = exp.Anonymous(this=kind, expressions=[each.copy() for each in node.expressions])
    if part not in ("START", "END"):
        refuse(f"{kind}_{part}", f"use {kind}_END")
    found = grouped_window(same, relation)
    if found is None or found.spec != cut.spec:
        raise InputError(
            f"SQL: {text_of(node)} is of other windows than GROUP BY has",
            hint=f"give {kind}_{part} the arguments of {kind}",
        )
    return WINDOW_START if part == "START" else WINDOW_END
