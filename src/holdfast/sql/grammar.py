"""The grammar: Spark's SQL with Flink's window tables.

What sqlglot would write in another way than it was written is kept as it was.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

__all__ = ["TIMES", "WINDOW_TABLES", "WORDS", "StreamSql", "Units"]

WINDOW_TABLES = ("TUMBLE", "HOP", "SESSION", "CUMULATE")
WORDS = "words"
"""Where the words in the parentheses of a window table are in the statement: a key of its meta."""
TIMES = "times"
"""Where its arguments behind the table are: Spark can read those."""
# Functions with words between their arguments.
_WORDED = ("EXTRACT", "TRIM", "POSITION", "SUBSTRING", "SUBSTR", "OVERLAY")
_BITS = (
    (TokenType.PIPE, exp.BitwiseOr),
    (TokenType.CARET, exp.BitwiseXor),
    (TokenType.AMP, exp.BitwiseAnd),
)
_BETWEEN = ("BOTH", "LEADING", "TRAILING", "FROM", "FOR", "PLACING", "IN")


class _Worded(exp.Anonymous):
    """``TRIM(BOTH 'x' FROM s)``: a call with words between its arguments."""


class _Typed(exp.Expression):
    """``DATE '2026-01-01'``: a literal, which a cast would not be."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "to": True}


class Units(exp.Add):
    """``INTERVAL 1 HOUR 30 MINUTES``: one literal, which a sum would not be."""


class _Plus(exp.Unary):
    """``+x``."""


class _Unsigned(exp.BitwiseRightShift):
    """``x >>> n``."""


class _Tokenizer(Spark.Tokenizer):
    # Since Spark 4 a quote is also escaped by another one.
    STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']

    def tokenize(self, sql: str) -> list[Token]:
        """Tokens, in which ``1L`` is a number, rather than ``1::BIGINT``."""
        made: list[Token] = []
        tokens = iter(super().tokenize(sql))
        for token in tokens:
            if made and made[-1].token_type == TokenType.WINDOW and token.text == "(":
                made[-1].token_type = TokenType.VAR  # A call of window(...), no clause.
            if made and token.text == "::" and token.start == made[-1].start:
                made[-1].text = sql[token.start : token.end + 1]
                next(tokens)
            else:
                made.append(token)
        return made


class _Generator(SparkGenerator):
    # A WITH stays where it was written.
    EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar[set[type[exp.Expr]]] = set()
    TRANSFORMS: ClassVar[dict[Any, Any]] = {
        **SparkGenerator.TRANSFORMS,
        _Worded: lambda self, node: f"{self.normalize_func(node.name)}({self._worded(node)})",
        _Typed: lambda self, node: f"{self.sql(node, 'to')} {self.sql(node, 'this')}",
        Units: lambda self, node: " ".join(
            [self.sql(node, "this"), self.sql(node, "expression").removeprefix("INTERVAL ")]
        ),
        _Plus: lambda self, node: f"+ {self.sql(node, 'this')}",
        exp.BitwiseLeftShift: lambda self, node: self.binary(node, "<<"),
        exp.BitwiseRightShift: lambda self, node: self.binary(node, ">>"),
        _Unsigned: lambda self, node: self.binary(node, ">>>"),
    }

    def _worded(self, node: exp.Expr) -> str:
        return " ".join(self.sql(each) for each in node.expressions).replace(" , ", ", ")


def _only(known: dict[Any, Any], *wanted: Any) -> dict[Any, Any]:
    return {each: known[each] for each in wanted}


