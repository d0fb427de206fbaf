"""What one task does in an epoch: open the state before, fold its rows in, write what changed.

Nothing here imports PySpark: the epoch loop hands in the rows as Arrow batches and takes back a
report. An attempt always starts from version e−1 and writes under new names, so a repeated or a
doomed attempt changes nothing until the driver accepts its report.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa

from holdfast.checkpoint.entry import StagedOutput
from holdfast.failpoints import failpoint
from holdfast.operators.base import Clock, Operator, Update
from holdfast.recovery.opener import RunOpener, local_path
from holdfast.sinks.base import Stager, StageWriter
from holdfast.spark.spill import Ingest
from holdfast.state.hashing import Hashes, HashRange, partition_range
from holdfast.state.local import LocalRunWriter, write_local
from holdfast.state.merge import merge_runs, merged_schema
from holdfast.state.run import Run, Segment
from holdfast.state.schema import TableSchema
from holdfast.state.tiers import plan_merge
from holdfast.state.version import Change
from holdfast.state.view import Found, TableView
from holdfast.storage import Storage

__all__ = ["TaskReport", "TaskSpec", "run_task"]

# A task merges small runs itself; what is larger waits for a background job.
_INLINE_MERGE_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """Everything the tasks of one epoch need; pickled once per epoch."""

    operator: Operator
    clock: Clock
    partitions: int
    claim: int
    folder: Path
    storage: Storage
    host: str
    segments: Mapping[str, tuple[Segment, ...]]
    """Version e−1, per table newest first."""
    mergeable: frozenset[str]
    """Runs that nobody else works on and that have no stored form: free to merge."""
    stagers: Mapping[str, Stager]
    memory_bytes: int


class TaskReport(msgspec.Struct, frozen=True):
    """What a task attempt did: the only thing it tells the driver."""

    epoch: int
    partition: int
    attempt: str
    changes: tuple[Change, ...]
    staged: dict[str, StagedOutput]
    rows: int
    keys: int
    new_keys: int
    spilled_bytes: int
    fetched_bytes: int
    seconds: dict[str, float]
    """Time per phase: receive, state, stage, merge."""


def run_task(spec: TaskSpec, partition: int, batches: Iterable[pa.RecordBatch]) -> TaskReport:
    """Process one partition of one epoch."""
    task = _Task(spec, partition)
    try:
        return task.run(batches)
    except BaseException:
        task.abort()
        raise


@dataclass
class _Task:
    spec: TaskSpec
    partition: int
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    seconds: dict[str, float] = field(default_factory=dict)
    _began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        spec = self.spec
        self.range = partition_range(self.partition, spec.partitions)
        self.opener = RunOpener(spec.folder, spec.storage)
        self.segments = {
            schema.table: _within(spec.segments.get(schema.table, ()), self.range)
            for schema in spec.operator.tables
        }
        self.writers: dict[str, LocalRunWriter] = {}
        self.stages: dict[str, StageWriter] = {}
        spec.folder.mkdir(parents=True, exist_ok=True)

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        spec, epoch = self.spec, self.spec.clock.epoch
        failpoint("task.start")
        ingest = Ingest(spec.operator, spec.folder, spec.memory_bytes)
        ingest.read(batches)
        self._lap("receive")
        keys = new_keys = 0
        if ingest.rows:
            state = _State(spec.operator.tables, self.segments, self.opener)
            for rows in ingest.pieces(self.range):
                update = spec.operator.update(rows, state, spec.clock)
                keys += len(rows.starts)
                new_keys += update.new_keys
                self._write(update)
                self._lap("state")
                self._stage(update)
                self._lap("stage")
        ingest.close()
        changes = tuple(self._finish(schema) for schema in self._changed())
        self._lap("merge")
        staged = {sink: out for sink, w in self.stages.items() if (out := w.close()) is not None}
        self._lap("stage")
        self.opener.keep_only({s.run.name for part in spec.segments.values() for s in part})
        failpoint("task.before_report")
        return TaskReport(
            epoch,
            self.partition,
            self.attempt,
            changes,
            staged,
            ingest.rows,
            keys,
            new_keys,
            ingest.spilled_bytes,
            self.opener.fetched_bytes,
            self.seconds,
        )

    def abort(self) -> None:
        """Remove what this attempt wrote."""
        for writer in self.writers.values():
            writer.abort()
        for stage in self.stages.values():
            stage.abort()

    def _lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._began
        self._began = now

    def _name(self, suffix: str = "") -> str:
        return f"{self.spec.claim}-{self.spec.clock.epoch}-{self.partition}-{self.attempt}{suffix}"

    def _write(self, update: Update) -> None:
        for schema in self.spec.operator.tables:
            rows = update.changes.get(schema.table)
            if rows is None or not rows.num_rows:
                continue
            if schema.table not in self.writers:
                index = self.spec.operator.tables.index(schema)
                path = local_path(self.spec.folder, self._name(f"-{index}" if index else ""))
                self.writers[schema.table] = LocalRunWriter(path, rows.schema)
            self.writers[schema.table].write(rows)

    def _stage(self, update: Update) -> None:
        if not update.output.num_rows:
            return
        spec = self.spec
        for sink, stager in spec.stagers.items():
            if sink not in self.stages:
                self.stages[sink] = stager.open(
                    spec.clock.epoch, self.partition, self.attempt, spec.operator.output_schema
                )
            self.stages[sink].write(update.output)

    def _changed(self) -> list[TableSchema]:
        return [s for s in self.spec.operator.tables if s.table in self.writers]

    def _finish(self, schema: TableSchema) -> Change:
        """Close a table's new run; merge it with small ones before it when there are enough."""
        epoch = self.spec.clock.epoch
        writer = self.writers[schema.table]
        info = writer.close()
        name = writer.path.stem
        form = msgspec.structs.replace(info.form, hosts=(self.spec.host,))
        run = Run(
            name, schema.table, self.range, epoch, epoch, info.rows, info.tombstones, local=form
        )
        older = []
        for segment in self.segments[schema.table]:
            if segment.run.name not in self.spec.mergeable:
                break
            older.append(segment)
        stack = [Segment(run, self.range), *older]
        chosen = plan_merge(stack)
        if chosen is None or chosen.start != 0:
            return Change(schema.table, self.range, (), run)
        picked = stack[chosen]
        if sum(s.rows for s in picked) > _INLINE_MERGE_ROWS:
            return Change(schema.table, self.range, (), run)
        return self._merge(schema, picked)

    def _merge(self, schema: TableSchema, picked: Sequence[Segment]) -> Change:
        opened = [(self.opener.open(s.run), s.range) for s in picked]
        path = local_path(self.spec.folder, self._name("-m"))
        info = write_local(
            path,
            merged_schema(schema, opened, drop_tombstones=False),
            merge_runs(schema, opened, self.range, drop_tombstones=False),
        )
        merged = Run(
            path.stem,
            schema.table,
            self.range,
            min(s.run.first_epoch for s in picked),
            self.spec.clock.epoch,
            info.rows,
            info.tombstones,
            local=msgspec.structs.replace(info.form, hosts=(self.spec.host,)),
        )
        inputs = tuple(dict.fromkeys(s.run.name for s in picked[1:]))
        local_path(self.spec.folder, picked[0].run.name).unlink()
        return Change(schema.table, self.range, inputs, merged, parts=tuple(picked[1:]))


def _within(segments: Sequence[Segment], within: HashRange) -> tuple[Segment, ...]:
    cut = ((s, s.range.intersect(within)) for s in segments)
    return tuple(Segment(s.run, part) for s, part in cut if part is not None)


class _State:
    """The state before the epoch, opened table by table when it is first asked for."""

    def __init__(
        self,
        schemas: Sequence[TableSchema],
        segments: Mapping[str, Sequence[Segment]],
        opener: RunOpener,
    ) -> None:
        self._schemas = {schema.table: schema for schema in schemas}
        self._segments = segments
        self._opener = opener
        self._views: dict[str, TableView] = {}

    def lookup(self, table: str, hashes: Hashes, keys: pa.Table) -> Found:
        if table not in self._views:
            opened = [(self._opener.open(s.run), s.range) for s in self._segments[table]]
            self._views[table] = TableView(self._schemas[table], opened)
        return self._views[table].lookup(hashes, keys)
