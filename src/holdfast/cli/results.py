"""Results instead of buffers: what an aggregate's state means to its user.

A checkpoint says in words what each operator computes. From them the operator is built again; only
if it then describes itself in the very same words, and has the very same state table, are its
results shown. Anything else is shown as it is stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from holdfast.errors import HoldfastError
from holdfast.operators.aggregates.kinds import AggregateSpec, Input
from holdfast.operators.aggregates.operator import AggregateOperator
from holdfast.operators.base import Clock, FoundRows
from holdfast.operators.description import Description
from holdfast.state.hashing import Hashes
from holdfast.state.keys import SortedRows
from holdfast.state.schema import TableSchema

__all__ = ["finisher"]

_LINE = re.compile(r"(?P<name>.*): (?P<kind>\w+)\((?P<arguments>.*)\) -> .+")
_ARGUMENT = re.compile(r"(?:[^,(\[]|\([^)]*\)|\[[^\]]*\])+")
_DECIMAL = re.compile(r"decimal128\((\d+), (-?\d+)\)")
_TIMESTAMP = re.compile(r"timestamp\[(\w+), tz=(.+)\]")


def finisher(schema: TableSchema, description: str) -> Callable[[pa.Table], pa.Table] | None:
    """What turns rows of a state table into keys and results; None if that isn't known."""
    operator = _operator(schema, Description.parse(description).what)
    if operator is None:
        return None

    def finish(rows: pa.Table) -> pa.Table:
        table = pa.Table.from_arrays(
            [column.combine_chunks() for column in rows.columns], schema=operator.input_schema
        )
        # Every row is a key of its own: folded into no state at all, it becomes its result.
        each = SortedRows(table, np.arange(table.num_rows), len(schema.keys))
        return operator.update(each, _NoState(schema), Clock(0, 0)).output

    return finish


class _NoState:
    """State in which nothing is found."""

    def __init__(self, schema: TableSchema) -> None:
        self._nothing = FoundRows(np.empty(0, np.int64), schema.arrow.empty_table())

    def lookup(self, table: str, hashes: Hashes, keys: pa.Table) -> FoundRows:
        """Nothing."""
        del table, hashes, keys
        return self._nothing


def _operator(schema: TableSchema, description: str) -> AggregateOperator | None:
    first, *lines = description.split("\n")
    if not first.startswith("aggregate by "):
        return None
    try:
        specs = [_spec(line) for line in lines]
        keys = [(column.name, column.type) for column in schema.keys]
        operator = AggregateOperator(schema.table.rpartition(".")[0], keys, specs)
    except (HoldfastError, ValueError):
        return None
    same = operator.describe() == description and operator.tables == (schema,)
    return operator if same else None


def _spec(line: str) -> AggregateSpec:
    """The aggregate that ``str`` made this line of."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(line)
    inputs, options = [], []
    for argument in _ARGUMENT.findall(match["arguments"]):
        name, equals, value = argument.strip().partition("=")
        if equals and value.isdecimal():
            options.append((name, int(value)))
        else:
            inputs.append(Input(match["name"], _type(argument.strip())))
    return AggregateSpec(match["name"], match["kind"], tuple(inputs), tuple(options))


def _type(text: str) -> pa.DataType:
    if match := _DECIMAL.fullmatch(text):
        return pa.decimal128(int(match[1]), int(match[2]))
    if match := _TIMESTAMP.fullmatch(text):
        return pa.timestamp(match[1], match[2])
    return pa.type_for_alias(text.replace("date32[day]", "date32"))
