"""Rows that user code puts out, gathered and turned into columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from holdfast.errors import HoldfastError, InputError, ProcessingError
from holdfast.operators.process.convert import first_misfit, to_arrow
from holdfast.state.text import python_rows
from holdfast.types import parse_schema, type_words

__all__ = ["Collector", "declared_output", "key_words"]


def key_words(keys: pa.Table, place: int) -> str:
    """A key in words.

    >>> key_words(pa.table({"user": ["ann", "bob"]}), 1)
    "key (user='bob')"
    """
    (row,) = python_rows(keys.slice(place, 1))
    return f"key ({', '.join(f'{name}={value!r}' for name, value in row.items())})"


def declared_output(owner: type, given: object) -> pa.Schema:
    """The columns that a process puts out: those given, or those its class declares."""
    schema = given if given is not None else getattr(owner, "output", None)
    if schema is None:
        raise InputError(
            f"{owner.__name__} doesn't say which columns it puts out",
            hint='declare them: output = "user string, total double"',
        )
    return parse_schema(schema)


class Collector:
    """Gathers rows (dicts, or tuples in the order of the schema) for one output."""

    def __init__(self, name: str, schema: pa.Schema, author: object, epoch: int) -> None:
        self.name = name
        self.schema = schema
        self.author = type(author).__name__
        """Whose rows they are, for error messages."""
        self.epoch = epoch
        self.rows: list[Any] = []
        self.owners: list[int] = []
        """The key that each row was put out for; a key without rows takes no place."""

    def table(self, words: Callable[[int], str]) -> pa.Table:
        """The rows since the last call; ``words`` says in error messages what a row is for."""
        rows, owners = self.rows, self.owners
        self.rows, self.owners = [], []
        if not rows:
            return self.schema.empty_table()
        try:
            columns = self._columns(rows)
            arrays = [to_arrow(c, f.type) for c, f in zip(columns, self.schema, strict=True)]
            return pa.Table.from_arrays(arrays, schema=self.schema)
        except HoldfastError:
            raise
        except Exception as error:
            raise self._misfit(rows, owners, words) or error from error

    def _columns(self, rows: Sequence[Any]) -> list[Sequence[Any]]:
        names, width = self.schema.names, len(self.schema)
        if set(map(len, rows)) == {width}:
            kinds = set(map(type, rows))
            if kinds == {tuple} and width:
                return list(zip(*rows, strict=True))
            if kinds == {dict}:
                return [[row[name] for row in rows] for name in names]
        if not all(isinstance(row, dict | tuple | list) for row in rows):
            raise ValueError("something is no row")
        parts = [
            tuple(row[n] for n in names) if isinstance(row, dict) else tuple(row) for row in rows
        ]
        if any(len(part) != width for part in parts) or any(
            len(row) != width for row in rows if isinstance(row, dict)
        ):
            raise ValueError("rows of different width")
        return list(zip(*parts, strict=True)) if width else []

    def _misfit(
        self, rows: Sequence[Any], owners: Sequence[int], words: Callable[[int], str]
    ) -> ProcessingError | None:
        """What is wrong with the first row that doesn't fit."""
        for row, owner in zip(rows, owners, strict=True):
            problem = self._problem(row)
            if problem:
                where = f"output {self.name!r}" if self.name else "its output"
                return ProcessingError(
                    f"{self.author} put out a row for {words(owner)} in epoch {self.epoch} that "
                    f"doesn't fit {where}: {problem}",
                    hint="the output is declared as "
                    + ", ".join(f"{f.name} {type_words(f.type)}" for f in self.schema),
                )
        return None

    def _problem(self, row: Any) -> str:
        names = self.schema.names
        if isinstance(row, dict):
            missing = [name for name in names if name not in row]
            unknown = [name for name in row if name not in names]
            if missing or unknown:
                parts = [f"no field {name!r}" for name in missing]
                return ", ".join(parts + [f"a field {name!r} too many" for name in unknown])
            row = tuple(row[name] for name in names)
        if not isinstance(row, tuple | list):
            return f"{row!r} ({type(row).__name__}) is no row; yield a dict or a tuple"
        if len(row) != len(names):
            return f"it has {len(row)} fields, not {len(names)}"
        for field, value in zip(self.schema, row, strict=True):
            misfit = first_misfit([value], field.type)
            if misfit is not None:
                return (
                    f"field {field.name!r} should be {type_words(field.type)}, "
                    f"but is {value!r} ({type(value).__name__}): {misfit[1]}"
                )
        return ""
