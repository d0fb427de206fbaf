"""Says by name what a statement has that can't be done: nothing is left out in silence."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NoReturn

from sqlglot import exp

from holdfast.errors import InputError
from holdfast.sql.dialect import WINDOW_TABLES, name_of, text_of
from holdfast.sql.grammar import Units

__all__ = [
    "AGGREGATES",
    "EXPLODED",
    "GENERATORS",
    "check_arguments",
    "check_scalar",
    "check_ungrouped",
    "check_windows",
    "refuse",
]

# Spark's own, of its registry of functions.
_AGGREGATES = """
    ANY ANY_VALUE APPROX_COUNT_DISTINCT APPROX_PERCENTILE APPROX_TOP_K APPROX_TOP_K_ACCUMULATE
    APPROX_TOP_K_COMBINE ARRAY_AGG AVG BITMAP_AND_AGG BITMAP_CONSTRUCT_AGG BITMAP_OR_AGG BIT_AND
    BIT_OR BIT_XOR BOOL_AND BOOL_OR COLLECT_LIST COLLECT_SET COLLECT_UNION CORR COUNT COUNT_IF
    COUNT_MIN_SKETCH COVAR_POP COVAR_SAMP EVERY FIRST FIRST_VALUE GROUPING GROUPING_ID
    HISTOGRAM_NUMERIC HLL_SKETCH_AGG HLL_UNION_AGG KLL_MERGE_AGG_BIGINT KLL_MERGE_AGG_DOUBLE
    KLL_MERGE_AGG_FLOAT KLL_SKETCH_AGG_BIGINT KLL_SKETCH_AGG_DOUBLE KLL_SKETCH_AGG_FLOAT KURTOSIS
    LAST LAST_VALUE LISTAGG MAX MAX_BY MEAN MEASURE MEDIAN MIN MIN_BY MODE PERCENTILE
    PERCENTILE_APPROX PERCENTILE_CONT PERCENTILE_DISC REGR_AVGX REGR_AVGY REGR_COUNT REGR_INTERCEPT
    REGR_R2 REGR_SLOPE REGR_SXX REGR_SXY REGR_SYY SKEWNESS SOME STD STDDEV STDDEV_POP STDDEV_SAMP
    STRING_AGG SUM THETA_INTERSECTION_AGG THETA_SKETCH_AGG THETA_UNION_AGG TRY_AVG TRY_SUM
    TUPLE_INTERSECTION_AGG_DOUBLE TUPLE_INTERSECTION_AGG_INTEGER TUPLE_SKETCH_AGG_DOUBLE
    TUPLE_SKETCH_AGG_INTEGER TUPLE_UNION_AGG_DOUBLE TUPLE_UNION_AGG_INTEGER VARIANCE VAR_POP
    VAR_SAMP"""
AGGREGATES = frozenset(_AGGREGATES.split())
_GENERATORS = """
    EXPLODE EXPLODE_OUTER INLINE INLINE_OUTER POSEXPLODE POSEXPLODE_OUTER STACK JSON_TUPLE
    VARIANT_EXPLODE VARIANT_EXPLODE_OUTER"""
GENERATORS = frozenset(_GENERATORS.split())
_WINDOW_PARTS = {f"{name}_{part}" for name in WINDOW_TABLES for part in ("START", "END", "ROWTIME")}
_SPARKS_WINDOWS = ("WINDOW", "SESSION_WINDOW", "WINDOW_TIME")
_WINDOWS = {*WINDOW_TABLES, *_WINDOW_PARTS, "PROCTIME", "DESCRIPTOR"}

_UNEVEN = re.compile("(month|quarter|year)s?\\b", re.IGNORECASE)

EXPLODED = (
    "do it before, of the rows of FROM: hf.sql(..., t=t.transform(lambda df: df.selectExpr('*', "
    "'explode(x) AS y'))); join streams in a statement of their own first"
)
# What clauses are called by those who write them, and what to do instead.
_CLAUSES = {
    "order": ("ORDER BY", "a stream has no end to sort at: take the first rows with ROW_NUMBER()"),
    "limit": ("LIMIT", "take the first rows of each group with ROW_NUMBER() and WHERE rn <= n"),
    "offset": ("OFFSET", "take the first rows of each group with ROW_NUMBER() and WHERE rn <= n"),
    "fetch": ("FETCH", "take the first rows of each group with ROW_NUMBER() and WHERE rn <= n"),
    "laterals": ("LATERAL VIEW", EXPLODED),
    "qualify": ("QUALIFY", "put the ROW_NUMBER() into a subquery and say WHERE rn <= n around it"),
    "sort": ("SORT BY", None),
    "distribute": ("DISTRIBUTE BY", None),
    "cluster": ("CLUSTER BY", None),
    "windows": ("WINDOW", "write the window into OVER (...)"),
    "into": ("INTO", "say where rows go with write_to(...)"),
    "locks": ("FOR UPDATE", None),
    "hint": ("a hint", None),
    "sample": ("TABLESAMPLE", "filter, for example by a hash of a key"),
    "pivots": ("PIVOT", "use aggregates with FILTER (WHERE ...)"),
    "version": ("a version of a table", "use orders.join_as_of(rates, on=...)"),
    "match": ("MATCH_RECOGNIZE", "write a hf.KeyedProcess"),
    "connect": ("CONNECT BY", None),
    "recursive": ("WITH RECURSIVE", None),
    "using": ("USING", None),
    "totals": ("WITH TOTALS", None),
    "rollup": ("ROLLUP", "write a statement for each set of columns and UNION ALL"),
    "cube": ("CUBE", "write a statement for each set of columns and UNION ALL"),
    "grouping_sets": ("GROUPING SETS", "write a statement for each set and UNION ALL"),
    "all": ("GROUP BY ALL", "name the columns"),
    "by_name": ("UNION BY NAME", "name the columns in the same order in both"),
    "spec": ("a frame (ROWS BETWEEN ...)", "leave it out"),
    "on": ("DISTINCT ON", "use ROW_NUMBER() with WHERE rn = 1"),
}


def refuse(what: str, hint: str | None = None) -> NoReturn:
    """Raise for something that is not supported."""
    raise InputError(f"SQL: {what} is not supported", hint=hint)


def check_arguments(node: exp.Expr, known: Collection[str]) -> None:
    """Raise if a clause has a part that isn't among those known."""
    for name, value in node.args.items():
        plain = name.rstrip("_")
        if not value or plain in known:
            continue
        fallback = f"{plain.upper().replace('_', ' ')} in {type(node).__name__.upper()}"
        what, hint = _CLAUSES.get(plain, (fallback, None))
        refuse(what, hint)


