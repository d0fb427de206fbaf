"""Types as Spark writes them, in Arrow's terms: ``"a int, b array<string>"`` and the like.

Programs declare state and output with a Spark DDL string or a PySpark ``DataType``. Both are read
here without PySpark: the grammar is small, and a ``DataType`` tells its own structure as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from holdfast.errors import InputError

__all__ = ["parse_schema", "parse_type", "quoted", "required_fields", "type_words"]

_ATOMIC: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_WORDS: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}
_DECIMALS = ("decimal", "dec", "numeric")
_SIZED_STRINGS = ("char", "character", "varchar")
_MOST_DIGITS = 38
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.|'')*')|([\w$]+)|(.))", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_HINT = 'write types as Spark does: "double", "array<string>", "struct<a:int,b:map<string,long>>"'
_SCHEMA_HINT = 'write fields as Spark does: "user string, total double", or give a StructType'


def parse_type(given: object) -> pa.DataType:
    """The Arrow type of a Spark DDL string or a PySpark ``DataType``.

    Fields without an outer ``struct<…>`` make a struct, as in Spark.

    >>> parse_type("map<string,long>")
    MapType(map<string, int64>)
    >>> parse_type("a int, b array<string>")
    StructType(struct<a: int32, b: list<item: string>>)
    """
    if isinstance(given, pa.DataType):
        return given
    if isinstance(given, str):
        parser = _Parser(given)
        kind: pa.DataType = parser.schema_or_type()
        return kind
    return _of_json(_json_value(given, "type"), "the type")


def parse_schema(given: object) -> pa.Schema:
    """The Arrow schema of a Spark DDL string, a PySpark ``StructType`` or an Arrow schema.

    >>> parse_schema("user string, total decimal(10,2)").names
    ['user', 'total']
    """
    if isinstance(given, pa.Schema):
        return given
    kind = parse_type(given)
    if not pa.types.is_struct(kind):
        raise InputError(f"{given!r} is one type, not a list of fields", hint=_SCHEMA_HINT)
    return pa.schema([kind.field(i) for i in range(kind.num_fields)])


def required_fields(given: object) -> tuple[tuple[str, ...], ...]:
    """The fields of a schema that are declared never to be null, each with the names on the way to it.

    As in Spark's own paths, what is in an array is its ``element``, in a map its ``key`` and ``value``.

    >>> required_fields("user string, total double NOT NULL, items array<struct<n: int NOT NULL>>")
    (('total',), ('items', 'element', 'n'))
    """
    if isinstance(given, pa.Schema):
        return tuple(_required_of_arrow(pa.struct(list(given)), ()))
    if isinstance(given, str):
        parser = _Parser(given)
        parser.schema_or_type()
        return tuple(parser.required)
    return tuple(_required_of_json(_json_value(given, "type"), ()))


def _required_of_arrow(kind: pa.DataType, where: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if pa.types.is_struct(kind):
        parts = [(field.name, field) for field in kind.fields]
    elif pa.types.is_map(kind):
        parts = [("key", pa.field("key", kind.key_type)), ("value", kind.item_field)]
    elif pa.types.is_list(kind):
        parts = [("element", kind.value_field)]
    else:
        return
    for name, field in parts:
        if not field.nullable:
            yield (*where, name)
        yield from _required_of_arrow(field.type, (*where, name))


def _required_of_json(kind: Any, where: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The same of a type as Spark writes it in JSON."""
    if not isinstance(kind, dict):
        return
    parts = [(f["name"], f["type"], f.get("nullable", True)) for f in kind.get("fields", ())]
    if "elementType" in kind:
        parts.append(("element", kind["elementType"], kind.get("containsNull", True)))
    if "valueType" in kind:
        parts.append(("key", kind["keyType"], True))
        parts.append(("value", kind["valueType"], kind.get("valueContainsNull", True)))
    for name, inner, nullable in parts:
        if not nullable:
            yield (*where, name)
        yield from _required_of_json(inner, (*where, name))


