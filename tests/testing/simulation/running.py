"""Runs a program epoch by epoch: real tasks, no driver, no faults."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import msgspec
import pyarrow as pa

from holdfast.checkpoint.entry import StagedOutput
from holdfast.checkpoint.time import PipelineTime
from holdfast.operators.base import Clock
from holdfast.sinks.base import Stager, StageWriter
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.version import Version
from holdfast.state.view import TableView
from holdfast.storage import MemoryStorage
from holdfast.tasks.loop import read_loop
from holdfast.tasks.outputs import derived_schema
from holdfast.tasks.task import TaskReport, TaskSpec, work_through
from holdfast.testing.simulation.program import EpochInput, Outcome, Program, Stage
from holdfast.tiers.opener import RunOpener

STORAGE = MemoryStorage("programs")


class _Writer(StageWriter):
    def __init__(self, kept: list[tuple[int, pa.Table]], epoch: int, partition: int) -> None:
        self.kept, self.epoch, self.partition = kept, epoch, partition
        self.tables: list[pa.Table] = []

    def write(self, table: pa.Table) -> None:
        self.tables.append(table)

    def close(self) -> StagedOutput:
        self.kept += [(self.epoch, table) for table in self.tables]
        rows = sum(table.num_rows for table in self.tables)
        return StagedOutput(self.epoch, self.partition, "kept", rows)

    def abort(self) -> None:
        self.tables = []


class Kept(Stager):
    """Keeps what tasks put out, with its epoch."""

    def __init__(self) -> None:
        self.tables: list[tuple[int, pa.Table]] = []

    def open(self, epoch: int, partition: int, nonce: str, schema: pa.Schema) -> StageWriter:
        return _Writer(self.tables, epoch, partition)


@dataclass
class Run:
    """A program and its state."""

    program: Program
    folder: Path
    version: Version = field(default_factory=lambda: Version(-1))
    inputs: list[EpochInput] = field(default_factory=list)
    reports: list[TaskReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.time = PipelineTime(self.program.watermarks)
        self.stagers = {sink: Kept() for sink in self.program.sinks}

    @property
    def outcome(self) -> Outcome:
        return self.program.outcome({sink: kept.tables for sink, kept in self.stagers.items()})

    def epoch(
        self,
        sources: tuple[list[pa.Table], ...],
        now_ms: int,
        partitions: Mapping[str, int],
        *,
        at_end: bool = False,
        told: tuple[list[pa.Table], ...] | None = None,
    ) -> None:
        """One epoch, in which every source has rows in some parts; ``told`` is what oracles hear of."""
        epoch = self.version.epoch + 1
        record = self.time.begin(epoch, now_ms, at_end=at_end)
        previous = self.time.previous_processing_ms
        self._handed: dict[str, list[pa.Table]] = {}
        reports = []
        for stage in self.program.stages:
            clock = Clock(
                epoch,
                record.processing_time_ms,
                _less(record.watermark_ms, stage.behind_ms),
                _less(record.previous_watermark_ms, stage.behind_ms),
                previous,
                derived=stage.derived,
                at_end=record.at_end,
            )
            spec = self._spec(stage, clock, partitions[stage.id])
            arriving = self._arriving(stage, spec, sources)
            handed = []
            for partition in range(spec.partitions):
                own = replace(spec, operator=pickle.loads(pickle.dumps(spec.operator)))
                report, out = _work(own, partition, arriving[partition])
                reports.append(report)
                handed.append(out)
            self._handed[stage.id] = handed
        self.reports += reports
        self.version = self.version.apply([c for r in reports for c in r.changes], epoch)
        greatest: dict[str, int] = {}
        for report in reports:
            for source, ms in report.greatest_ms.items():
                greatest[source] = max(ms, greatest.get(source, ms))
        record = msgspec.structs.replace(record, rows=sum(r.rows for r in reports))
        self.inputs.append(
            EpochInput(
                self.time.end(record, greatest),
                tuple(pa.concat_tables(parts) for parts in told or sources),
            )
        )

    def state(self) -> dict[str, pa.Table]:
        """All live rows of all tables."""
        record = self.inputs[-1].record
        clock = TableClock(record.processing_time_ms, record.expiry_ms)
        opener = RunOpener(self.folder, STORAGE)
        found = {}
        for stage in self.program.stages:
            for schema in stage.operator.tables:
                segments = self.version.segments(schema.table, FULL_RANGE)
                runs = [(opener.open(s.run), s.range) for s in segments]
                pieces = list(TableView(schema, runs, clock.behind(stage.behind_ms)).scan())
                found[schema.table] = pa.concat_tables([schema.arrow.empty_table(), *pieces])
        return found

    def _spec(self, stage: Stage, clock: Clock, partitions: int) -> TaskSpec:
        tables = [schema.table for schema in stage.operator.tables]
        return TaskSpec(
            operator=stage.operator,
            clock=clock,
            partitions=partitions,
            claim=1,
            folder=self.folder,
            storage=STORAGE,
            host="h1",
            segments={table: self.version.segments(table, FULL_RANGE) for table in tables},
            mergeable=frozenset(self.version.runs()),
            stagers={sink: self.stagers[sink] for sink in stage.sinks},
            memory_bytes=1 << 30,
            outputs=stage.sinks,
            feeds=stage.feeds,
            times=stage.times,
            behind_ms=stage.behind_ms,
        )

    def _arriving(
        self, stage: Stage, spec: TaskSpec, sources: tuple[list[pa.Table], ...]
    ) -> list[list[pa.RecordBatch]]:
        """The batches of each task of a stage."""
        tasks: list[list[pa.RecordBatch]] = [[] for _ in range(spec.partitions)]
        for port, one in enumerate(stage.ports):
            for number, feed in enumerate(one.feeds):
                if feed.source is not None:
                    parts = sources[feed.source]
                elif feed.loop:
                    parts = self._waiting(feed.stage, spec.partitions, spec.clock)
                else:
                    parts = self._handed[feed.stage]
                for at, rows in enumerate(parts):
                    lifted = self.program.lift(
                        stage.id,
                        port,
                        rows,
                        feed=number,
                        part=at,
                        first=not self.inputs,
                    )
                    for p, own in enumerate(
                        self.program.cut(stage.id, lifted, spec.partitions, at)
                    ):
                        tasks[p] += own.combine_chunks().to_batches()
        return tasks

    def _waiting(self, stage: str, partitions: int, clock: Clock) -> list[pa.Table]:
        """What each partition of a loop has kept."""
        loop = self.program.stage(stage)
        spec = self._spec(loop, clock, partitions)
        schema = loop.operator.output_schema
        return [pa.Table.from_batches(read_loop(spec, p), schema) for p in range(partitions)]


def _less(ms: int | None, behind: int) -> int | None:
    return None if ms is None else ms - behind


def _work(
    spec: TaskSpec, partition: int, batches: list[pa.RecordBatch]
) -> tuple[TaskReport, pa.Table]:
    work: Iterator[pa.RecordBatch] = work_through(spec, partition, batches)
    handed = []
    while True:
        try:
            handed.append(next(work))
        except StopIteration as end:
            schema = derived_schema(spec.operator, spec.feeds) if spec.feeds else pa.schema([])
            return end.value, pa.Table.from_batches(handed, schema)


def simulate(
    program: Program,
    folder: Path,
    seed: int,
    *,
    epochs: int = 8,
    end: bool = True,
    lose: bool = False,
) -> Run:
    """A run that a seed decides: input, times, how many partitions each stage has in each epoch.

    ``lose``: the tasks don't get the last row of the first epoch that has any.
    """
    run, chance = Run(program, folder), Random(seed)
    now_ms = 5_000_000
    for batch in range(epochs):
        sources = []
        for source in range(program.sources):
            rows = program.rows(source, batch, Random(f"{seed} {source} {batch}"))
            at = chance.choice([0, rows.num_rows // 2])
            sources.append([rows.slice(0, at), rows.slice(at)])
        now_ms += chance.choice([0, 1, 300, 700, 1_500, 4_000])
        given = sources
        if lose and sources[0][1].num_rows:
            first, second = sources[0]
            given = [[first, second.slice(0, second.num_rows - 1)], *sources[1:]]
            lose = False
        run.epoch(tuple(given), now_ms, _shapes(program, chance), told=tuple(sources))
    if end and program.watermarks:
        nothing = tuple([parts[0].slice(0, 0)] for parts in sources)
        run.epoch(nothing, now_ms + 10, _shapes(program, chance), at_end=True)
    return run


def _shapes(program: Program, chance: Random) -> dict[str, int]:
    return {stage.id: chance.choice([1, 1, 2, 2, 3]) for stage in program.stages}
