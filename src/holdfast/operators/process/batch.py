"""``BatchProcess``: user code on Arrow columns, for all keys of an epoch at once.

For NumPy, Polars, DuckDB or numba: no Python per row or key, neither ours nor the user's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError, ProcessingError
from holdfast.operators.base import Clock, Operator, Received, StateReader, Update
from holdfast.operators.event_time import LATE, EventTime
from holdfast.operators.input_rows import Fields, input_row_schema, receive_timed
from holdfast.operators.process.convert import to_arrow
from holdfast.operators.process.declare import ValueState, declared_states
from holdfast.operators.process.output import declared_output
from holdfast.operators.process.program import user_error
from holdfast.operators.process.tables import ProcessTables
from holdfast.state.columns import hash_values, one_array, take_all
from holdfast.state.keys import SortedRows
from holdfast.state.schema import TableSchema
from holdfast.types import type_words

__all__ = ["BatchOperator", "BatchProcess", "BatchResult", "KeyedBatch"]


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """The rows of many keys, sorted so that those of a key are neighbours, and their state.

    What ``BatchProcess.process`` gets.

    >>> class Sizes(BatchProcess):
    ...     output = "user string, rows long"
    ...
    ...     def process(self, batch: KeyedBatch) -> BatchResult:
    ...         return BatchResult({}, {"user": batch.keys["user"], "rows": batch.counts})
    """

    keys: pa.Table
    """A row per key: the key columns."""
    rows: pa.Table
    """All rows, key after key, in the order of their source."""
    offsets: npt.NDArray[np.int64]
    """Key i has the rows ``offsets[i]`` to ``offsets[i + 1]``; one more than there are keys."""
    state: pa.Table
    """A row per key: the declared value states, null (or the default) where there is none."""
    epoch: int
    processing_time_ms: int
    watermark_ms: int | None

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How many rows each key has."""
        return np.diff(self.offsets)

    def reduce(self, ufunc: np.ufunc, column: str) -> npt.NDArray[Any]:
        """``ufunc`` over the rows of each key: ``batch.reduce(np.add, "price")``."""
        values = one_array(self.rows.column(column)).to_numpy(zero_copy_only=False)
        reduced: npt.NDArray[Any] = ufunc.reduceat(values, self.offsets[:-1])
        return reduced


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What a batch process gives back: columns for each state it changed, and the rows it puts out.

    >>> BatchResult({"total": [7.0]}, rows={"user": ["ann"], "total": [7.0]}).state
    {'total': [7.0]}
    """

    state: Mapping[str, Any] | pa.Table
    """A column per state, a value per key (Arrow or NumPy); null clears. States left out stay."""
    rows: Mapping[str, Any] | pa.Table | None = None
    """The rows put out, any number of them: a column for each that ``output`` declares."""


class BatchProcess:
    """User code on Arrow columns.

    >>> class Totals(BatchProcess):
    ...     output = "user string, total double"
    ...     total = ValueState("double", default=0.0)
    ...
    ...     def process(self, batch):
    ...         total = batch.state["total"].to_numpy() + batch.reduce(np.add, "price")
    ...         return BatchResult({"total": total}, {"user": batch.keys["user"], "total": total})
    """

    output: ClassVar[object] = None
    """The columns put out: a Spark DDL string or StructType."""

    def process(self, batch: KeyedBatch) -> BatchResult:
        """Called with all rows of an epoch and partition."""
        raise NotImplementedError

    def checkpoint_complete(self, epoch: int) -> None:
        """Called on the driver once a checkpoint that holds the state after ``epoch`` is in the log."""


class BatchOperator(Operator):
    """Runs a :class:`BatchProcess`."""

    deletes = True

    def __init__(
        self,
        id: str,  # noqa: A002 - the operator's word for it
        keys: Fields,
        columns: Fields,
        process: BatchProcess,
        *,
        output: object = None,
        event_time: EventTime | None = None,
    ) -> None:
        self.id = id
        self.process = process
        self.event_time = event_time
        self.columns = tuple(columns)
        self._keys = tuple(keys)
        owner = type(process)
        self._states = declared_states(owner)
        for state in self._states.values():
            if type(state) is not ValueState:
                raise InputError(
                    f"{owner.__name__}.{state.name} is a {type(state).__name__}, but a BatchProcess "
                    "has value states only",
                    hint="use hf.ValueState (an array or map type, if need be), or a KeyedProcess",
                )
        self._output = declared_output(owner, output)
        if event_time is not None:
            self.side_schemas = {LATE: pa.schema(self.columns)}
        self.continuing({})

    def continuing(self, earlier: Mapping[str, TableSchema]) -> None:
        """Keep the column ids of the tables that an earlier start of the program left."""
        tables = ProcessTables.of(self.id, self._keys, self._states.values(), (), earlier)
        self._table = tables.values

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """One table: a row per key."""
        return (self._table,)

    @cached_property
    def input_schema(self) -> pa.Schema:
        """Hash, keys, order, then the columns."""
        return input_row_schema(self._keys, self.columns)

    @property
    def output_schema(self) -> pa.Schema:
        """What the process puts out."""
        return self._output

    def describe(self) -> str:
        """Keys and kind of program."""
        keys = ", ".join(f"{name}: {kind}" for name, kind in self._keys)
        return f"batch process by {keys}"

    def describe_states(self) -> Sequence[str]:
        """The states that the process declares."""
        return [state.describe() for state in self._states.values()]

    @property
    def code(self) -> object:
        """The process."""
        return self.process

    def receive(self, rows: pa.Table, clock: Clock) -> Received:
        """Note the greatest event time, and set late rows apart."""
        return receive_timed(rows, self.event_time, clock.late_ms, self.columns)

    def update(self, rows: SortedRows, state: StateReader, clock: Clock) -> Update:
        """Look the state of all keys up, let the process work, take its columns."""
        if not rows.table.num_rows:
            return Update({}, self._output.empty_table(), 0)
        hashes = hash_values(rows.table)[rows.starts]
        key_columns = [one_array(rows.table.column(i + 1)) for i in range(rows.keys)]
        if len(rows.starts) < rows.table.num_rows:
            key_columns = take_all(key_columns, rows.starts, ascending=True)
        keys = pa.Table.from_arrays(key_columns, names=self._table.key_names)
        found = state.lookup(self._table.table, hashes, keys)
        present = np.zeros(len(hashes), np.bool_)
        present[found.query] = True
        before = self._aligned(found.rows, found.query, len(hashes))
        batch = KeyedBatch(
            keys,
            rows.table.select([name for name, _ in self.columns]),
            np.append(rows.starts, rows.table.num_rows),
            pa.table(
                {
                    name: self._with_default(name, column)
                    for name, column in before.items()
                    if name in self._states
                }
            ),
            clock.epoch,
            clock.processing_time_ms,
            clock.watermark_ms,
        )
        result = self._run(batch)
        try:
            changes, new = self._changes(result, batch, hashes, before, present, clock)
            output = self._rows(result.rows or {}, None)
        except ProcessingError as error:
            where = f"{type(self.process).__name__}.process, in epoch {clock.epoch}"
            raise ProcessingError(f"{where}: {error.message}", hint=error.hint) from error
        return Update({self._table.table: changes}, output, new)

    def _run(self, batch: KeyedBatch) -> BatchResult:
        name = f"{type(self.process).__name__}.process"
        try:
            result = self.process.process(batch)
        except Exception as error:
            raise user_error(error, name, {}, batch.epoch) from error
        if not isinstance(result, BatchResult):
            raise ProcessingError(
                f"{name} returned {type(result).__name__} in epoch {batch.epoch}, not a BatchResult",
                hint="return hf.BatchResult(state={…}, rows={…})",
            )
        return result

    def _aligned(self, rows: pa.Table, query: Any, count: int) -> dict[str, pa.Array]:
        """Found values in the order of the keys, null where there is none."""
        columns = {c.name: one_array(rows.column(c.name)) for c in self._table.values}
        if len(query) == count:
            return columns
        where = np.full(count, -1, np.int64)
        where[query] = np.arange(len(query))
        places = pa.array(where, mask=where < 0)
        return {name: column.take(places) for name, column in columns.items()}

    def _with_default(self, name: str, column: pa.Array) -> pa.Array:
        state = self._states[name]
        assert isinstance(state, ValueState)
        if state.default is None or not column.null_count:
            return column
        if pa.types.is_nested(column.type):
            return column
        return pc.fill_null(column, pa.scalar(state.default, column.type))

    def _changes(
        self,
        result: BatchResult,
        batch: KeyedBatch,
        hashes: Any,
        before: Mapping[str, pa.Array],
        present: npt.NDArray[np.bool_],
        clock: Clock,
    ) -> tuple[pa.Table, int]:
        given = _columns(result.state)
        unknown = set(given) - set(self._states)
        if unknown:
            raise ProcessingError(
                f"the process returned state {sorted(unknown)}, which it doesn't declare",
                hint=f"it declares: {', '.join(self._states) or 'none'}",
            )
        columns: dict[str, pa.Array] = dict(before)
        empty = np.ones(len(hashes), np.bool_)
        for name, state in self._states.items():
            if name in given:
                kind = self._kind(name)
                columns[name] = self._typed(f"state {name!r}", given[name], kind, len(hashes))
                if state.ttl is not None:
                    now = clock.now(state.ttl.clock)
                    expiry = None if now is None else now + state.ttl.ms
                    written = pa.array(np.full(len(hashes), expiry), pa.int64())
                    columns[f"{name}.expires"] = pc.if_else(columns[name].is_valid(), written, None)
            empty &= columns[name].is_null().to_numpy(zero_copy_only=False)
        arrays = [pa.array(hashes), *(one_array(c) for c in batch.keys.columns)]
        arrays += [columns[c.name] for c in self._table.values]
        new = int((~empty & ~present).sum()) - int((empty & present).sum())
        if not empty.any():
            return pa.Table.from_arrays(arrays, schema=self._table.arrow), new
        table = pa.Table.from_arrays(
            [*arrays, pa.array(empty)], schema=self._table.arrow_with_tombstones
        )
        return table.filter(pa.array(present | ~empty)), new

    def _kind(self, name: str) -> pa.DataType:
        return next(c.type for c in self._table.values if c.name == name)

    def _rows(self, output: Mapping[str, Any] | pa.Table, rows: int | None) -> pa.Table:
        given = _columns(output)
        if not given:
            return self._output.empty_table()
        missing = [f.name for f in self._output if f.name not in given]
        unknown = [name for name in given if name not in self._output.names]
        if missing or unknown:
            raise ProcessingError(
                f"the process put out columns {sorted(given)}, not {self._output.names}",
                hint="put out the columns that are declared as its output",
            )
        arrays = [
            self._typed(f"output {f.name!r}", given[f.name], f.type, rows) for f in self._output
        ]
        lengths = {len(array) for array in arrays}
        if len(lengths) > 1:
            raise ProcessingError(f"the columns put out have different lengths: {sorted(lengths)}")
        return pa.Table.from_arrays(arrays, schema=self._output)

    def _typed(self, what: str, values: Any, kind: pa.DataType, rows: int | None) -> pa.Array:
        try:
            array = (
                one_array(values)
                if isinstance(values, pa.Array | pa.ChunkedArray)
                else pa.array(values)
            )
            if pa.types.is_integer(array.type) and pa.types.is_decimal(kind):
                # Cast by Arrow, it would have to hold any number of the type.
                array = to_arrow(array.to_pylist(), kind)
            array = array if array.type == kind else array.cast(kind)
        except (
            pa.ArrowInvalid,
            pa.ArrowTypeError,
            pa.ArrowNotImplementedError,
            TypeError,
        ) as error:
            raise ProcessingError(
                f"{what} should be {type_words(kind)}, but the process returned something else: {error}",
                hint="convert it, or declare another type",
            ) from error
        if rows is not None and len(array) != rows:
            raise ProcessingError(
                f"{what} has {len(array)} values for {rows} keys",
                hint="return one value per key, in the order of batch.keys",
            )
        return array


def _columns(given: Mapping[str, Any] | pa.Table) -> dict[str, Any]:
    if isinstance(given, pa.Table):
        return dict(zip(given.column_names, given.columns, strict=True))
    return dict(given)