def check_scalar(node: exp.Expr, where: str) -> None:
    """Raise for what can't be computed from one row alone."""
    for each in node.walk():
        if isinstance(each, exp.Query | exp.Subquery | exp.Exists):
            refuse(f"a subquery in {where}", "join the streams instead")
        if isinstance(each, exp.Window):
            _refuse_window(each, where)
        if isinstance(each, exp.Star):
            refuse(f"* in {where}", "name the columns")
        if isinstance(each, exp.Placeholder | exp.Parameter | exp.SessionParameter):
            refuse(f"the parameter {text_of(each)}", "put the value into the text")
        if isinstance(each, exp.QueryTransform | exp.Command | exp.Lateral):
            refuse(text_of(each))
        liked = isinstance(each.parent, exp.Like | exp.ILike)
        if isinstance(each, exp.Any | exp.All) and not liked:
            refuse(f"{text_of(each)} in {where}", "say bool_or or bool_and, or exists(array, f)")
        _check_function(each, where)


def _check_function(node: exp.Expr, where: str) -> None:
    name = name_of(node)
    if name is None:
        return
    if name in AGGREGATES or isinstance(node, exp.AggFunc):
        refuse(f"the aggregate {name.lower()} in {where}", "aggregate in a subquery first")
    if name in GENERATORS:
        refuse(
            f"{name.lower()}",
            "select what it takes under a name, and do it behind: hf.sql(...).transform(lambda df: "
            f"df.selectExpr('*', '{name.lower()}(x)'))",
        )
    if name == "IDENTIFIER":
        refuse("IDENTIFIER(...)", "name the column")
    check_windows(node)
    check_ungrouped(node, where)


