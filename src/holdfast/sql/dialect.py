"""Statements as trees, and parts of trees as text; functions are kept just as they were written."""

from __future__ import annotations

import re

from sqlglot import exp, parse
from sqlglot.errors import SqlglotError

from holdfast.errors import InputError
from holdfast.sql.grammar import TIMES, WINDOW_TABLES, WORDS, StreamSql, Units

__all__ = [
    "TIMES",
    "WINDOW_TABLES",
    "WORDS",
    "bracketed",
    "name_of",
    "parse_statement",
    "text_of",
    "written",
]

# What other databases have and Spark hasn't, and what it has instead.
_JSON = "say get_json_object(x, '$.name'), or from_json(x, 'name STRING').name"
_AS_JSON = (
    f"{_JSON}: both give a string as plain text, without its quotes, as ->> does; where a value is "
    "to stay JSON, to_json(from_json(x, 'name STRUCT<...>').name) writes it again"
)
_PATTERN = "say x RLIKE 'pattern'"
_INSTEAD = {
    **dict.fromkeys(["->>", "#>>"], _JSON),
    **dict.fromkeys(["->", "#>"], _AS_JSON),
    **dict.fromkeys(["~", "~*", "!", "SIMILAR TO", "GLOB"], _PATTERN),
    "AT TIME ZONE": "say from_utc_timestamp(ts, 'Europe/Berlin'), or convert_timezone(from, to, ts)",
    "??": "say coalesce(x, y)",
}


def parse_statement(statement: str) -> exp.Expr:
    """The statement as a tree."""
    try:
        found = [tree for tree in parse(statement, dialect=StreamSql) if tree is not None]
    except SqlglotError as error:
        words = " ".join(str(error).replace("\x1b[4m", "»").replace("\x1b[0m", "«").split())
        words = re.sub("Required keyword: .*?>[.]", "Something is missing.", words)
        near = [word for word in _INSTEAD if f"»{word}«" in words or f"no {word}." in words]
        raise InputError(
            f"SQL: the statement can't be read: {words}",
            hint=_INSTEAD[near[0]] if near else "write it the way Spark's SQL has it",
        ) from None
    if len(found) != 1:
        raise InputError(
            f"SQL: {len(found)} statements in one text", hint="call hf.sql once per statement"
        )
    return found[0]


def text_of(node: exp.Expr) -> str:
    """A part of a statement as Spark reads it."""
    return str(node.sql(dialect=StreamSql, comments=False))


def written(node: exp.Expr) -> str:
    """The same with names of functions in the capitals they were written in."""
    return str(node.sql(dialect=StreamSql, comments=False, normalize_functions=False))


def bracketed(node: exp.Expr) -> str:
    """The same with every operator in parentheses, and without what is in window tables."""
    made: exp.Expr = exp.Paren(this=node.copy())
    for each in list(made.walk()):
        if WORDS in each.meta:
            each.set("expressions", [])
        if _is_open(each):
            around = exp.Paren()
            each.replace(around)
            around.set("this", each)
    return written(made.this)


def _is_open(node: exp.Expr) -> bool:
    """Whether it depends on what an operator binds, or its neighbours do, what it means."""
    if not isinstance(node, exp.Binary | exp.Unary | exp.Between | exp.In):
        return False
    if isinstance(node, exp.Paren | exp.Dot | exp.Kwarg | exp.PropertyEQ | Units):
        return False
    around = node.parent
    if isinstance(around, exp.Paren | exp.Interval | exp.Escape | Units):
        return False
    # Spark reads a AND b AND c as one list.
    return not (isinstance(node, exp.Connector) and type(around) is type(node))


def name_of(node: exp.Expr) -> str | None:
    """The name of the function that is called, in capitals; None if it is no call."""
    if isinstance(node, exp.Anonymous):
        return str(node.name).upper()
    return str(node.sql_name()).upper() if isinstance(node, exp.Func) else None
