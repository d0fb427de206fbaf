"""What windows put out when they fire."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.operators.aggregates.buffers import rows_of
from holdfast.operators.columns import Bits
from holdfast.operators.window.firing import Firing
from holdfast.operators.window.tables import FIRED
from holdfast.state.columns import equal, one_array, take_all

__all__ = ["put_out", "same"]

Indices = npt.NDArray[np.int64]
_MICROS = 1000


def put_out(firing: Firing, schema: pa.Schema) -> pa.Table:
    """The rows of all windows that fire, in the output's schema."""
    fired = np.flatnonzero(firing.fires)
    windows = firing.windows
    buffers = list(windows.buffers)
    if len(fired) < windows.count:
        buffers = take_all(buffers, fired, ascending=True)
    results = _finish(firing, fired, buffers)
    if firing.rules.output_mode != "retract":
        return pa.Table.from_arrays([*_names(firing, fired, schema), *results], schema=schema)
    earlier, taken_back = _earlier(firing, fired)
    # Only what differs from what was put out before is put out.
    alike = same(take_all(results, earlier), taken_back)
    differs = np.ones(len(fired), np.bool_)
    differs[earlier[alike]] = False
    old, new = np.flatnonzero(~alike), np.flatnonzero(differs)
    parts = [
        (fired[earlier[old]], take_all(taken_back, old), -1),
        (fired[new], take_all(results, new), 1),
    ]
    tables = []
    for places, values, change in parts:
        changes = pa.array(np.full(len(places), change, np.int8))
        arrays = [*_names(firing, places, schema), *values, changes]
        tables.append(pa.Table.from_arrays(arrays, schema=schema))
    return pa.concat_tables(tables)


def same(a: Sequence[pa.Array], b: Sequence[pa.Array]) -> Bits:
    """Row by row whether all values are the same; so are two nulls and two NaNs.

    >>> same([pa.array([[1], [1, 2], None])], [pa.array([[1], [1, 3], None])]).tolist()
    [True, False, True]
    """
    result = np.ones(len(a[0]) if a else 0, np.bool_)
    for x, y in zip(a, b, strict=True):
        result &= _same_lists(x, y) if pa.types.is_list(x.type) else equal(x, y)
    return result


def _same_lists(a: pa.Array, b: pa.Array) -> Bits:
    lengths, others = _lengths(a), _lengths(b)
    alike: Bits = lengths == others
    places = np.flatnonzero(alike & (lengths > 0))
    if len(places):
        x, y = (array.take(pa.array(places)).flatten() for array in (a, b))
        ends = np.cumsum(lengths[places])
        alike[places] = np.logical_and.reduceat(equal(x, y), ends - lengths[places])
    return alike


def _lengths(array: pa.Array) -> Indices:
    """How long lists are; -1 for null."""
    lengths: Indices = array.value_lengths().cast(pa.int64()).fill_null(-1).to_numpy()
    return lengths


def _earlier(firing: Firing, fired: Indices) -> tuple[Indices, list[pa.Array]]:
    """Which of the windows that fire have put out a result before, and that result."""
    windows = firing.windows
    names = [name for name, _ in windows.tables.buffers.fields]
    if windows.tables.fired:
        names = [f"{FIRED}.{name}" for name in names]
        earlier = np.flatnonzero(windows.was_fired[fired])
    else:
        # Every change was put out, so what was put out last is what the state holds.
        earlier = np.flatnonzero(windows.known[fired])
    buffers = windows.before_at(names, fired[earlier])
    return earlier, _finish(firing, fired[earlier], buffers)


def _finish(firing: Firing, places: Indices, buffers: Sequence[pa.Array]) -> list[pa.Array]:
    keys = firing.windows.keys
    columns = take_all([one_array(c) for c in keys.columns], places, ascending=True)
    named = pa.Table.from_arrays(columns, names=keys.column_names)
    return firing.windows.tables.buffers.finish(buffers, rows_of(named))


def _names(firing: Firing, places: Indices, schema: pa.Schema) -> list[pa.Array]:
    """Keys, and the bounds of windows that have any."""
    windows = firing.windows
    arrays = [one_array(column) for column in windows.keys.columns]
    if len(places) < windows.count:
        arrays = take_all(arrays, places, ascending=True)
    if firing.ends_ms is not None:
        kind = schema.field(len(arrays)).type
        bounds = (windows.starts[places], firing.ends_ms[places] * _MICROS)
        arrays += [pa.array(bound).cast(kind) for bound in bounds]
    return arrays
