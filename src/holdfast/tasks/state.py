"""The state before an epoch, as a task sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from holdfast.state.blocks import OpenRun
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE, Hashes, HashRange
from holdfast.state.memory import MemoryRun
from holdfast.state.run import Segment
from holdfast.state.schema import TableSchema
from holdfast.state.view import FoundMany, FoundRows, TableView
from holdfast.tiers.opener import RunOpener

__all__ = ["EpochState", "segments_within"]


def segments_within(segments: Sequence[Segment], within: HashRange) -> tuple[Segment, ...]:
    """Segments cut to a range."""
    cut = ((s, s.range.intersect(within)) for s in segments)
    return tuple(Segment(s.run, part) for s, part in cut if part is not None)


class EpochState:
    """A :class:`holdfast.operators.base.StateReader`: tables are opened when first asked for."""

    def __init__(
        self,
        schemas: Sequence[TableSchema],
        segments: Mapping[str, Sequence[Segment]],
        within: HashRange,
        opener: RunOpener,
        clock: TableClock,
        overlay: Mapping[str, Sequence[pa.Table]] | None = None,
    ) -> None:
        self._schemas = {schema.table: schema for schema in schemas}
        self._segments = segments
        self._within = within
        self._opener = opener
        self._clock = clock
        self._overlay = overlay or {}
        self._views: dict[tuple[str, HashRange], TableView] = {}

    def overlaid(self, changes: Mapping[str, Sequence[pa.Table]]) -> EpochState:
        """The same state with newer rows on top, per table newest first."""
        return EpochState(
            tuple(self._schemas.values()),
            self._segments,
            self._within,
            self._opener,
            self._clock,
            changes,
        )

    def lookup(self, table: str, hashes: Hashes, keys: pa.Table) -> FoundRows:
        """Rows of distinct keys."""
        return self._view(table).lookup(hashes, keys)

    def lookup_prefix(self, table: str, hashes: Hashes, keys: pa.Table, limit: int) -> FoundMany:
        """All rows under each key."""
        return self._view(table).lookup_prefix(hashes, keys, limit)

    def scan_prefix(self, table: str, key_hash: int, key: pa.Table) -> Iterator[pa.Table]:
        """All rows under one key."""
        return self._view(table).scan_prefix(key_hash, key)

    def scan(self, table: str) -> Iterator[pa.Table]:
        """All rows of a table, of every partition."""
        return self._view(table, FULL_RANGE).scan()

    def scan_within(self, table: str, within: HashRange) -> Iterator[pa.Table]:
        """The rows of a range."""
        return self._view(table, within).scan(within)

    def due(self, table: str, until_ms: int, within: HashRange) -> pa.Table:
        """Rows of a timed table up to a time."""
        return self._view(table, within).due(None, until_ms)

    def first_time(self, table: str, after_ms: int | None) -> int | None:
        """The earliest time after another."""
        return self._view(table).first_time(after_ms)

    def _view(self, table: str, within: HashRange | None = None) -> TableView:
        span = within or self._within
        if (table, span) not in self._views:
            layers = self._overlay.get(table, ())
            opened: list[tuple[OpenRun, HashRange]] = [
                (MemoryRun(f"{table} of this epoch", rows), FULL_RANGE) for rows in layers
            ]
            opened += [
                (self._opener.open(segment.run), segment.range)
                for segment in segments_within(self._segments.get(table, ()), span)
            ]
            self._views[table, span] = TableView(self._schemas[table], opened, self._clock)
        return self._views[table, span]
