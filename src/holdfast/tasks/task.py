"""What one task does in an epoch: open the state before, fold its rows in, write what changed.

Nothing here imports PySpark: the epoch loop hands in the rows as Arrow batches and takes back a
report. An attempt always starts from version e−1 and writes under new names, so a repeated or a
doomed attempt changes nothing until the driver accepts its report.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast import runtime
from holdfast.checkpoint.entry import StagedOutput
from holdfast.errors import CorruptionError
from holdfast.failpoints import failpoint
from holdfast.operators.base import Clock, Operator, Place, Received, Session, Update
from holdfast.sinks.base import Stager, StageWriter
from holdfast.state.columns import hash_values
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE, partition_range
from holdfast.state.keys import sort_rows
from holdfast.state.local import LocalRun, LocalRunWriter, write_local
from holdfast.state.memory import MemoryRun
from holdfast.state.merge import merge_runs, merged_schema
from holdfast.state.run import Run, Segment
from holdfast.state.schema import TOMBSTONE, TableSchema, order_to_time
from holdfast.state.text import printable
from holdfast.state.tiers import newest_to_merge
from holdfast.state.version import Change
from holdfast.storage import Storage
from holdfast.tasks.outputs import derived_rows
from holdfast.tasks.spill import Ingest
from holdfast.tasks.state import EpochState, segments_within
from holdfast.tiers.opener import RunOpener, local_path
from holdfast.tiers.own_folder import make_own
from holdfast.tiers.storing import store_run

__all__ = ["BRANCH", "TaskReport", "TaskSpec", "run_task", "work_through"]

logger = logging.getLogger("holdfast.spark")

# A task merges small runs itself; what is larger waits for a background job.
_INLINE_MERGE_ROWS = 200_000
_DERIVED_ROWS = 100_000
BRANCH = "_holdfast_branch"
"""In the input of an operator: which of the feeds of a port a row came by."""
TOMBSTONE_FIELD = pa.field(TOMBSTONE, pa.bool_(), nullable=False)


@dataclass(frozen=True, slots=True, kw_only=True)
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
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Which sinks get a side output instead of the main one, and its name."""
    chosen: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Per sink the columns it gets and their names, where it doesn't get all as they are."""
    job: str = ""
    """Names the attempt at the epoch: reports of an earlier one don't count."""
    on_demand: bool = False
    """Whether runs that are not on the task's host may be read block by block."""
    keep_fetched: bool = True
    """Whether there is room for runs that are fetched as a whole."""
    retired: tuple[tuple[str, str], ...] = ()
    """Runs whose local files may go, and on which host ("" for all)."""
    feeds: tuple[str, ...] = ()
    """The outputs that go on to other operators ("" is the main one)."""
    times: Mapping[str, tuple[str | None, ...]] = field(default_factory=lambda: {"main": ("main",)})
    """Per port, for each of its feeds, which of the pipeline's watermarks its rows move."""
    behind_ms: int = 0
    """How far the operator's time, which its clock has, is behind the pipeline's."""
    wanted: frozenset[int] | None = None
    """Which of its partitions are computed; None: all."""

    def wants(self, partition: int) -> bool:
        """Whether a partition is computed; the task of one that isn't does nothing and says nothing."""
        return self.wanted is None or partition in self.wanted


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
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
    greatest_ms: dict[str, int] = {}
    """Per source the greatest event time seen."""
    next_due: dict[str, int] = {}
    """Per kind of time when the next timer may be due."""
    late_rows: int = 0
    metrics: dict[str, float] = {}
    """What user code counted."""
    job: str = ""
    host: str = ""
    local_bytes: int = 0
    """Size of the runs that were on the host's disk."""
    fetched: tuple[str, ...] = ()
    """Runs that are on the host's disk now and were not before."""
    operator: str = ""
    batch_bytes: int = 0
    """The size of the largest batch of rows that came in."""

    def encoded(self) -> bytes:
        """As it is sent. Not JSON, which has neither NaN nor infinity: user code may count them."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decoded(cls, message: bytes) -> TaskReport:
        """What was sent."""
        return msgspec.msgpack.decode(message, type=cls)


def run_task(spec: TaskSpec, partition: int, batches: Iterable[pa.RecordBatch]) -> TaskReport:
    """Process one partition of one epoch, for an operator that hands nothing on."""
    work = work_through(spec, partition, batches)
    while True:
        try:
            next(work)
        except StopIteration as end:
            report: TaskReport = end.value
            return report


def work_through(
    spec: TaskSpec, partition: int, batches: Iterable[pa.RecordBatch]
) -> Generator[pa.RecordBatch, None, TaskReport]:
    """Process one partition of one epoch: gives what goes on to other operators, then its report."""
    task = _Task(spec, partition)
    try:
        return (yield from task.run(batches))
    except CorruptionError:
        # Spark will try again: what is bad on this disk must not be found again.
        task.opener.drop_bad()
        task.abort()
        raise
    except BaseException:
        task.abort()
        raise


@dataclass
class _Task:
    spec: TaskSpec
    partition: int
    attempt: str = field(default_factory=runtime.new_id)
    seconds: dict[str, float] = field(default_factory=dict)
    _began: float = field(default_factory=runtime.monotonic)

    def __post_init__(self) -> None:
        spec = self.spec
        self.range = partition_range(self.partition, spec.partitions)
        self.opener = RunOpener(spec.folder, spec.storage, own_claim=spec.claim, within=self.range)
        self.segments = {
            schema.table: segments_within(spec.segments.get(schema.table, ()), self.range)
            for schema in spec.operator.tables
        }
        # State is seen as rows that are not late may still need it.
        self.table_clock = TableClock(spec.clock.processing_time_ms, spec.clock.late_ms)
        self.writers: dict[str, LocalRunWriter] = {}
        self.timed: dict[str, list[pa.Table]] = {}
        self.stages: dict[str, StageWriter] = {}
        self.derived: list[pa.RecordBatch] = []
        self.ingest = Ingest(spec.operator, spec.folder, spec.memory_bytes, self._received)
        make_own(spec.folder)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, TaskReport]:
        spec, epoch = self.spec, self.spec.clock.epoch
        failpoint("task.start")
        operator, ingest = spec.operator, self.ingest
        ingest.read(batches)
        self._lap("receive")
        if spec.on_demand:
            self.opener.wanted_keys = ingest.rows if spec.keep_fetched else 0
        totals = _Totals(late_rows=ingest.late_rows)
        state = EpochState(
            operator.tables, spec.segments, self.range, self.opener, self.table_clock
        )
        for name, late in ingest.sides.items():
            totals.late_rows += sum(rows.num_rows for rows in late)
            self._stage(name, pa.concat_tables(late))
        if ingest.rows or ingest.control or operator.needs_ticks:
            yield from self._work(ingest, state, totals)
        yield from self._hand_on()
        ingest.close()
        next_due = self._next_due(state)
        if totals.wants_epoch:
            # Its time has come as soon as the next epoch looks.
            next_due["processing"] = spec.clock.processing_time_ms
        self._write_timed()
        changes = tuple(self._finish(schema) for schema in self._changed())
        self._lap("merge")
        staged = {sink: out for sink, w in self.stages.items() if (out := w.close()) is not None}
        self._lap("stage")
        self.opener.keep_only({s.run.name for part in spec.segments.values() for s in part})
        for name, host in spec.retired:
            if host in ("", spec.host):
                self.opener.delete(name)
        failpoint("task.before_report")
        return TaskReport(
            epoch=epoch,
            partition=self.partition,
            attempt=self.attempt,
            changes=changes,
            staged=staged,
            rows=ingest.rows,
            keys=totals.keys,
            new_keys=totals.new_keys,
            spilled_bytes=ingest.spilled_bytes,
            fetched_bytes=self.opener.fetched_bytes,
            seconds=self.seconds,
            greatest_ms=ingest.greatest_ms,
            next_due=next_due,
            late_rows=totals.late_rows,
            metrics=totals.metrics,
            job=spec.job,
            host=spec.host,
            local_bytes=self.opener.local_bytes,
            fetched=tuple(self.opener.fetched),
            operator=operator.id,
            batch_bytes=ingest.batch_bytes,
        )

    def _received(self, rows: pa.Table) -> Iterator[Received]:
        """What the operator makes of arriving rows, with the names of the pipeline's watermarks."""
        operator, clock = self.spec.operator, self.spec.clock
        if BRANCH not in rows.column_names:
            yield self._named(operator.receive(rows, clock), 0)
            return
        branches = rows.column(BRANCH)
        rows = rows.drop_columns([BRANCH])
        for branch in pc.unique(branches).to_pylist():
            chosen = rows.filter(pc.equal(branches, branch))
            yield self._named(operator.receive(chosen, clock), branch)

    def _named(self, received: Received, branch: int) -> Received:
        greatest: dict[str, int] = {}
        for port, ms in received.greatest_ms.items():
            feeds = self.spec.times.get(port, ())
            source = feeds[min(branch, len(feeds) - 1)] if feeds else None
            if source is not None:
                greatest[source] = max(ms, greatest.get(source, ms))
        return replace(received, greatest_ms=greatest)

    def _work(self, ingest: Ingest, state: EpochState, totals: _Totals) -> Iterator[pa.RecordBatch]:
        spec = self.spec
        place = Place(self.partition, spec.partitions, self.range)
        session = spec.operator.open(state, spec.clock, place)
        try:
            if ingest.control:
                session.control(pa.concat_tables(ingest.control))
            for within, rows in ingest.pieces(self.range):
                update = session.update(rows, within)
                totals.add(update, len(rows.starts))
                self._write(update)
                self._lap("state")
                self._stage("", update.output)
                for name, side in update.sides.items():
                    self._stage(name, side)
                self._lap("stage")
                yield from self._hand_on()
        except BaseException:
            _close_quietly(session)
            raise
        session.close()

    def abort(self) -> None:
        """Remove what this attempt wrote."""
        self.ingest.close()
        for writer in self.writers.values():
            writer.abort()
        for stage in self.stages.values():
            stage.abort()

    def _lap(self, phase: str) -> None:
        now = runtime.monotonic()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._began
        self._began = now

    def _name(self, suffix: str = "") -> str:
        return f"{self.spec.claim}-{self.spec.clock.epoch}-{self.partition}-{self.attempt}{suffix}"

    def _index(self, schema: TableSchema) -> int:
        return self.spec.operator.tables.index(schema)

    def _write(self, update: Update) -> None:
        for schema in self.spec.operator.tables:
            rows = update.changes.get(schema.table)
            if rows is None or not rows.num_rows:
                continue
            if schema.timed:
                # Sorted by time, not by hash: what comes later may belong before.
                self.timed.setdefault(schema.table, []).append(rows)
            else:
                self._write_rows(schema, rows)

    def _write_rows(self, schema: TableSchema, rows: pa.Table) -> None:
        if schema.table not in self.writers:
            path = local_path(self.spec.folder, self._name(f"-{self._index(schema)}"))
            self.writers[schema.table] = LocalRunWriter(path, self._arrow(schema))
        if rows.num_columns < len(self._arrow(schema)):
            rows = rows.append_column(TOMBSTONE_FIELD, pa.array(np.zeros(rows.num_rows, np.bool_)))
        self.writers[schema.table].write(rows)

    def _arrow(self, schema: TableSchema) -> pa.Schema:
        # Pieces may differ in whether they delete anything: the run must be able to say so.
        if self.spec.operator.deletes and not schema.timed:
            return schema.arrow_with_tombstones
        return schema.arrow

    def _write_timed(self) -> None:
        for schema in self.spec.operator.tables:
            tables = self.timed.get(schema.table)
            if tables:
                runs = [
                    (
                        MemoryRun(schema.table, sort_rows(rows, 1 + len(schema.keys)).table),
                        FULL_RANGE,
                    )
                    for rows in tables
                ]
                for piece in merge_runs(
                    schema, runs, self.range, drop_tombstones=True, clock=self.table_clock
                ):
                    self._write_rows(schema, piece)

    def _next_due(self, state: EpochState) -> dict[str, int]:
        """When the next timer of this partition may be due, per kind of time."""
        due: dict[str, int] = {}
        for schema in self.spec.operator.tables:
            if schema.timed is None:
                continue
            now = self.spec.clock.now(schema.timed)
            times = [state.first_time(schema.table, now)]
            for rows in self.timed.get(schema.table, ()):
                fresh = order_to_time(hash_values(rows))
                later = fresh if now is None else fresh[fresh > now]
                times.append(int(later.min()) if len(later) else None)
            known = [ms for ms in times if ms is not None]
            if known:
                # Operators have a time of their own; the driver goes by the pipeline's.
                behind = self.spec.behind_ms if schema.timed == "event" else 0
                due[schema.timed] = min(known) + behind
        return due

    def _hand_on(self) -> Iterator[pa.RecordBatch]:
        """Give away what other operators are waiting for."""
        derived, self.derived = self.derived, []
        for batch in derived:
            self._lap("stage")
            yield batch
            # Until it is taken, others work.
            self._lap("hand on")

    def _stage(self, output: str, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        spec = self.spec
        if output in spec.feeds:
            self.derived += derived_rows(spec.operator, spec.feeds, output, rows).to_batches(
                max_chunksize=_DERIVED_ROWS
            )
        for sink, stager in spec.stagers.items():
            if spec.outputs.get(sink, "") != output:
                continue
            own = rows
            if sink in spec.chosen:
                names = [name for _, name in spec.chosen[sink]]
                own = rows.select([source for source, _ in spec.chosen[sink]]).rename_columns(names)
            if sink not in self.stages:
                self.stages[sink] = stager.open(
                    spec.clock.epoch, self.partition, self.attempt, own.schema
                )
            self.stages[sink].write(own)

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
        if self.spec.on_demand and schema.table in self.spec.operator.shared_tables:
            # Tasks on other hosts will read it in the next epoch: no disk but storage is theirs too.
            stored = LocalRun.open(writer.path)
            pieces = (pa.Table.from_batches([stored.block(i)]) for i in range(len(stored.blocks)))
            return Change(
                schema.table,
                self.range,
                (),
                store_run(self.spec.storage, run, pieces, stored.schema),
            )
        stack = [Segment(run, self.range), *self.segments[schema.table]]
        free = {name, *self.spec.mergeable}
        picked = newest_to_merge(stack, lambda s: s.run.name in free)
        if not picked or sum(s.rows for s in picked) > _INLINE_MERGE_ROWS:
            return Change(schema.table, self.range, (), run)
        return self._merge(schema, picked)

    def _merge(self, schema: TableSchema, picked: Sequence[Segment]) -> Change:
        opened = [(self.opener.open(s.run), s.range) for s in picked]
        path = local_path(self.spec.folder, self._name(f"-{self._index(schema)}m"))
        clock = self.table_clock
        info = write_local(
            path,
            merged_schema(schema, opened, drop_tombstones=False, clock=clock),
            merge_runs(schema, opened, self.range, drop_tombstones=False, clock=clock),
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


def _close_quietly(session: Session) -> None:
    """After an error: what goes wrong in closing must not hide it."""
    try:
        session.close()
    except Exception:
        logger.exception("closing a process after an error failed too")


@dataclass
class _Totals:
    keys: int = 0
    new_keys: int = 0
    late_rows: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    wants_epoch: bool = False

    def add(self, update: Update, keys: int) -> None:
        self.keys += keys
        self.new_keys += update.new_keys
        self.wants_epoch |= update.wants_epoch
        for counted, amount in update.metrics.items():
            # Both of data, maybe, and they go into the report: text that is no UTF-8, decimals.
            name = printable(str(counted))
            self.metrics[name] = self.metrics.get(name, 0) + float(amount)
