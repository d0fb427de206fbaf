"""Reads the state that a checkpoint keeps, straight from storage: no Spark, no driver."""

from __future__ import annotations

from holdfast.checkpoint.entry import Checkpoint
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.schema import TableSchema
from holdfast.state.view import TableView
from holdfast.storage import Storage
from holdfast.tiers.opener import open_stored

__all__ = ["stored_tables"]


def stored_tables(entry: Checkpoint, storage: Storage) -> dict[str, TableView]:
    """A view of each state table of a checkpoint; blocks are read and checked when touched.

    What has expired by the checkpoint's own clock is hidden.
    """
    version = entry.version()
    last = entry.epochs[-1] if entry.epochs else None
    clock = TableClock(last.processing_time_ms, last.expiry_ms) if last else None
    views = {}
    for record in entry.schemas:
        schema = TableSchema.from_record(record)
        segments = version.segments(schema.table, FULL_RANGE)
        opened = {s.run.name: open_stored(s.run, storage) for s in segments}
        parts = [(opened[s.run.name], s.range) for s in segments]
        own = clock.behind(record.behind_ms) if clock else None
        views[schema.table] = TableView(schema, parts, own)
    return views
