"""Starting a pipeline: validate everything first, claim last, then continue where the log ends."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import time
from collections import deque
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast import runtime
from holdfast.checkpoint.coordinator import CheckpointEvent, Coordinator
from holdfast.checkpoint.entry import EPOCHS_PER_ENTRY, LAST_EPOCH, Checkpoint
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.log import Log, LogMovedError, LogState, read_log, tried_exclusive
from holdfast.checkpoint.time import PipelineTime
from holdfast.driver.local_files import LocalFiles
from holdfast.driver.options import Options
from holdfast.driver.own_folders import OwnFolders
from holdfast.driver.pacing import Pacing
from holdfast.driver.restore import (
    check_programs,
    check_sinks,
    check_sources,
    check_stored,
    continue_states,
    prepare_runs,
    read_position,
)
from holdfast.driver.scratch import ScratchReader, build_scratch, renumbered
from holdfast.errors import ConfigurationError, CorruptionError, FencedError
from holdfast.failpoints import failpoint
from holdfast.operators.description import find_alike
from holdfast.placement.health import HostHealth
from holdfast.sinks.base import Sink, SinkContext
from holdfast.spark.background import BackgroundJobs
from holdfast.spark.cluster.executors import send_holdfast
from holdfast.spark.cluster.host_wait import waiting_for_hosts
from holdfast.spark.cluster.hosts import is_cluster
from holdfast.spark.cluster.site import ClusterSite
from holdfast.spark.ending import InputEnd, before_end
from holdfast.spark.epoch import EpochLoop
from holdfast.spark.flow.graph import Graph, Node, build_graph
from holdfast.spark.flow.reading import readings
from holdfast.spark.flow.scans import Scans
from holdfast.spark.flow.slices import as_one, keep_empty
from holdfast.spark.jvm.quiet import marked_start
from holdfast.spark.jvm.trees import count_sources
from holdfast.spark.parts import QueryParts
from holdfast.spark.query import Query
from holdfast.spark.reports import Reports
from holdfast.spark.session import own_session
from holdfast.spark.site import LocalSite, Site
from holdfast.spark.ticks import Ticks, source_numbers, ticking_on, with_ticks
from holdfast.spark.types import spark_schema
from holdfast.state.expiry import TableClock
from holdfast.state.schema import SchemaRecord
from holdfast.state.version import Version
from holdfast.storage import Storage, open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.pipeline import Pipeline

__all__ = ["start_pipeline"]

logger = logging.getLogger("holdfast.start")

_ATTEMPTS = 4
_NONCES = 64


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class _Validated:
    """Everything that could be found out without changing anything."""

    graph: Graph
    storage: Storage
    state: LogState
    entry: Checkpoint | None
    """Where to continue; None for a new pipeline."""
    epoch: int
    """The last epoch number that was ever used; the next is one more."""
    position: dict[str, bytes]
    files: LocalFiles
    prepared: Path | None
    """A folder with the local forms of the entry's runs, checked."""
    damaged_ok: bool
    """Whether entries that are damaged were passed over."""


def start_pipeline(pipeline: Pipeline, options: Options) -> Query:
    """Start or continue a pipeline."""
    graph = build_graph(pipeline)
    sinks = {place: at.sink for place, at in graph.sinks.items()}
    health = HostHealth()

    _check_cluster(graph, options, health)
    mine = Own()
    parts = _begun(pipeline, options, sinks, health, mine)

    def renew() -> QueryParts:
        return _begun(pipeline, options, sinks, health, mine)

    return Query(parts, renew)


def _check_cluster(graph: Graph, options: Options, health: HostHealth) -> None:
    """Find out before anything is claimed whether the hosts of a cluster can be used."""
    spark = graph.sources[0].sparkSession
    if is_cluster(spark.sparkContext):
        storage = open_storage(options.checkpoint_dir)
        send_holdfast(spark.sparkContext)
        with waiting_for_hosts(spark.sparkContext):
            ClusterSite(spark, storage, _local_files(options, storage).root, health).check()


def _local_files(options: Options, storage: Storage) -> LocalFiles:
    return LocalFiles(options.local_dir, options.name, storage.url)


def _begun(
    pipeline: Pipeline,
    options: Options,
    sinks: dict[str, Sink],
    health: HostHealth,
    mine: Own,
) -> QueryParts:
    """Take the pipeline over and put together what runs it; again, if ``mine`` has earlier claims."""
    began = runtime.monotonic()
    valid, log = _claimed(pipeline, options, sinks, mine)
    context = valid.graph.sources[0].sparkSession.sparkContext
    held = ExitStack()
    if is_cluster(context):
        held.enter_context(waiting_for_hosts(context))
    try:
        failpoint("start.claimed")
        parts = _assemble(options, sinks, valid, log, health, held)
    except BaseException:
        held.close()
        _discard(valid)
        raise
    logger.info(
        "pipeline %s: claim %d, continues after epoch %d, ready in %.2f s",
        options.name,
        log.claim_number,
        valid.epoch,
        runtime.monotonic() - began,
    )
    return parts