def check_ungrouped(node: exp.Expr, where: str) -> None:
    """Raise if it is a call of windows that GROUP BY doesn't have."""
    name = name_of(node)
    if name not in _WINDOWS:
        return
    kind = name if name in WINDOW_TABLES else name.rpartition("_")[0]
    if kind not in WINDOW_TABLES:
        refuse(f"{name} in {where}", "windows are GROUP BY TUMBLE(...), HOP(...) or SESSION(...)")
    ours = ", ".join(map(text_of, node.expressions)) or "..."
    refuse(
        f"{name} in {where}",
        f"say GROUP BY {kind}({ours}), and in SELECT {kind}_START and {kind}_END with the same arguments",
    )


def check_windows(node: exp.Expr) -> None:
    """Raise if it is a call of Spark's own windows."""
    name = name_of(node)
    if name not in _SPARKS_WINDOWS:
        return
    refuse(f"Spark's {name.lower()}(...)", _instead_of_windows(name, node.expressions))


def _instead_of_windows(name: str, arguments: list[exp.Expr]) -> str:
    """What to say instead; no length is made up, as it would be taken over."""
    if name == "WINDOW_TIME":
        return (
            "say GROUP BY TUMBLE(...), HOP(...) or SESSION(...), and in SELECT the end of the "
            "window - INTERVAL '1' MICROSECOND"
        )
    if (hint := _unlike_ours(arguments)) is not None:
        return hint
    time, *lengths = arguments or [exp.column("ts")]
    known = [_length(each) for each in lengths]
    words = [each for each in known if each is not None]
    if len(words) < len(known):
        if name == "SESSION_WINDOW":
            return (
                "the gap of a SESSION must be constant here; for gaps that differ by row write a "
                "hf.KeyedProcess"
            )
        return "lengths of windows must be constant here, each written as an INTERVAL"
    if name == "SESSION_WINDOW":
        kind, times = "SESSION", words or ["gap"]
    elif len(words) < 2:
        kind, times = "TUMBLE", words or ["size"]
    else:
        # Spark has the length first. An offset is last in both.
        size, slide, *offset = words
        kind, times = "HOP", [slide, size, *offset]
    say = f"{kind}({', '.join([text_of(time), *times])})"
    return f"say GROUP BY {say}, and in SELECT {kind}_START and {kind}_END with the same arguments"


def _unlike_ours(arguments: list[exp.Expr]) -> str | None:
    """What to say for arguments that windows can't have here; None if they can."""
    if any(isinstance(each, exp.Kwarg) for each in arguments):
        return (
            "say GROUP BY TUMBLE(time, size), HOP(time, slide, size) or SESSION(time, gap), with the column "
            "of the watermark and each length as an INTERVAL; arguments have no names here"
        )
    if arguments and not isinstance(arguments[0], exp.Column):
        return (
            "windows are by the column of the watermark: compute what this is by in a step before, say "
            "with_watermark(...) with that, and GROUP BY TUMBLE(...), HOP(...) or SESSION(...) by it"
        )
    if any(_UNEVEN.search(_length(each) or "") for each in arguments[1:]):
        return "months and years differ in length: windows are of WEEK, DAY, HOUR, MINUTE or SECOND"
    return None


def _length(node: exp.Expr) -> str | None:
    """A length of Spark's windows as an interval; None if it isn't written out."""
    if isinstance(node, exp.Literal) and node.is_string:
        return f"INTERVAL {text_of(node)}"
    return text_of(node) if isinstance(node, exp.Interval | Units) else None


def _refuse_window(node: exp.Window, where: str) -> NoReturn:
    name = (name_of(node.this) or text_of(node.this)).lower()
    if name == "row_number":
        refuse(
            f"row_number() in {where}",
            "select it under a name in a subquery, and say WHERE rn <= n around it",
        )
    refuse(f"the window function {name}", "of these there is only ROW_NUMBER()")
