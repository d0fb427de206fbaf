"""Epochs of a process without Spark: real tasks, real runs on disk, any P, restarts and merges."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from holdfast.checkpoint.entry import EpochRecord, StagedOutput
from holdfast.checkpoint.time import PipelineTime, Watermark
from holdfast.operators.base import Clock
from holdfast.operators.event_time import EventTime
from holdfast.operators.input_rows import CONTROL, SOURCE, TAG
from holdfast.operators.process.evolution import check_evolution
from holdfast.operators.process.keyed import KeyedProcess, KeyedProgram
from holdfast.operators.process.operator import ProcessOperator
from holdfast.sinks.base import Stager, StageWriter
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE, partition_of
from holdfast.state.local import write_local
from holdfast.state.merge import merge_runs, merged_schema
from holdfast.state.run import Run
from holdfast.state.schema import HASH, TableSchema
from holdfast.state.text import python_rows, text_array
from holdfast.state.version import Change, Version
from holdfast.state.view import TableView
from holdfast.storage import MemoryStorage
from holdfast.tasks.task import TaskReport, TaskSpec, run_task
from holdfast.tiers.opener import RunOpener, local_path

Fields = Sequence[tuple[str, pa.DataType]]
Hashed = Callable[[tuple[Any, ...]], int]

TIMES = (("event", "processing"), ("processing",))


def spread(key: tuple[Any, ...]) -> int:
    """A hash like Spark's: any function of the key will do."""
    return xxhash.xxh3_64_intdigest(repr(key).encode())


HASHES: Mapping[str, Hashed] = {
    "spread": spread,
    "one for all": lambda key: 7 << 32 | 5,
    "shared upper half": lambda key: (9 << 32) | (spread(key) & 0xFFFFFFFF),
    "few": lambda key: (spread(key) & 3) << 61,
}


class _Rows(StageWriter):
    def __init__(self, kept: list[Any], epoch: int, partition: int) -> None:
        self.kept, self.epoch, self.partition = kept, epoch, partition
        self.rows: list[Any] = []

    def write(self, table: pa.Table) -> None:
        self.rows += python_rows(table)

    def close(self) -> StagedOutput:
        self.kept += self.rows
        return StagedOutput(self.epoch, self.partition, "kept", len(self.rows))

    def abort(self) -> None:
        self.rows = []