def _claimed(
    pipeline: Pipeline, options: Options, sinks: dict[str, Sink], mine: Own
) -> tuple[_Validated, Log]:
    """Claim a log that was validated as it is; if its driver keeps writing, claim and look again.

    Who claims anew takes over from nobody but himself: ``mine`` has his claims, to which this is added.
    """
    since = mine.claims[0] if mine.claims else None
    for attempt in range(_ATTEMPTS):
        valid = _validate(pipeline, options, sinks, since)
        last_attempt = attempt == _ATTEMPTS - 1 and not mine.claims
        try:
            check_still_own(valid.state, mine)
            log = Log.claim(
                valid.storage,
                options.name,
                f"{socket.gethostname()}:{os.getpid()}",
                now_ms=_now_ms,
                nonce=mine.nonce,
                expect_last=None if last_attempt else valid.state.last_number,
                damaged_ok=valid.damaged_ok,
                exclusive=tried_exclusive(valid.storage, valid.state),
            )
        except LogMovedError:
            _discard(valid)
            continue
        except BaseException:
            _discard(valid)
            raise
        mine.claims.append(log.claim_number)
        if last_attempt:
            _discard(valid)
            valid = _validate(pipeline, options, sinks, since)
        return valid, log
    raise LogMovedError(f"the log of {options.name!r} went on while it was claimed anew")


@dataclass
class Own:
    """By what a driver that claims again and again knows what it wrote itself."""

    claims: list[int] = field(default_factory=list)
    nonces: deque[str] = field(default_factory=lambda: deque(maxlen=_NONCES))
    """The newest, also of claims whose writing failed: they may be there all the same."""

    def nonce(self) -> str:
        """A new one."""
        made = runtime.new_id()
        self.nonces.append(made)
        return made


def check_still_own(state: LogState, mine: Own) -> None:
    """Raise ``FencedError`` if another driver has claimed since the last of one's own claims.

    A driver that recovers may have been fenced without having noticed (invariant 5).
    """
    last = state.last_entry
    if not mine.claims or (last is not None and last.nonce in mine.nonces):
        return
    if last is None or last.claim not in mine.claims:
        whose = "a log without entries" if last is None else f"claim {last.claim}"
        raise FencedError(
            f"the pipeline can't recover: behind its claim {mine.claims[-1]} there is {whose} of another driver",
            hint="leave the pipeline to that driver; start this one again only when it has stopped",
        )


def _discard(valid: _Validated) -> None:
    if valid.prepared is not None:
        valid.files.discard(valid.prepared)


def _validate(
    pipeline: Pipeline, options: Options, sinks: dict[str, Sink], since: int | None
) -> _Validated:
    graph = build_graph(pipeline)
    storage = open_storage(options.checkpoint_dir)
    damaged_ok = _may_be_damaged(options, storage, since)
    state = read_log(storage, damaged_ok=damaged_ok)
    if state.pipeline is not None and state.pipeline != options.name:
        raise ConfigurationError(
            f"{options.checkpoint_dir} belongs to pipeline {state.pipeline!r}, not {options.name!r}",
            hint="give another checkpoint_dir, or the pipeline its old name",
        )
    if since is None and (alike := find_alike(graph.descriptions, graph.unnamed)) is not None:
        logger.warning(
            "pipeline %s: nothing tells %r and %r apart, which have no names: if they change places in the "
            "program, each goes on with the other's state. Give them names: .named(...)",
            options.name,
            *alike,
        )
    entry, dropped = _where_to_continue(options, state, since)
    if entry is not None:
        check_programs(entry, graph.descriptions, graph.unnamed, dropped)
        for operator in graph.operators:
            continue_states(entry, operator)
        check_sinks(state, {i: sink.describe() for i, sink in sinks.items()})
    for sink_id, sink in sinks.items():
        sink.validate(_context(options, sink_id, 0, storage, graph))
    files = _local_files(options, storage)
    cluster = is_cluster(graph.sources[0].sparkSession.sparkContext)
    if not cluster:
        files.check()
    epoch, position, prepared = -1, {}, None
    if entry is not None:
        epoch = _checked_epoch(state)
        stored = read_position(entry, storage)
        sources = sum(count_sources(frame) for frame in graph.sources) + graph.needs_ticks
        check_sources(entry, stored, sources)
        position = renumbered(stored, entry.epoch, epoch)
        if cluster:
            check_stored(entry, state, storage)
        else:
            prepared = prepare_runs(entry, state, storage, files)
    return _Validated(graph, storage, state, entry, epoch, position, files, prepared, damaged_ok)


