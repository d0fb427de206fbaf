"""One state table on disk, driven by the state machines: epochs at any P, merges, both forms."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import pyarrow as pa
from hypothesis import strategies as st

from holdfast.state import local, stored
from holdfast.state.blocks import OpenRun
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE, HashRange, partition_range
from holdfast.state.local import LocalRun, LocalRunInfo, write_local
from holdfast.state.merge import merge_runs, merged_schema
from holdfast.state.run import Run, Segment, StoredForm
from holdfast.state.schema import TableSchema
from holdfast.state.stored import StoredRun, encode_stored
from holdfast.state.tiers import plan_merge
from holdfast.state.version import Change, Version
from holdfast.state.view import TableView

partition_counts = st.sampled_from([1, 2, 3, 8])
partition_ranges = st.one_of(
    st.just(FULL_RANGE),
    st.integers(0, 2).map(lambda p: partition_range(p, 3)),
    st.integers(0, 7).map(lambda p: partition_range(p, 8)),
)


class TableOnDisk:
    """A version of one table, its runs as files and objects, with very small blocks."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.version = Version(-1)
        self._folder = Path(tempfile.mkdtemp())
        self._small = [mock.patch.object(form, "BLOCK_ROWS", 3) for form in (local, stored)]
        for patch in self._small:
            patch.start()
        self._open: dict[str, OpenRun] = {}
        self._objects: dict[str, bytes] = {}
        self._names = 0

    def close(self) -> None:
        """Leave nothing behind."""
        for patch in self._small:
            patch.stop()
        shutil.rmtree(self._folder)

    def view(self, within: HashRange = FULL_RANGE, clock: TableClock | None = None) -> TableView:
        """The table in a range."""
        segments = self.version.segments(self.schema.table, within)
        return TableView(self.schema, self._opened(segments), clock)

    def epoch(
        self,
        tables: Sequence[tuple[HashRange, pa.Table]],
        *,
        merging: bool,
        clock: TableClock | None = None,
    ) -> None:
        """The rows that each partition wrote, perhaps merged with its newest runs right away."""
        epoch = self.version.epoch + 1
        changes = [
            self._written(epoch, within, table, merging, clock)
            for within, table in tables
            if table.num_rows
        ]
        self.version = self.version.apply(changes, epoch)

    def merge(
        self, within: HashRange, start: int, length: int, clock: TableClock | None = None
    ) -> None:
        """Merge some neighbours of a range."""
        present = self.version.segments(self.schema.table, within)
        layers = layers_of(present)
        picked = [s for layer in layers[start : start + length] for s in layer]
        if picked:
            oldest = picked[-1] == present[-1]
            change = self._merged(within, picked, drop_tombstones=oldest, clock=clock)
            self.version = self.version.apply([change])

    def merge_as_planned(self, clock: TableClock | None = None) -> None:
        """Merge what the planner would."""
        present = self.version.segments(self.schema.table, FULL_RANGE)
        chosen = plan_merge(present, fanout=2)
        if chosen is not None:
            oldest = chosen.stop == len(present)
            change = self._merged(FULL_RANGE, present[chosen], drop_tombstones=oldest, clock=clock)
            self.version = self.version.apply([change])

    def store_and_lose_the_host(self) -> None:
        """Every run gets a stored form, the local ones are gone, and the version is reopened."""
        runs = self.version.runs()
        gained = {name: self._stored(run) for name, run in runs.items() if run.stored is None}
        self.version = self.version.with_runs(gained)
        for name, run in self.version.runs().items():
            self._open[name] = self._open_stored(run)
        shutil.rmtree(self._folder)
        self._folder.mkdir()

    def reopen_local_runs(self) -> None:
        """Open every local file anew, and check it."""
        for name in self.version.runs():
            if self._path(name).exists():
                opened = LocalRun.open(self._path(name), verify=True)
                opened.verify()
                self._open[name] = opened

    def _opened(self, segments: Sequence[Segment]) -> list[tuple[OpenRun, HashRange]]:
        return [(self._open[s.run.name], s.range) for s in segments]

    def _written(
        self,
        epoch: int,
        within: HashRange,
        table: pa.Table,
        merging: bool,
        clock: TableClock | None,
    ) -> Change:
        new = self._run(within, epoch, epoch, table.schema, iter([table]))
        if not merging:
            return Change(self.schema.table, within, (), new)
        layers = layers_of(self.version.segments(self.schema.table, within))
        newest = layers[0] if layers else []
        picked = [Segment(new, within), *newest]
        change = self._merged(within, picked, drop_tombstones=len(layers) <= 1, clock=clock)
        inputs = tuple(dict.fromkeys(s.run.name for s in newest))
        return Change(self.schema.table, within, inputs, change.output, tuple(newest))

    def _merged(
        self,
        within: HashRange,
        picked: Sequence[Segment],
        *,
        drop_tombstones: bool,
        clock: TableClock | None,
    ) -> Change:
        opened = self._opened(picked)
        output = self._run(
            within,
            min(s.run.first_epoch for s in picked),
            max(s.run.last_epoch for s in picked),
            merged_schema(self.schema, opened, drop_tombstones=drop_tombstones, clock=clock),
            merge_runs(
                self.schema,
                opened,
                within,
                drop_tombstones=drop_tombstones,
                piece_rows=5,
                clock=clock,
            ),
        )
        inputs = tuple(dict.fromkeys(s.run.name for s in picked))
        return Change(self.schema.table, within, inputs, output, tuple(picked))

    def _run(
        self, within: HashRange, first: int, last: int, schema: pa.Schema, data: Iterator[pa.Table]
    ) -> Run:
        self._names += 1
        name = f"1-{self._names}"
        info: LocalRunInfo = write_local(self._path(name), schema, data)
        self._open[name] = LocalRun.open(self._path(name))
        table = self.schema.table
        return Run(name, table, within, first, last, info.rows, info.tombstones, local=info.form)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.arrow"

    def _stored(self, run: Run) -> Run:
        opened = self._open[run.name]
        batches = (opened.block(i) for i in range(len(opened.blocks)))
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        data, info = encode_stored(tables, opened.schema)
        assert (info.rows, info.tombstones) == (run.rows, run.tombstones)
        self._objects[run.name] = bytes(data)
        form = StoredForm(run.name, info.size_bytes, info.checksum, info.tail_bytes)
        return Run(
            run.name,
            run.table,
            run.range,
            run.first_epoch,
            run.last_epoch,
            run.rows,
            run.tombstones,
            stored=form,
        )

    def _open_stored(self, run: Run) -> StoredRun:
        assert run.stored is not None
        data = self._objects[run.name]
        opened = StoredRun.open(
            run.name, run.stored, lambda start, size: data[start : start + size]
        )
        opened.verify()
        return opened


def covers(within: HashRange, value: int) -> bool:
    """Whether a hash lies in a range."""
    return within.first <= value <= within.last


def layers_of(present: Sequence[Segment]) -> list[list[Segment]]:
    """Neighbours whose epochs interlock belong together."""
    layers: list[list[Segment]] = []
    for part in present:
        if layers and part.run.last_epoch >= min(s.run.first_epoch for s in layers[-1]):
            layers[-1].append(part)
        else:
            layers.append([part])
    return layers
