"""What a task hands on to other operators: the rows of one output, or of several as one table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from holdfast.operators.base import Operator

__all__ = ["OUTPUT", "derived_rows", "derived_schema", "struct_name"]

OUTPUT = "_holdfast_output"
"""Which of the outputs a row is of."""


def struct_name(number: int) -> str:
    """The column that has the rows of the output with this number."""
    return f"o{number}"


def derived_schema(operator: Operator, feeds: Sequence[str]) -> pa.Schema:
    """The columns of what a task hands on: those of its one output, or a struct for each."""
    if len(feeds) == 1:
        return _output_schema(operator, feeds[0])
    fields = [pa.field(OUTPUT, pa.int8())]
    for number, output in enumerate(feeds):
        fields.append(
            pa.field(struct_name(number), pa.struct(list(_output_schema(operator, output))))
        )
    return pa.schema(fields)


def derived_rows(operator: Operator, feeds: Sequence[str], output: str, rows: pa.Table) -> pa.Table:
    """Rows of an output as they are handed on."""
    schema = derived_schema(operator, feeds)
    if len(feeds) == 1:
        return rows.cast(schema) if rows.schema != schema else rows
    number = feeds.index(output)
    columns: list[pa.Array] = [pa.array(np.full(rows.num_rows, number, np.int8))]
    for place, field_ in enumerate(list(schema)[1:]):
        if place == number:
            whole = rows.cast(_output_schema(operator, output)).combine_chunks().to_struct_array()
            columns.append(whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole)
        else:
            columns.append(pa.nulls(rows.num_rows, field_.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _output_schema(operator: Operator, output: str) -> pa.Schema:
    return operator.side_schemas[output] if output else operator.output_schema
