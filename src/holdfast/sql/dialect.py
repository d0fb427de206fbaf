"""Spark's SQL with Flink's window tables; functions are kept just as they were written."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from holdfast.errors import InputError

__all__ = ["WINDOW_TABLES", "name_of", "parse_statement", "text_of"]

WINDOW_TABLES = ("TUMBLE", "HOP", "SESSION", "CUMULATE")
# What has a syntax of its own rather than a list of arguments.
_SPECIAL = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "SUBSTRING", "OVERLAY")


class _StreamSql(Spark):
    class Tokenizer(Spark.Tokenizer):
        # Since Spark 4 a quote is also escaped by another one.
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']

    class Parser(SparkParser):
        # sqlglot would write some functions in another way for Spark than they were written.
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNC_TOKENS: ClassVar[set[TokenType]] = {*SparkParser.FUNC_TOKENS, TokenType.SESSION}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            **{name: SparkParser.FUNCTION_PARSERS[name] for name in _SPECIAL},
            **{
                name: (lambda self, name=name: self._parse_window_table(name))
                for name in WINDOW_TABLES
            },
        }

        def _parse_window_table(self, name: str) -> exp.Expr:
            """``(TABLE t PARTITION BY k, DESCRIPTOR(ts), …)``, or just arguments."""
            first: list[exp.Expr] = []
            if self._match(TokenType.TABLE):
                table = exp.Table(this=self._parse_id_var())
                first = [exp.Window(this=table, partition_by=self._parse_window_keys())]
                self._match(TokenType.COMMA)
            return exp.Anonymous(this=name, expressions=[*first, *self._parse_function_args()])

        def _parse_window_keys(self) -> list[exp.Expr | None]:
            if not self._match(TokenType.PARTITION_BY):
                return []
            keys = [self._parse_column()]
            # A comma may also be that of the next argument.
            while self._curr.token_type == TokenType.COMMA and not self._descriptor_next():
                self._advance()
                keys.append(self._parse_column())
            return keys

        def _descriptor_next(self) -> bool:
            return self._next is not None and self._next.text.upper() == "DESCRIPTOR"


def parse_statement(statement: str) -> exp.Expr:
    """The statement as a tree."""
    from sqlglot import parse

    try:
        found = [tree for tree in parse(statement, dialect=_StreamSql) if tree is not None]
    except SqlglotError as error:
        words = " ".join(str(error).replace("\x1b[4m", "»").replace("\x1b[0m", "«").split())
        raise InputError(f"SQL: the statement can't be read: {words}") from None
    if len(found) != 1:
        raise InputError(
            f"SQL: {len(found)} statements in one text", hint="call hf.sql once per statement"
        )
    return found[0]


def text_of(node: exp.Expr) -> str:
    """A part of a statement as Spark reads it."""
    return str(node.sql(dialect=_StreamSql, comments=False))


def name_of(node: exp.Expr) -> str | None:
    """The name of the function that is called, in capitals; None if it is no call."""
    if isinstance(node, exp.Anonymous):
        return str(node.name).upper()
    return str(node.sql_name()).upper() if isinstance(node, exp.Func) else None
