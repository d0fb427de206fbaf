"""What a background task does: it merges a piece of a table to one run, and gives that its stored form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pyarrow as pa

from holdfast import runtime
from holdfast.errors import HoldfastError
from holdfast.failpoints import failpoint
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import HashRange
from holdfast.state.local import LocalRunWriter
from holdfast.state.merge import merge_runs, merged_schema
from holdfast.state.run import Run, Segment
from holdfast.state.schema import TableSchema
from holdfast.storage import Storage
from holdfast.tasks.here import Here
from holdfast.tiers.opener import RunOpener, local_path
from holdfast.tiers.storing import store_run

__all__ = ["MergeWork", "Piece", "PieceResult"]


class Piece(msgspec.Struct, frozen=True):
    """Segments of one table in one range, newest first, that become one run."""

    table: str
    range: HashRange
    segments: tuple[Segment, ...]
    oldest: bool
    """Nothing lies below: deleted keys need no tombstone any more."""


class PieceResult(msgspec.Struct, frozen=True):
    """What became of a piece."""

    index: int
    run: Run | None = None
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class MergeWork:
    """Pieces, and what is needed to merge them."""

    pieces: tuple[Piece, ...]
    schemas: dict[str, TableSchema]
    storage: Storage
    folder: Path
    claim: int
    host: str
    clock: TableClock | None
    """The version's times: what has expired by them is dropped."""
    behind_ms: Mapping[str, int]

    def at(self, here: Here) -> MergeWork:
        """The same, for a task there."""
        folder, storage = here.path(self.folder), here.reach(self.storage)
        return replace(self, host=here.host, folder=folder, storage=storage)

    def do(self, index: int) -> PieceResult:
        """Merge and store one piece; an error is a result, so that the other pieces count."""
        try:
            return PieceResult(index, self._stored(self.pieces[index]))
        except (HoldfastError, OSError) as error:
            return PieceResult(index, error=str(error))
        except Exception as error:  # noqa: BLE001 - memory may be short here, or Arrow refuse something
            return PieceResult(index, error=f"{type(error).__name__}: {error}")

    def _stored(self, piece: Piece) -> Run:
        failpoint("store.piece")
        opener = RunOpener(self.folder, self.storage)
        schema = self.schemas[piece.table]
        opened = [(opener.open(s.run), s.range) for s in piece.segments]
        newest = piece.segments[0]
        alone = len(piece.segments) == 1 and newest.range == newest.run.range
        alone = alone and not (piece.oldest and newest.run.tombstones)
        clock = None
        if not alone and self.clock is not None:
            clock = self.clock.behind(self.behind_ms.get(piece.table, 0))
        arrow = merged_schema(schema, opened, drop_tombstones=piece.oldest, clock=clock)
        tables = merge_runs(schema, opened, piece.range, drop_tombstones=piece.oldest, clock=clock)
        if alone:
            # The local form is there already and stays, under the same name and with the same rows.
            return store_run(self.storage, newest.run, tables, arrow)
        name = f"{self.claim}-{newest.run.last_epoch}-{runtime.new_id()}"
        writer = LocalRunWriter(local_path(self.folder, name), arrow)
        first_epoch = min(s.run.first_epoch for s in piece.segments)
        made = Run(name, piece.table, piece.range, first_epoch, newest.run.last_epoch, rows=0)
        try:
            run = store_run(self.storage, made, _tee(tables, writer), arrow)
        except BaseException:
            writer.abort()
            raise
        local = msgspec.structs.replace(writer.close().form, hosts=(self.host,))
        return msgspec.structs.replace(run, local=local)


def _tee(tables: Iterator[pa.Table], writer: LocalRunWriter) -> Iterator[pa.Table]:
    for table in tables:
        writer.write(table)
        yield table
