"""Whether a statement is understood as Spark understands it.

Another parser than Spark's takes statements apart here, and what is computed of one row is written
out again for Spark. What the two read differently must not become other results. So Spark's own
parser reads the statement as it was written, and once more as it was understood, with every operator
in parentheses; unless both are the same to it, the statement is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from holdfast.errors import InputError
from holdfast.sql.dialect import TIMES, WORDS, bracketed, text_of, written

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

__all__ = ["check_reading"]


def check_reading(statement: str, tree: exp.Expr, session: SparkSession) -> None:
    """Raise unless Spark reads the statement as the tree has it."""
    from pyspark.errors import PySparkException

    from holdfast.spark.jvm.sqlparser import reading

    try:
        theirs = reading(session, _plain(statement, tree))
    except PySparkException as error:
        raise _unreadable(error) from None
    if not _same(theirs, bracketed(tree), session):
        raise _misread(tree, session)
    for call in tree.find_all(exp.Anonymous):
        if TIMES in call.meta:
            begin, end = call.meta[TIMES]
            ours = ", ".join(map(bracketed, call.expressions[1:]))
            _check_times(statement[begin:end], ours, session)


def _check_times(words: str, ours: str, session: SparkSession) -> None:
    """Raise unless Spark reads what stands in a window table behind the table as it is understood."""
    from pyspark.errors import PySparkException

    from holdfast.spark.jvm.sqlparser import reading

    try:
        theirs = reading(session, f"SELECT f({words})")
    except PySparkException as error:
        raise _unreadable(error) from None
    if not _same(theirs, f"SELECT f({ours})", session):
        raise InputError(
            f"SQL: Spark reads {words} otherwise than it is understood here, which is: {ours}",
            hint="write INTERVAL '10' SECOND",
        )


def _same(theirs: str, ours: str, session: SparkSession) -> bool:
    from pyspark.errors import PySparkException

    from holdfast.spark.jvm.sqlparser import reading

    try:
        return theirs == reading(session, ours)
    except PySparkException:
        return False


def _plain(statement: str, tree: exp.Expr) -> str:
    """The statement without what stands in window tables: Spark has no such tables."""
    spans = [node.meta[WORDS] for node in tree.find_all(exp.Anonymous) if WORDS in node.meta]
    for begin, end in sorted(spans, reverse=True):
        statement = statement[:begin] + statement[end:]
    return statement


def _unreadable(error: PySparkException) -> InputError:
    words = str(error).strip().split("\n")[0]
    near = re.search(r"at or near '(.*?)'", words)
    where = re.search(r"\(line \d+, pos \d+\)", words)
    if near is None:
        return InputError(f"SQL: Spark can't read the statement: {words}")
    place = f" {where.group()}" if where else ""
    return InputError(
        f"SQL: Spark can't read {near.group(1)!r} here{place}: it has no such operator or clause",
        hint="write it the way Spark's SQL has it",
    )


def _misread(tree: exp.Expr, session: SparkSession) -> InputError:
    """Says which part it is, as far as that can be told."""
    from pyspark.errors import PySparkException

    from holdfast.spark.jvm.sqlparser import reading

    nodes = [node for node in tree.walk() if isinstance(node, exp.Condition)]
    for node in reversed(nodes):
        text = written(node)
        try:
            theirs = reading(session, f"SELECT {text}")
        except PySparkException:
            continue
        if not _same(theirs, f"SELECT {bracketed(node)}", session):
            return InputError(
                f"SQL: {text} can be read in two ways", hint="put parentheses into it"
            )
    return InputError(
        "SQL: Spark reads a part of the statement otherwise than it is understood here, which is: "
        f"{text_of(tree)}",
        hint="write the part that has changed in another way",
    )