class Kept(Stager):
    """Keeps what tasks put out, as Python rows."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def open(self, epoch: int, partition: int, nonce: str, schema: pa.Schema) -> StageWriter:
        del nonce, schema
        return _Rows(self.rows, epoch, partition)


@dataclass
class Epoch:
    """What came of an epoch."""

    record: EpochRecord
    output: list[dict[str, Any]]
    sides: dict[str, list[dict[str, Any]]]
    reports: list[TaskReport]

    @property
    def metrics(self) -> dict[str, float]:
        total: dict[str, float] = {}
        for report in self.reports:
            for name, amount in report.metrics.items():
                total[name] = total.get(name, 0) + amount
        return total


@dataclass
class Harness:
    """A pipeline with one process, epoch by epoch."""

    make: Callable[[], KeyedProcess]
    folder: Path
    keys: Fields
    columns: Fields
    watermark: Watermark | None = None
    event_column: str = "ts"
    lateness_ms: int = 0
    control: Fields | None = None
    hashed: Hashed = spread
    memory_bytes: int = 1 << 30
    version: Version = field(default_factory=lambda: Version(-1))
    records: list[EpochRecord] = field(default_factory=list)
    schemas: dict[str, TableSchema] = field(default_factory=dict)
    merges: int = 0

    def __post_init__(self) -> None:
        self._names = itertools.count()
        self.restart()

    def restart(self, make: Callable[[], KeyedProcess] | None = None) -> None:
        """As a new driver would: nothing is known but version, records and schemas."""
        if make is not None:
            self.make = make
            operator = self.operator()
            check_evolution(self.schemas, operator.tables, len(self.records))
            known = {schema.table for schema in operator.tables}
            tables = {t: s for t, s in self.version.tables.items() if t in known}
            self.version = Version(self.version.epoch, tables)
        sources = {"main": self.watermark} if self.watermark else {}
        self.time = PipelineTime(sources, self.records[-1] if self.records else None)

    def operator(self) -> ProcessOperator:
        process = self.make()
        kinds = TIMES[0] if self.watermark else TIMES[1]
        has_timers = type(process).on_timer is not KeyedProcess.on_timer
        program = KeyedProgram(process, kinds if has_timers else ())  # type: ignore[arg-type]
        times = {"main": EventTime(self.event_column, self.lateness_ms)} if self.watermark else {}
        operator = ProcessOperator(
            "process",
            self.keys,
            self.columns,
            program,
            event_time=times,
            control=self.control,
            broadcast=program.broadcast,
        )
        operator.continuing(self.schemas)
        return operator

    def run(
        self,
        rows: Sequence[tuple[Any, ...]],
        now_ms: int,
        partitions: int = 1,
        control: Sequence[tuple[Any, ...]] = (),
        batch_rows: int = 7,
    ) -> Epoch:
        """One epoch."""
        epoch = self.version.epoch + 1
        record = self.time.begin(epoch, now_ms)
        clock = Clock(
            epoch,
            record.processing_time_ms,
            record.watermark_ms,
            record.previous_watermark_ms,
            self.time.previous_processing_ms,
        )
        operator = self.operator()
        batch = self._batch(operator, rows, control)
        main, sides = Kept(), {name: Kept() for name in operator.side_schemas}
        spec = TaskSpec(
            operator=operator,
            clock=clock,
            partitions=partitions,
            claim=1,
            folder=self.folder,
            storage=MemoryStorage("tasks"),
            host="h1",
            segments={s.table: self.version.segments(s.table, FULL_RANGE) for s in operator.tables},
            mergeable=frozenset(self.version.runs()),
            stagers={"main": main, **{f"side-{name}": kept for name, kept in sides.items()}},
            memory_bytes=self.memory_bytes,
            outputs={f"side-{name}": name for name in sides},
        )
        owner = partition_of(np.asarray(batch.column(0)).view(np.uint64), partitions)
        shared = np.asarray(batch.column(batch.schema.get_field_index(SOURCE))) == 1
        reports = []
        for partition in range(partitions):
            mine = batch.filter(pa.array((owner == partition) | shared))
            pieces = [mine.slice(at, batch_rows) for at in range(0, mine.num_rows, batch_rows)]
            own = replace(spec, operator=self.operator())
            reports.append(run_task(own, partition, pieces))
        changes = [change for report in reports for change in report.changes]
        self.merges += sum(bool(change.inputs) for change in changes)
        self.version = self.version.apply(changes, epoch)
        # By way of what a log entry keeps.
        self.schemas = {s.table: TableSchema.from_record(s.record()) for s in operator.tables}
        greatest: dict[str, int] = {}
        for report in reports:
            for source, ms in report.greatest_ms.items():
                greatest[source] = max(ms, greatest.get(source, ms))
        record = self.time.end(msgspec.structs.replace(record, rows=len(rows)), greatest)
        self.records.append(record)
        return Epoch(record, main.rows, {n: k.rows for n, k in sides.items()}, reports)

    def compact(self, newest: int | None = None) -> None:
        """What a background job does: merge the newest runs of each table, or all of them."""
        last = self.records[-1]
        clock = TableClock(last.processing_time_ms, last.watermark_ms)
        for schema in self.schemas.values():
            present = self.version.segments(schema.table, FULL_RANGE)
            picked = present if newest is None else present[:newest]
            if len(picked) < 2 or len({s.range for s in present}) > 1:
                continue
            oldest = len(picked) == len(present)
            opener = RunOpener(self.folder, MemoryStorage("tasks"))
            opened = [(opener.open(s.run), s.range) for s in picked]
            path = local_path(self.folder, f"0-merged-{next(self._names)}")
            arrow = merged_schema(schema, opened, drop_tombstones=oldest, clock=clock)
            merged = merge_runs(schema, opened, FULL_RANGE, drop_tombstones=oldest, clock=clock)
            info = write_local(path, arrow, merged)
            runs = [s.run for s in picked]
            form = msgspec.structs.replace(info.form, hosts=("h1",))
            run = Run(
                path.stem,
                schema.table,
                FULL_RANGE,
                min(r.first_epoch for r in runs),
                max(r.last_epoch for r in runs),
                info.rows,
                info.tombstones,
                local=form,
            )
            change = Change(schema.table, FULL_RANGE, tuple(r.name for r in runs), run)
            self.version = self.version.apply([change])
            self.merges += 1

    def state(self, table: str) -> list[dict[str, Any]]:
        """All live rows of a table."""
        last = self.records[-1]
        clock = TableClock(last.processing_time_ms, last.watermark_ms)
        opener = RunOpener(self.folder, MemoryStorage("tasks"))
        segments = self.version.segments(table, FULL_RANGE)
        view = TableView(
            self.schemas[table], [(opener.open(s.run), s.range) for s in segments], clock
        )
        return [row for piece in view.scan() for row in python_rows(piece)]

    def _batch(
        self,
        operator: ProcessOperator,
        rows: Sequence[tuple[Any, ...]],
        control: Sequence[tuple[Any, ...]],
    ) -> pa.RecordBatch:
        """Rows as Spark would send them."""
        names = [name for name, _ in self.columns]
        keyed = [name for name, _ in self.keys]
        dicts = [dict(zip(names, row, strict=True)) for row in rows]
        count, extra = len(rows), len(control)
        given: dict[str, list[Any]] = {name: [d[name] for d in dicts] for name in names}
        hashes = [self.hashed(tuple(d[name] for name in keyed)) for d in dicts]
        columns = {
            HASH: np.array([*hashes, *([0] * extra)], np.uint64).view(np.int64),
            TAG: list(range(count + extra)),
            SOURCE: [0] * count + [1] * extra,
        }
        arrays = []
        fields = []
        for field_ in operator.input_schema:
            kind = pa.int64() if field_.name == HASH else field_.type
            if field_.name in columns:
                values: Any = columns[field_.name]
            elif field_.name.startswith(CONTROL):
                place = [n for n, _ in self.control or ()].index(field_.name[len(CONTROL) :])
                values = [None] * count + [row[place] for row in control]
            else:
                values = given[field_.name] + [None] * extra
            arrays.append(text_array(values, kind))
            fields.append(pa.field(field_.name, kind))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