def _checked_epoch(state: LogState) -> int:
    """The last epoch number that may have been used, if enough are left behind it."""
    if state.last_epoch < LAST_EPOCH - EPOCHS_PER_ENTRY:
        return state.last_epoch
    raise CorruptionError(
        "too many entries of the log can't be read to tell which numbers of epochs were used: it may be "
        f"all up to {state.last_epoch}, and there are no more than {LAST_EPOCH}",
        hint="restore any of the newest entries from a copy, or begin anew with another checkpoint_dir",
    )


def _where_to_continue(
    options: Options, state: LogState, since: int | None
) -> tuple[Checkpoint | None, Sequence[str]]:
    """The entry to continue from, and whose state of it is not wanted.

    What a start was told of both was meant for the time before the pipeline's own first checkpoint: that
    has nothing any more of what was to be dropped.
    """
    newest = state.last_checkpoint
    if since is not None and newest is not None and newest.claim >= since:
        return newest, ()
    return state.find_checkpoint(entry=options.from_entry), options.drop_state


def _may_be_damaged(options: Options, storage: Storage, since: int | None) -> bool:
    """Whether to read around entries that are damaged.

    Someone who names an entry may do so because a newer one is damaged; but what the pipeline itself has
    written since then is not to be passed over.
    """
    if options.from_entry is None or since is None:
        return options.from_entry is not None
    state = read_log(storage, damaged_ok=True)
    own = [state.reader.summary(number) for number in state.numbers if number > since]
    return all(summary.readable and not summary.is_checkpoint for summary in own)


def _open_site(
    spark: SparkSession,
    options: Options,
    valid: _Validated,
    claim: int,
    version: Version,
    health: HostHealth,
) -> LocalSite | ClusterSite:
    """The place where tasks will run, with what it still has of the state."""
    if not is_cluster(spark.sparkContext):
        valid.files.open(claim, valid.prepared)
        return LocalSite(valid.files, options.local_limit_bytes)
    site = ClusterSite(
        spark,
        valid.storage,
        valid.files.root,
        health,
        limit_bytes=options.local_limit_bytes,
        priorities=valid.graph.priorities,
    )
    site.open(claim, version)
    return site


def _assemble(
    options: Options,
    sinks: dict[str, Sink],
    valid: _Validated,
    log: Log,
    health: HostHealth,
    held: ExitStack,
) -> QueryParts:
    """``held`` is what lasts until the parts are closed."""
    graph, storage, entry = valid.graph, valid.storage, valid.entry
    last = entry.epochs[-1] if entry and entry.epochs else None
    if last is not None and last.at_end:
        # Nothing is left but to look whether there is more input, which there must not be.
        options = replace(options, available_now=True, manual=False)
    reading = readings(graph)
    frame = own_session(as_one([each.streamed for each in reading]))
    # By hand the next epoch is that of the next input, unless there is none: nothing else may come first.
    ticks = Ticks(by_itself=not options.manual) if graph.needs_ticks else None
    position = valid.position
    if ticks:
        position = ticking_on(position, valid.epoch, at_once=not options.manual)
        frame = with_ticks(frame)
    spark = frame.sparkSession
    if len(graph.sources) > 1:
        keep_empty(spark)
    if ticks and options.available_now:
        # The source of ticks knows no end; unwrapped, it would make one epoch of all input.
        spark.conf.set("spark.sql.streaming.triggerAvailableNowWrapper.enabled", "true")
    now_ms = options.clock or _now_ms
    known = graph.tables
    tables = {t: s for t, s in (entry.version().tables if entry else {}).items() if t in known}
    version = Version(valid.epoch, tables)
    ledger = Ledger(
        version,
        entry.state_rows if entry else 0,
        TableClock(last.processing_time_ms, last.expiry_ms) if last else None,
        frozenset(t for op in graph.operators if op.has_expiry for t in op.row_tables),
    )
    site = _open_site(spark, options, valid, log.claim_number, version, health)
    partitions = options.partitions or spark.sparkContext.defaultParallelism
    host = socket.gethostname()
    for sink_id, sink in sinks.items():
        sink.open(_context(options, sink_id, log.claim_number, storage, graph, frame))
        held.callback(_close, sink)
    jobs = BackgroundJobs(
        spark,
        ledger,
        storage,
        graph.tables,
        log.claim_number,
        site,
        host,
        partitions,
        graph.behind_ms,
    )
    coordinator = Coordinator(
        log,
        storage,
        ledger,
        jobs,
        sinks,
        _records(graph),
        {
            **{id_: str(description) for id_, description in graph.descriptions.items()},
            **{sink_id: sink.describe() for sink_id, sink in sinks.items()},
        },
        options.retention,
        _now_ms,
        [_teller(graph), *options.on_checkpoint],
        last=entry,
    )
    _take_over(valid, coordinator, sinks)
    scratch = held.enter_context(_scratch_folder())
    build_scratch(scratch, position)

    loop = EpochLoop(
        graph,
        Scans(spark, reading),
        ledger,
        storage,
        log.claim_number,
        site,
        {sink_id: sink.stager() for sink_id, sink in sinks.items()},
        partitions,
        {node.id: _pacing(node, partitions, site) for node in graph.nodes if node.stateful},
        Reports(spark.sparkContext),
        options.memory_bytes,
        PipelineTime(graph.watermarks, last),
        host=host,
    )

    reader = ScratchReader(scratch)
    return QueryParts(
        options,
        ledger,
        coordinator,
        loop,
        reader,
        jobs,
        held.close,
        now_ms,
        ticks,
        lambda on_batch: _begin(frame, options, reader, ticks, on_batch),
        site if isinstance(site, ClusterSite) else None,
        InputEnd(
            options.end_of_input,
            graph.sources,
            frame,
            options.name,
            before_end(valid.state, entry),
        ),
    )