def type_words(kind: pa.DataType) -> str:
    """An Arrow type in Spark's words; they give the same type again.

    >>> type_words(pa.struct([("a", pa.int64()), ("odd name", pa.list_(pa.string()))]))
    'struct<a:bigint,`odd name`:array<string>>'
    """
    if kind in _WORDS:
        return _WORDS[kind]
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return f"struct<{','.join(f'{_name(f.name)}:{type_words(f.type)}' for f in fields)}>"
    if pa.types.is_map(kind):
        return f"map<{type_words(kind.key_type)},{type_words(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{type_words(kind.value_type)}>"
    return str(kind)


def quoted(name: str) -> str:
    """A name as Spark's parser takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def _name(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else quoted(name)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int
    quoted: bool = False
    string: bool = False


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text.rstrip()):
        name, string, word, mark = match.groups()
        at = match.start(match.lastindex or 0)
        if name is not None:
            yield _Token(name[1:-1].replace("``", "`"), at, quoted=True)
        elif string is not None:
            yield _Token(string, at, string=True)
        else:
            yield _Token(word or mark, at)


class _Parser:
    """Reads one DDL string from left to right; knows the field it is in, for errors."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.at = 0
        self.path: list[str] = []
        self.where: list[str] = []
        """The same with what is between fields: elements of arrays, keys and values of maps."""
        self.required: list[tuple[str, ...]] = []
        """The fields that are declared ``NOT NULL``."""

    def schema_or_type(self) -> pa.DataType:
        """A list of fields, or one type: ``"a int"`` against ``"int"``."""
        if not self.tokens:
            self.fail("nothing is declared", hint=_SCHEMA_HINT)
        first, second = self.tokens[0], self.tokens[1] if len(self.tokens) > 1 else None
        lone = second is None or second.text in ("<", "(")
        if not first.quoted and (lone or self._continues_type(first, second)):
            kind = self.type()
        else:
            kind = self.fields(end=None)
        if self.at < len(self.tokens):
            self.fail(f"{self.text[self.tokens[self.at].start :]!r} is left over")
        return kind

    def type(self) -> pa.DataType:
        """One type."""
        token = self.take("a type")
        word = token.text.lower()
        if token.quoted or not re.fullmatch(r"[\w$]+", word):
            self.fail(f"{token.text!r} is no type")
        if word == "array":
            self.expect("<")
            inner = self.inside("element")
            self.expect(">")
            return pa.list_(inner)
        if word == "map":
            self.expect("<")
            key = self.inside("key")
            self.expect(",")
            value = self.inside("value")
            self.expect(">")
            return pa.map_(key, value)
        if word == "struct":
            return self.struct()
        return self.atomic(word)

    def inside(self, part: str) -> pa.DataType:
        """One type, within another."""
        self.where.append(part)
        kind = self.type()
        self.where.pop()
        return kind

    def struct(self) -> pa.DataType:
        # Spark's grammar takes "<>" as one mark; ours sees an empty list of fields.
        self.expect("<")
        if self.peek(">"):
            self.at += 1
            return pa.struct([])
        kind = self.fields(end=">")
        self.expect(">")
        return kind

    def atomic(self, word: str) -> pa.DataType:
        numbers = self.numbers()
        if word in _DECIMALS:
            return self.decimal(numbers)
        if word in _SIZED_STRINGS and len(numbers) == 1:
            return pa.string()
        if word == "string" and self.peek("collate"):
            self.at += 1
            self.collation(self.take("a collation").text)
        if word not in _ATOMIC or numbers:
            shown = f"{word}({','.join(map(str, numbers))})" if numbers else word
            self.fail(f"Holdfast has no type {shown!r}")
        return _ATOMIC[word]

    def decimal(self, numbers: list[int]) -> pa.DataType:
        precision, scale = {0: (10, 0), 1: (*numbers, 0), 2: (*numbers,)}.get(len(numbers), (0, 0))
        if not 1 <= precision <= _MOST_DIGITS or scale > precision:
            self.fail(f"a decimal can't have {precision} digits, {scale} of them behind the point")
        return pa.decimal128(precision, scale)

    def collation(self, name: str) -> None:
        if name.upper() != "UTF8_BINARY":
            self.fail(
                f"Holdfast compares strings byte by byte, not by the collation {name}",
                hint="leave the collation out, and lower-case the strings first",
            )

    def numbers(self) -> list[int]:
        if not self.peek("("):
            return []
        self.at += 1
        found: list[int] = []
        while True:
            token = self.take("a number")
            if not token.text.isdigit():
                self.fail(f"{token.text!r} is no number")
            found.append(int(token.text))
            if self.peek(")"):
                self.at += 1
                return found
            self.expect(",")

    def fields(self, end: str | None) -> pa.DataType:
        """Fields up to ``end``, or to the end of the string."""
        found: list[pa.Field] = []
        while True:
            token = self.take("a field")
            if token.string or not (token.quoted or re.fullmatch(r"[\w$]+", token.text)):
                self.fail(f"{token.text!r} is no name of a field")
            if any(field.name == token.text for field in found):
                self.fail(f"field {token.text!r} is declared twice")
            self.path.append(token.text)
            self.where.append(token.text)
            if self.peek(":"):
                self.at += 1
            found.append(pa.field(token.text, self.type()))
            self.remarks()
            self.path.pop()
            self.where.pop()
            if self.peek(end) if end else self.at == len(self.tokens):
                return pa.struct(found)
            self.expect(",")

    def remarks(self) -> None:
        """``NOT NULL``, ``COMMENT '…'``: no part of a type; only who asks hears of the first."""
        if self.peek("not"):
            self.at += 1
            self.expect("null")
            self.required.append(tuple(self.where))
        if self.peek("comment"):
            self.at += 1
            self.take("a comment")

    def peek(self, text: str) -> bool:
        if self.at >= len(self.tokens):
            return False
        token = self.tokens[self.at]
        return not token.quoted and not token.string and token.text.lower() == text

    def take(self, wanted: str) -> _Token:
        if self.at >= len(self.tokens):
            self.fail(f"it ends where {wanted} is expected")
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, text: str) -> None:
        if not self.peek(text):
            found = self.tokens[self.at].text if self.at < len(self.tokens) else "the end"
            self.fail(f"{text!r} is expected before {found!r}")
        self.at += 1

    def fail(self, problem: str, hint: str = _HINT) -> NoReturn:
        where = f" (field {'.'.join(self.path)!r})" if self.path else ""
        raise InputError(f"the type {self.text!r} can't be read{where}: {problem}", hint=hint)

    @staticmethod
    def _continues_type(first: _Token, second: _Token | None) -> bool:
        return (
            second is not None
            and first.text.lower() == "string"
            and second.text.lower() == "collate"
        )


