"""What windows leave in state: their rows, tombstones of those that go, and hints when to look."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.operators.columns import Bits
from holdfast.operators.window.firing import Firing
from holdfast.operators.window.tables import CLOSED, EARLY, FIRED, WAITING
from holdfast.state.columns import concat, one_array, take_all
from holdfast.state.schema import TableSchema, time_to_order

__all__ = ["changes_of"]

Indices = npt.NDArray[np.int64]


def changes_of(firing: Firing) -> dict[str, pa.Table]:
    """Per table the new rows; tables without any are left out."""
    tables = firing.windows.tables
    changes = {}
    stored = _stored(firing)
    if stored.num_rows:
        changes[tables.windows.table] = stored
    hints = []
    if firing.ends_ms is not None:
        hints.append((tables.ends, _end_hints(firing, firing.ends_ms)))
    if tables.early:
        waiting = np.flatnonzero(firing.begins_to_wait)
        hints.append((tables.early_times, (waiting, firing.early_ms_after[waiting])))
    for schema, (places, times) in hints:
        if len(places):
            changes[schema.table] = _timed(firing, schema, places, times)
    return changes


def _stored(firing: Firing) -> pa.Table:
    """Rows of windows that changed, and tombstones, sorted by (hash, key, start)."""
    windows = firing.windows
    schema = windows.tables.windows
    values = _values(firing)
    names = [one_array(c) for c in windows.names.columns]
    columns = [*names, *(values[name] for name in schema.value_names)]
    places = np.flatnonzero(firing.written | firing.deleted)
    if not firing.deleted.any():
        if len(places) < windows.count:
            columns = take_all(columns, places, ascending=True)
        return pa.Table.from_arrays(columns, schema=schema.arrow)
    gone = firing.deleted[places]
    # A tombstone needs no values: taking by null indices leaves them out.
    live = pa.array(places, mask=gone)
    kept = [column.take(live) for column in columns[len(names) :]]
    columns = [*take_all(names, places, ascending=True), *kept, pa.array(gone)]
    return pa.Table.from_arrays(columns, schema=schema.arrow_with_tombstones)


def _values(firing: Firing) -> dict[str, pa.Array]:
    """The value columns of all windows after this epoch, by name."""
    tables = firing.windows.tables
    names = [name for name, _ in tables.buffers.fields]
    values = dict(zip(names, firing.windows.buffers, strict=True))
    if tables.closed:
        values[CLOSED] = pa.array(firing.closed | firing.was_closed)
    if tables.waiting:
        values[WAITING] = pa.array(firing.waiting_after)
    if tables.early:
        values[EARLY] = pa.array(firing.early_ms_after)
    if tables.fired:
        values |= _last_fired(firing)
    return values


def _last_fired(firing: Firing) -> dict[str, pa.Array]:
    """The buffers as they were when each window last fired; null if it never did."""
    windows = firing.windows
    fires, fired = firing.fires, windows.was_fired | firing.fires
    places = np.where(fires, np.arange(windows.count), windows.count + windows.before)
    taken = pa.array(places, mask=~fired)
    values = {FIRED: pa.array(fired)}
    fields = windows.tables.buffers.fields
    for (name, kind), now in zip(fields, windows.buffers, strict=True):
        before = one_array(windows.found.column(f"{FIRED}.{name}"))
        values[f"{FIRED}.{name}"] = concat([now, before], kind).take(taken)
    return values


def _end_hints(firing: Firing, ends_ms: Indices) -> tuple[Indices, Indices]:
    """When to look at windows that are new: when they close, and when they go."""
    rules = firing.rules
    begins: Bits = firing.begins
    places, times = [], []
    if not rules.lateness_ms or rules.closing_matters:
        to_close = np.flatnonzero(begins & ~firing.closed)
        places.append(to_close)
        times.append(ends_ms[to_close])
    if rules.lateness_ms:
        to_go = np.flatnonzero(begins)
        places.append(to_go)
        times.append(ends_ms[to_go] + rules.lateness_ms)
    return np.concatenate(places), np.concatenate(times)


def _timed(firing: Firing, schema: TableSchema, places: Indices, times_ms: Indices) -> pa.Table:
    names = take_all([one_array(c) for c in firing.windows.names.columns], places)
    return pa.Table.from_arrays([pa.array(time_to_order(times_ms)), *names], schema=schema.arrow)
