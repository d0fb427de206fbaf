"""State on disk against a dict: epochs at any P, merges, both forms, weak hashes, in any order."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from holdfast.state import local, stored
from holdfast.state.blocks import OpenRun
from holdfast.state.hashing import FULL_RANGE, HashRange, partition_range
from holdfast.state.local import LocalRun, LocalRunInfo, write_local
from holdfast.state.merge import merge_runs, merged_schema
from holdfast.state.run import Run, Segment, StoredForm
from holdfast.state.stored import StoredRun, encode_stored
from holdfast.state.tiers import plan_merge
from holdfast.state.version import Change, Version
from holdfast.state.view import TableView
from tests.state.model import (
    HASHES,
    SCHEMA,
    Hash,
    Key,
    Row,
    found_rows,
    state_rows,
    state_table,
    strong_hash,
)

TABLE = SCHEMA.table
WORDS = [None, "", "a", "b", "a\0", "longer than a view holds", *"cdefgh"]
DAYS = [None, 0, 1]
ALL_KEYS: list[Key] = list(itertools.product(WORDS, DAYS))
keys = st.sampled_from(ALL_KEYS)
rows = st.tuples(
    st.integers(0, 9), st.sampled_from([None, 0.5, -1.0]), st.sampled_from([None, "x", "note" * 9])
)
ranges = st.one_of(
    st.just(FULL_RANGE),
    st.integers(0, 2).map(lambda p: partition_range(p, 3)),
    st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)).map(
        lambda pair: HashRange(min(pair), max(pair))
    ),
)


class StateOnDisk(RuleBasedStateMachine):
    """Whatever is done to the runs, the table is what the dict says."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.small = [mock.patch.object(form, "BLOCK_ROWS", 3) for form in (local, stored)]
        for patch in self.small:
            patch.start()
        self.hash_of: Hash = strong_hash
        self.model: dict[Key, Row] = {}
        self.version = Version(-1)
        self.open: dict[str, OpenRun] = {}
        self.objects: dict[str, bytes] = {}
        self.names = 0

    def teardown(self) -> None:
        for patch in self.small:
            patch.stop()
        shutil.rmtree(self.folder)

    @initialize(name=st.sampled_from(sorted(HASHES)))
    def choose_hash(self, name: str) -> None:
        self.hash_of = HASHES[name]

    @rule(
        changes=st.dictionaries(keys, st.one_of(st.none(), rows), max_size=25),
        partitions=st.sampled_from([1, 2, 3, 8]),
        merging=st.booleans(),
    )
    def epoch(self, changes: dict[Key, Row | None], partitions: int, merging: bool) -> None:
        epoch = self.version.epoch + 1
        done = []
        for number in range(partitions):
            within = partition_range(number, partitions)
            own = {k: r for k, r in changes.items() if covers(within, self.hash_of(k))}
            if own:
                done.append(self._write_epoch(epoch, within, own, merging=merging))
        self.version = self.version.apply(done, epoch)
        for key, row in changes.items():
            self.model.pop(key, None)
            if row is not None:
                self.model[key] = row

    @rule(within=ranges, start=st.integers(0, 5), length=st.integers(1, 5))
    def merge(self, within: HashRange, start: int, length: int) -> None:
        present = self.version.segments(TABLE, within)
        layers = layers_of(present)
        picked = [s for layer in layers[start : start + length] for s in layer]
        if picked:
            oldest = picked[-1] == present[-1]
            change = self._merge(within, picked, drop_tombstones=oldest)
            self.version = self.version.apply([change])

    @rule()
    def merge_as_planned(self) -> None:
        present = self.version.segments(TABLE, FULL_RANGE)
        chosen = plan_merge(present, fanout=2)
        if chosen is not None:
            oldest = chosen.stop == len(present)
            change = self._merge(FULL_RANGE, present[chosen], drop_tombstones=oldest)
            self.version = self.version.apply([change])

    @rule()
    def store_and_lose_the_host(self) -> None:
        """Every run gets a stored form, the local ones are gone, and the version is reopened."""
        gained = {}
        for name, run in self.version.runs().items():
            if run.stored is None:
                gained[name] = self._stored(run)
        self.version = self.version.with_runs(gained)
        for name, run in self.version.runs().items():
            self.open[name] = self._open_stored(run)
        shutil.rmtree(self.folder)
        self.folder.mkdir()

    @rule()
    def reopen_local_runs(self) -> None:
        for name, run in self.version.runs().items():
            if self._path(name).exists():
                opened = LocalRun.open(self._path(name), expected=run.local, verify=True)
                opened.verify()
                self.open[name] = opened

    @rule(asked=st.lists(keys, unique=True, max_size=20))
    def look_up_some(self, asked: list[Key]) -> None:
        found = found_rows(self._view(FULL_RANGE), asked, self.hash_of)
        assert found == {k: self.model[k] for k in asked if k in self.model}

    @rule(within=ranges)
    def look_up_in_a_range(self, within: HashRange) -> None:
        inside = {k: r for k, r in self.model.items() if covers(within, self.hash_of(k))}
        assert found_rows(self._view(within), ALL_KEYS, self.hash_of) == inside

    @precondition(lambda self: self.model)
    @rule(within=ranges)
    def scan(self, within: HashRange) -> None:
        view = self._view(FULL_RANGE)
        expected = {k: r for k, r in self.model.items() if covers(within, self.hash_of(k))}
        assert state_rows(view.scan(within)) == expected
        assert view.count(within) == len(expected)

    @invariant()
    def table_is_what_the_dict_says(self) -> None:
        view = self._view(FULL_RANGE)
        assert state_rows(view.scan()) == self.model
        assert found_rows(view, ALL_KEYS, self.hash_of) == self.model

    def _view(self, within: HashRange) -> TableView:
        return TableView(SCHEMA, self._opened(self.version.segments(TABLE, within)))

    def _opened(self, segments: Sequence[Segment]) -> list[tuple[OpenRun, HashRange]]:
        return [(self.open[s.run.name], s.range) for s in segments]

    def _write_epoch(
        self, epoch: int, within: HashRange, changes: dict[Key, Row | None], *, merging: bool
    ) -> Change:
        table = state_table(changes, self.hash_of)
        new = self._run(within, epoch, epoch, table.schema, iter([table]))
        if not merging:
            return Change(TABLE, within, (), new)
        layers = layers_of(self.version.segments(TABLE, within))
        newest = layers[0] if layers else []
        picked = [Segment(new, within), *newest]
        change = self._merge(within, picked, drop_tombstones=len(layers) <= 1)
        inputs = tuple(dict.fromkeys(s.run.name for s in newest))
        return Change(TABLE, within, inputs, change.output, tuple(newest))

    def _merge(
        self, within: HashRange, picked: Sequence[Segment], *, drop_tombstones: bool
    ) -> Change:
        opened = self._opened(picked)
        output = self._run(
            within,
            min(s.run.first_epoch for s in picked),
            max(s.run.last_epoch for s in picked),
            merged_schema(SCHEMA, opened, drop_tombstones=drop_tombstones),
            merge_runs(SCHEMA, opened, within, drop_tombstones=drop_tombstones, piece_rows=5),
        )
        inputs = tuple(dict.fromkeys(s.run.name for s in picked))
        return Change(TABLE, within, inputs, output, tuple(picked))

    def _run(
        self, within: HashRange, first: int, last: int, schema: pa.Schema, data: Iterator[pa.Table]
    ) -> Run:
        self.names += 1
        name = f"1-{self.names}"
        info: LocalRunInfo = write_local(self._path(name), schema, data)
        self.open[name] = LocalRun.open(self._path(name), expected=info.form)
        return Run(name, TABLE, within, first, last, info.rows, info.tombstones, local=info.form)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.arrow"

    def _stored(self, run: Run) -> Run:
        opened = self.open[run.name]
        batches = (opened.block(i) for i in range(len(opened.blocks)))
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        data, info = encode_stored(tables, opened.schema)
        assert (info.rows, info.tombstones) == (run.rows, run.tombstones)
        self.objects[run.name] = bytes(data)
        form = StoredForm(run.name, info.size_bytes, info.checksum, info.tail_bytes)
        return Run(
            run.name,
            TABLE,
            run.range,
            run.first_epoch,
            run.last_epoch,
            run.rows,
            run.tombstones,
            stored=form,
        )

    def _open_stored(self, run: Run) -> StoredRun:
        assert run.stored is not None
        data = self.objects[run.name]
        opened = StoredRun.open(
            run.name, run.stored, lambda start, size: data[start : start + size]
        )
        opened.verify()
        return opened


def covers(within: HashRange, value: int) -> bool:
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


TestStateOnDisk = StateOnDisk.TestCase
TestStateOnDisk.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