def _json_value(given: object, what: str) -> Any:
    value = getattr(given, "jsonValue", None)
    if value is None or isinstance(given, type):
        wrote = given.__name__ if isinstance(given, type) else repr(given)
        called = f"; a DataType is made by calling it: {wrote}()" if value is not None else ""
        raise InputError(f"{wrote} ({type(given).__name__}) is no {what}{called}", hint=_HINT)
    return value()


def _of_json(value: Any, where: str, collations: Mapping[str, str] | None = None) -> pa.DataType:
    """The Arrow type of what a PySpark ``DataType`` says of itself."""
    if isinstance(value, str):
        if collations:
            name = next(iter(collations.values()))
            raise InputError(
                f"{where} has the collation {name}, and Holdfast compares strings byte by byte",
                hint="leave the collation out, and lower-case the strings first",
            )
        try:
            return _Parser(value).schema_or_type()
        except InputError:
            raise InputError(
                f"{where} is of type {value}, which Holdfast can't hold", hint=_HINT
            ) from None
    kind = value.get("type")
    if kind == "array":
        return pa.list_(_of_json(value["elementType"], f"an element of {where}", collations))
    if kind == "map":
        return pa.map_(
            _of_json(value["keyType"], f"a key of {where}", collations),
            _of_json(value["valueType"], f"a value of {where}", collations),
        )
    if kind == "struct":
        return pa.struct([_field_of_json(field) for field in value["fields"]])
    raise InputError(f"{where} is of type {kind}, which Holdfast can't hold", hint=_HINT)


def _field_of_json(field: Mapping[str, Any]) -> pa.Field:
    collations = (field.get("metadata") or {}).get("__COLLATIONS")
    return pa.field(field["name"], _of_json(field["type"], f"field {field['name']!r}", collations))