class _Parser(SparkParser):
    # sqlglot would write some functions in another way for Spark than they were written.
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    # Without them array(a, b) is a call like any other, and [1] behind it an index.
    ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}
    # Joins are kept as they were written, too.
    ADD_JOIN_ON_TRUE = False
    JOINS_HAVE_EQUAL_PRECEDENCE = False
    TERM: ClassVar[dict[TokenType, Any]] = {**SparkParser.TERM, TokenType.DPIPE: exp.DPipe}
    NO_PAREN_FUNCTIONS: ClassVar[dict[TokenType, Any]] = {
        kind: lambda name=kind.name: exp.var(name) for kind in SparkParser.NO_PAREN_FUNCTIONS
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = _only(
        SparkParser.NO_PAREN_FUNCTION_PARSERS, "CASE", "ANY"
    )
    FUNC_TOKENS: ClassVar[set[TokenType]] = {*SparkParser.FUNC_TOKENS, TokenType.SESSION}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        **{name: SparkParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST")},
        **{name: (lambda self, name=name: self._parse_worded(name)) for name in _WORDED},
        **{name: (lambda self, name=name: self._parse_cut(name)) for name in WINDOW_TABLES},
    }
    TYPE_LITERAL_PARSERS: ClassVar[dict[Any, Any]] = {
        kind: lambda self, this, to: self._parse_typed(this, to) for kind in exp.DType
    }
    # Only the operators that Spark has; others would become what is near to them.
    UNARY_PARSERS: ClassVar[dict[TokenType, Any]] = {
        **_only(SparkParser.UNARY_PARSERS, TokenType.NOT, TokenType.TILDE, TokenType.DASH),
        TokenType.PLUS: lambda self: _Plus(this=self._parse_unary()),
    }
    COLUMN_OPERATORS: ClassVar[dict[TokenType, Any]] = _only(
        SparkParser.COLUMN_OPERATORS, TokenType.DOT, TokenType.DCOLON
    )
    FACTOR: ClassVar[dict[TokenType, Any]] = _only(
        SparkParser.FACTOR, TokenType.STAR, TokenType.SLASH, TokenType.MOD, TokenType.DIV
    )
    RANGE_PARSERS: ClassVar[dict[TokenType, Any]] = _only(
        SparkParser.RANGE_PARSERS,
        *(TokenType.BETWEEN, TokenType.IN, TokenType.IS),
        *(TokenType.LIKE, TokenType.ILIKE, TokenType.RLIKE),
    )

    def _is_next(self, *kinds: TokenType) -> bool:
        return self._curr is not None and self._curr.token_type in kinds

    def _parse_function_call(self, *args: Any, **options: Any) -> exp.Expr | None:
        first = self._curr
        made = super()._parse_function_call(*args, **options)
        if isinstance(made, exp.Var):  # CURRENT_DATE and its like, without parentheses.
            return exp.var(first.text)
        return made

    def _parse_at_time_zone(self, this: exp.Expr | None) -> exp.Expr | None:
        if self._match_text_seq("AT", "TIME", "ZONE"):
            self.raise_error("Spark has no AT TIME ZONE")
        return this

    def _parse_bitwise(self) -> exp.Expr | None:
        """Spark's order, in which & binds more than ^, ^ more than |, and || as much as +."""
        return self._parse_bits(0)

    def _parse_bits(self, level: int) -> exp.Expr | None:
        if level == len(_BITS):
            return self._parse_shift()
        token, kind = _BITS[level]
        this = self._parse_bits(level + 1)
        while self._match(token):
            this = kind(this=this, expression=self._parse_bits(level + 1))
        return this

    def _parse_shift(self) -> exp.Expr | None:
        this = self._parse_term()
        while True:
            if self._match_pair(TokenType.LT, TokenType.LT):
                kind: type[exp.Binary] = exp.BitwiseLeftShift
            elif self._match_pair(TokenType.GT, TokenType.GT):
                kind = _Unsigned if self._match(TokenType.GT) else exp.BitwiseRightShift
            else:
                return this
            this = kind(this=this, expression=self._parse_term())

    def _parse_is(self, this: exp.Expr | None) -> exp.Expr | None:
        for words in (("NOT", "UNKNOWN"), ("UNKNOWN",)):
            if self._match_text_seq(*words):
                return exp.Is(this=this, expression=exp.var("UNKNOWN"), negate=len(words) == 2)
        return super()._parse_is(this)

    def _parse_worded(self, name: str) -> exp.Expr:
        written = self._tokens[self._index - 2].text
        parts: list[exp.Expr | None] = []
        if name == "EXTRACT":
            parts.append(self._parse_var(any_token=True))
        while self._curr and not self._is_next(TokenType.R_PAREN):
            if self._match(TokenType.COMMA):
                parts.append(exp.var(","))
            elif self._match_texts(_BETWEEN):
                parts.append(exp.var(self._prev.text))
            elif name == "POSITION":  # Its IN is no condition.
                parts.append(self._parse_bitwise())
            else:
                parts.append(self._parse_disjunction())
        return _Worded(this=written, expressions=parts)

    def _parse_typed(self, this: exp.Expr, to: exp.DataType) -> exp.Expr:
        if not isinstance(this, exp.Literal):
            self.raise_error(f"Put parentheses around {to.sql(dialect=StreamSql)} and its literal")
        return _Typed(this=this, to=to)

    def _parse_primary(self) -> exp.Expr | None:
        found = super()._parse_primary()
        if isinstance(found, exp.Concat):  # 'a' 'b' is one literal.
            return exp.Literal.string("".join(each.name for each in found.expressions))
        return found

    def _parse_interval(
        self, require_interval: bool = True, parse_function_unit: bool = True
    ) -> exp.Add | exp.Interval | None:
        """One literal. What is added behind it is no part of it."""
        index = self._index
        if not self._match(TokenType.INTERVAL) and require_interval:
            return None
        string = self._is_next(TokenType.STRING)
        value = self._parse_primary() if string else self._parse_unary()
        named = isinstance(value, exp.Column) and self._curr is not None
        if value is None or (
            named and self._curr.text.upper() not in self.dialect.VALID_INTERVAL_UNITS
        ):
            self._retreat(index)
            return None
        made = self._parse_interval_span(value, parse_function_unit=parse_function_unit)
        if self._is_next(TokenType.STRING, TokenType.NUMBER):
            return Units(this=made, expression=self._parse_interval(False))
        return made

    def _replace_lambda(
        self, node: exp.Expr | None, expressions: list[exp.Expr]
    ) -> exp.Expr | None:
        """Variables hide columns, also those that are written with other capitals."""
        names = {each.name.lower() for each in expressions}
        columns = () if node is None else node.find_all(exp.Column)
        written = {column.parts[0].name for column in columns}
        same = [exp.to_identifier(name) for name in sorted(written) if name.lower() in names]
        return super()._replace_lambda(node, [*expressions, *same])

    def _parse_cut(self, name: str) -> exp.Expr:
        """``(TABLE t PARTITION BY k, DESCRIPTOR(ts), …)``, or just arguments."""
        begin = self._curr.start
        if not self._match(TokenType.TABLE):
            return exp.Anonymous(this=name, expressions=self._parse_function_args())
        first = exp.Window(this=self._parse_cut_table(), partition_by=self._parse_cut_keys())
        self._match(TokenType.COMMA)
        rest = self._curr.start
        call = exp.Anonymous(this=name, expressions=[first, *self._parse_function_args()])
        call.meta[WORDS] = (begin, self._curr.start)
        call.meta[TIMES] = (rest, self._curr.start)
        return call

    def _parse_cut_table(self) -> exp.Expr | None:
        if not self._match(TokenType.L_PAREN):
            return exp.Table(this=self._parse_id_var())
        found = self._parse_select() or exp.Table(this=self._parse_id_var())
        self._match_r_paren()
        return found

    def _parse_cut_keys(self) -> list[exp.Expr | None]:
        if not self._match(TokenType.PARTITION_BY):
            return []
        keys = [self._parse_column()]
        # A comma may also be that of the next argument.
        while self._is_next(TokenType.COMMA) and not self._descriptor_next():
            self._advance()
            keys.append(self._parse_column())
        return keys

    def _descriptor_next(self) -> bool:
        return self._next is not None and self._next.text.upper() == "DESCRIPTOR"


class StreamSql(Spark):
    """The dialect that statements are read and written in."""

    NORMALIZE_NOT_NULL = False
    Tokenizer = _Tokenizer
    Parser = _Parser
    Generator = _Generator
