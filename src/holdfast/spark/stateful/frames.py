"""The pandas form: what a processor for ``transformWithStateInPandas`` gets and puts out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import ProcessingError
from holdfast.operators.process.convert import to_arrow
from holdfast.operators.process.output import key_words
from holdfast.operators.process.program import Chunk
from holdfast.spark.jvm.conversion import as_pyspark_does
from holdfast.spark.types import spark_type
from holdfast.state.columns import one_array
from holdfast.state.text import python_values, text_array
from holdfast.types import type_words

__all__ = ["FrameForm"]


class FrameForm:
    """Keys are tuples; rows are DataFrames, timestamps without zone in the session's time zone.

    A chunk of keys is one DataFrame, of which each key gets a slice: making a DataFrame costs far
    more than slicing one.
    """

    def __init__(
        self, output: pa.Schema, zone: str, most_rows: int, author: object, epoch: int
    ) -> None:
        self._output, self._zone, self._most_rows = output, zone, most_rows
        self._author, self._epoch = type(author).__name__, epoch
        self._frames: list[Any] = []
        self._owners: list[int] = []
        self._places: dict[tuple[Any, ...], list[int]] = {}

    def keys(self, chunk: Chunk) -> list[tuple[Any, ...]]:
        """The keys of a chunk."""
        columns = [_key_values(column, self._zone) for column in chunk.keys.columns]
        return list(zip(*columns, strict=True))

    def inputs(self, chunk: Chunk) -> Iterator[Iterator[pd.DataFrame]]:
        """The DataFrames of each key of a chunk, in order of the keys."""
        frame = _frame(chunk.rows, self._zone)
        start = 0
        for end in chunk.offsets[1:]:
            yield self._slices(frame, start, end)
            start = end

    def initial(self, chunk: Chunk) -> Iterator[Iterator[pd.DataFrame]]:
        """The initial state of each key: all its rows as one DataFrame."""
        return self.inputs(chunk)

    def put_out(self, frames: Any, key: int) -> None:
        """Keep what user code put out for a key."""
        self._frames.extend(frames)
        self._owners += [key] * (len(self._frames) - len(self._owners))

    def output(self, chunk: Chunk) -> pa.Table:
        """All that was put out since the last call."""
        frames, owners = self._frames, self._owners
        self._frames, self._owners = [], []
        if not frames:
            return self._output.empty_table()

        def words(i: int) -> str:
            return f"{key_words(chunk.keys, owners[i])} in epoch {self._epoch}"

        parts = [self._columns(frame, i, words) for i, frame in enumerate(frames)]
        arrays = [
            self._array(field, [part[place] for part in parts], words)
            for place, field in enumerate(self._output)
        ]
        return pa.Table.from_arrays(arrays, schema=self._output)

    def _slices(self, frame: pd.DataFrame, start: int, end: int) -> Iterator[pd.DataFrame]:
        for first in range(start, end, self._most_rows):
            yield _slice(frame, first, min(end, first + self._most_rows))

    def _columns(self, frame: Any, i: int, words: Any) -> list[Any]:
        if not isinstance(frame, pd.DataFrame):
            raise ProcessingError(
                f"{self._author} put out {frame!r} ({type(frame).__name__}) for {words(i)}, "
                "which is no DataFrame",
                hint="yield pandas DataFrames, or use transformWithState for Rows",
            )
        found = tuple(frame.columns)
        places = self._places.get(found)
        if places is None:
            places = self._places[found] = self._find(found, lambda: words(i))
        # By way of the frame's own arrays: a Series for each column takes ten times as long.
        return [frame._get_column_array(place) for place in places]  # noqa: SLF001

    def _find(self, found: tuple[Any, ...], key: Callable[[], str]) -> list[int]:
        """Where a DataFrame with these column names has the columns of the output."""
        names = self._output.names
        # As in PySpark: by name if there are names, else by position.
        by_name = not found or any(isinstance(name, str) for name in found)
        if by_name:
            missing = [name for name in names if found.count(name) != 1]
            if not missing:
                return [found.index(name) for name in names]
        elif len(found) == len(names):
            return list(range(len(names)))
        else:
            missing = names[len(found) :]
        raise ProcessingError(
            f"{self._author} put out a DataFrame for {key()} without "
            f"{', '.join(map(repr, missing)) or 'names'}: it has {list(found)}",
            hint="the output is declared as "
            + ", ".join(f"{f.name} {type_words(f.type)}" for f in self._output),
        )

    def _array(self, field: pa.Field, parts: Sequence[Any], words: Any) -> pa.Array:
        try:
            return _to_arrow(_together(parts), field.type, self._zone)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError):
            return pa.concat_arrays([self._part(field, p, i, words) for i, p in enumerate(parts)])

    def _part(self, field: pa.Field, part: Any, i: int, words: Any) -> pa.Array:
        try:
            return _to_arrow(part, field.type, self._zone)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError) as error:
            raise ProcessingError(
                f"{self._author} put out a DataFrame for {words(i)} that doesn't fit its "
                f"output: column {field.name!r} should be {type_words(field.type)}, but is "
                f"{list(part)[:3]!r} ({part.dtype}): {error}",
                hint="convert it in the processor, or declare another type",
            ) from error


def _slice(frame: pd.DataFrame, start: int, end: int) -> pd.DataFrame:
    """Some rows, numbered from 0, as if they were a DataFrame of their own."""
    # By way of the manager: a fifth of what frame.iloc takes, and pandas doesn't warn a processor
    # that adds a column to its rows.
    manager = frame._mgr.get_slice(slice(start, end), axis=1)  # noqa: SLF001
    manager.axes[1] = pd.RangeIndex(end - start)
    return pd.DataFrame._from_mgr(manager, axes=manager.axes)  # noqa: SLF001


def _frame(table: pa.Table, zone: str) -> pd.DataFrame:
    columns = {name: _series(table.column(name), zone) for name in table.column_names}
    # Copied: Arrow's own memory is read-only, and processors write to their frames.
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows), copy=True)


def _series(column: pa.ChunkedArray, zone: str) -> Any:
    """A column as PySpark hands it on: numbers in 64 bits, timestamps without zone."""
    array = one_array(column)
    kind = array.type
    if pa.types.is_nested(kind):
        series = _pandas(array)
        return as_pyspark_does(series, spark_type(kind), zone)
    if pa.types.is_timestamp(kind):
        return _local(array, zone).to_numpy(zero_copy_only=False).astype("datetime64[ns]")
    series = _pandas(array)
    if pa.types.is_integer(kind) and series.dtype.kind in "iu":
        return series.astype(np.int64, copy=False)
    return series.astype(np.float64, copy=False) if series.dtype.kind == "f" else series


def _pandas(array: pa.Array) -> Any:
    try:
        return array.to_pandas(date_as_object=True)
    except pa.ArrowException:
        return pd.Series(python_values(array, maps_as_pydicts="strict"), dtype=object)


def _local(array: pa.Array, zone: str) -> pa.Array:
    """Timestamps as the clocks of the zone show them."""
    return (
        array if array.type.tz is None else pc.local_timestamp(array.cast(pa.timestamp("us", zone)))
    )


def _key_values(column: pa.ChunkedArray, zone: str) -> list[Any]:
    array = one_array(column)
    if not pa.types.is_timestamp(array.type):
        return python_values(array)
    moments = _local(array, zone).to_numpy(zero_copy_only=False).astype("datetime64[ns]")
    return [None if pd.isna(moment) else moment for moment in pd.Series(moments)]


def _together(parts: Sequence[Any]) -> Any:
    """One array of many, if they are alike."""
    first = parts[0]
    if not all(type(part) is np.ndarray and part.dtype == first.dtype for part in parts):
        raise TypeError("parts of different types")
    return np.concatenate(parts)


def _to_arrow(values: Any, kind: pa.DataType, zone: str) -> pa.Array:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _moments(pd.Series(values), kind, zone)
    if not len(values):
        return pa.nulls(0, kind)
    if pa.types.is_decimal(kind) and getattr(values.dtype, "kind", "O") in "iuf":
        return _decimals(pa.array(values, from_pandas=True), kind)
    if pa.types.is_nested(kind):
        return to_arrow([None if isinstance(v, float) else v for v in values], kind)
    try:
        return pa.array(values, kind, from_pandas=True)
    except UnicodeEncodeError:
        return text_array([None if isinstance(v, float) else v for v in values], kind)


def _moments(series: Any, kind: pa.DataType, zone: str) -> pa.Array:
    if not len(series) or series.isna().all():
        return pa.nulls(len(series), kind)
    moments = pd.to_datetime(series)
    if moments.dt.tz is None:
        moments = moments.dt.tz_localize(zone, ambiguous=False, nonexistent="shift_forward")
    return pa.array(
        moments.dt.tz_convert("UTC"), pa.timestamp("us", "UTC"), from_pandas=True, safe=False
    )


def _decimals(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    """Whole numbers as decimals; with nulls among them they are floats to pandas."""
    whole = numbers if pa.types.is_integer(numbers.type) else numbers.cast(pa.int64())
    return pa.array(whole.to_pylist(), kind)
