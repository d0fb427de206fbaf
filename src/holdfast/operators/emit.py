"""The end of a stream that no operator writes out itself."""

from __future__ import annotations

import pyarrow as pa

from holdfast.operators.base import Operator
from holdfast.state.schema import TableSchema

__all__ = ["EmitOperator"]


class EmitOperator(Operator):
    """Puts out what comes in."""

    def __init__(self, id: str, schema: pa.Schema) -> None:  # noqa: A002
        self.id = id
        self._schema = schema

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """None."""
        return ()

    @property
    def key_columns(self) -> int:
        """None."""
        return 0

    @property
    def key_names(self) -> list[str]:
        """None."""
        return []

    @property
    def input_schema(self) -> pa.Schema:
        """The columns of the stream."""
        return self._schema

    @property
    def output_schema(self) -> pa.Schema:
        """The same."""
        return self._schema

    def describe(self) -> str:
        """Nothing that a restart could miss."""
        return "emit"