def _close(sink: Sink) -> None:
    """A sink is anybody's code: what it raises here keeps neither the others nor the end waiting."""
    try:
        sink.close()
    except Exception:
        logger.exception("%s could not be closed; all that it has published stays", sink.describe())


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    """A folder that looks to Spark like a query's checkpoint; those of drivers that were killed go."""
    folders = OwnFolders(Path(tempfile.gettempdir()), "holdfast-scratch-")
    folders.sweep()
    folder = folders.make()
    try:
        yield folder
    finally:
        folders.remove(folder)


def _records(graph: Graph) -> tuple[SchemaRecord, ...]:
    """The tables as log entries keep them."""
    return tuple(
        msgspec.structs.replace(schema.record(), behind_ms=graph.behind_ms.get(table, 0))
        for table, schema in graph.tables.items()
    )


def _pacing(node: Node, partitions: int, site: Site) -> Pacing:
    return Pacing(
        partitions,
        must_preaggregate=node.plan.must_preaggregate,
        may_preaggregate=node.plan.may_preaggregate,
        # With fewer tasks a task would need state that only other hosts have.
        fixed=not site.one_host,
    )


def _teller(graph: Graph) -> Callable[[CheckpointEvent], None]:
    """Tells user code of checkpoints that are complete."""

    def tell(event: CheckpointEvent) -> None:
        if event.error is None:
            for node in graph.nodes:
                if node.result is not None:
                    node.result.checkpoint_complete(event.epoch)

    return tell


def _take_over(valid: _Validated, coordinator: Coordinator, sinks: dict[str, Sink]) -> None:
    """Finish what an earlier driver left undone: deletions, and output not yet acknowledged."""
    coordinator.finish_collection()
    # Also after going back to an older entry: what an entry covers is published (invariant 6).
    coordinator.ledger.restore_pending(valid.state.pending)
    coordinator.publish(restored=True)
    coordinator.record_acknowledged()
    failpoint("start.published")
    for sink_id, sink in sinks.items():
        sink.sweep(coordinator.ledger.pending().get(sink_id, ()))


def _begin(
    frame: DataFrame,
    options: Options,
    reader: ScratchReader,
    ticks: Ticks | None,
    on_batch: Callable[[DataFrame, int], None],
) -> StreamingQuery:
    # With its scheme: without one it would be a folder of the file system that Spark goes by, HDFS perhaps.
    writer = frame.writeStream.foreachBatch(on_batch).option(
        "checkpointLocation", f"file://{reader.folder}"
    )
    name = f"holdfast-{options.name}"
    writer = writer.queryName(name)
    if options.available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(options.trigger_s * 1000)} milliseconds")
    started: Future[StreamingQuery] = Future()
    # The first batch may come before the next line does.
    reader.numbers = lambda: source_numbers(started.result())
    with marked_start(frame.sparkSession, name):
        query = writer.start()
    started.set_result(query)
    if ticks and not options.available_now:
        ticks.follow(query)
    return query


def _context(
    options: Options,
    sink_id: str,
    claim: int,
    storage: Storage,
    graph: Graph,
    frame: DataFrame | None = None,
) -> SinkContext:
    def to_dataframe(table: pa.Table) -> DataFrame:
        assert frame is not None
        # In one chunk: PySpark makes nothing of a table whose first chunk is empty.
        rows = table.combine_chunks()
        return frame.sparkSession.createDataFrame(rows, spark_schema(table.schema))

    place = graph.sinks[sink_id]
    return SinkContext(
        pipeline=options.name,
        sink=sink_id,
        claim=claim,
        storage=storage,
        schema=place.schema,
        key_names=place.key_names,
        to_dataframe=to_dataframe,
    )
