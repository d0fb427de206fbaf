"""Starting a pipeline: it is taken over, put together, and continues where the log ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from holdfast import runtime
from holdfast.checkpoint.coordinator import CheckpointEvent, Coordinator
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.log import Log
from holdfast.checkpoint.time import PipelineTime
from holdfast.driver.background import BackgroundJobs
from holdfast.driver.claiming import Own, Validated, claim, local_files, sink_context
from holdfast.driver.cluster import ClusterSite
from holdfast.driver.compute import EpochComputer
from holdfast.driver.ending import InputEnd, before_end
from holdfast.driver.engine import AnyGraph, AnyNode, Fleet, Platform
from holdfast.driver.epoch import EpochLoop
from holdfast.driver.options import Options
from holdfast.driver.own_folders import OwnFolders
from holdfast.driver.pacing import Pacing
from holdfast.driver.parts import QueryParts
from holdfast.driver.scratch import ScratchReader, build_scratch, ticking_on
from holdfast.driver.site import LocalSite, Site
from holdfast.failpoints import failpoint
from holdfast.placement.health import HostHealth
from holdfast.sinks.base import Sink
from holdfast.state.expiry import TableClock
from holdfast.state.schema import SchemaRecord
from holdfast.state.version import Version

__all__ = ["Start"]

logger = logging.getLogger("holdfast.start")


class Start:
    """A pipeline on its platform, to be taken over as often as need be: at first, and after losses."""

    def __init__(self, platform: Platform, options: Options) -> None:
        self._platform = platform
        self._options = options
        self._sinks = {place: at.sink for place, at in platform.graph().sinks.items()}
        self._health = HostHealth()
        self._mine = Own()

    def check(self) -> None:
        """Find out before anything is claimed whether the hosts of a cluster can be used."""
        platform, options = self._platform, self._options
        if platform.is_cluster:
            storage = platform.open_storage(options.checkpoint_dir)
            platform.prepare()
            with platform.held():
                root = local_files(options, storage).root
                ClusterSite(platform.fleet(), storage, root, self._health).check()

    def begin(self) -> QueryParts:
        """Take the pipeline over and put together what runs it; again, behind earlier claims of its own."""
        began = runtime.monotonic()
        valid, log = claim(self._platform, self._options, self._sinks, self._mine)
        held = ExitStack()
        try:
            held.enter_context(self._platform.held())
            failpoint("start.claimed")
            parts = self._assembled(valid, log, held)
        except BaseException:
            held.close()
            valid.discard()
            raise
        logger.info(
            "pipeline %s: claim %d, continues after epoch %d, ready in %.2f s",
            self._options.name,
            log.claim_number,
            valid.epoch,
            runtime.monotonic() - began,
        )
        return parts

    def _assembled(self, valid: Validated, log: Log, held: ExitStack) -> QueryParts:
        """``held`` is what lasts until the parts are closed."""
        options, sinks = self._options, self._sinks
        graph, storage, entry = valid.graph, valid.storage, valid.entry
        last = entry.epochs[-1] if entry and entry.epochs else None
        if last is not None and last.at_end:
            # Nothing is left but to look whether there is more input, which there must not be.
            options = replace(options, available_now=True, manual=False)
        fleet = self._platform.fleet() if self._platform.is_cluster else None
        tag = f"{valid.files.root.name}-{log.claim_number}"
        engine = self._platform.engine(graph, options, fleet, tag)
        held.callback(engine.close)
        position = valid.position
        if engine.ticks is not None:
            # By hand the next epoch is that of the next input, unless there is none: nothing else may
            # come first.
            position = ticking_on(position, valid.epoch, at_once=not options.manual)
        known = graph.tables
        tables = {t: s for t, s in (entry.version().tables if entry else {}).items() if t in known}
        version = Version(valid.epoch, tables)
        ledger = Ledger(
            version,
            entry.state_rows if entry else 0,
            TableClock(last.processing_time_ms, last.expiry_ms) if last else None,
            frozenset(t for op in graph.operators if op.has_expiry for t in op.row_tables),
        )
        site = self._site(valid, log.claim_number, version, fleet)
        partitions = options.partitions or engine.parallelism
        for sink_id, sink in sinks.items():
            sink.open(sink_context(options, sink_id, log, storage, graph, engine.to_dataframe))
            held.callback(_close, sink)
        jobs = BackgroundJobs(
            engine=engine,
            ledger=ledger,
            storage=storage,
            schemas=graph.tables,
            claim=log.claim_number,
            site=site,
            partitions=partitions,
            behind_ms=graph.behind_ms,
        )
        coordinator = Coordinator(
            log=log,
            storage=storage,
            ledger=ledger,
            storer=jobs,
            sinks=sinks,
            schemas=_records(graph),
            program={
                **{id_: str(description) for id_, description in graph.descriptions.items()},
                **{sink_id: sink.describe() for sink_id, sink in sinks.items()},
            },
            retention=options.retention,
            now_ms=runtime.now_ms,
            callbacks=[_teller(graph), *options.on_checkpoint],
            last=entry,
        )
        _take_over(valid, coordinator, sinks)
        scratch = held.enter_context(_scratch_folder(self._platform.scratch_root))
        build_scratch(scratch, position)
        computer = EpochComputer(
            graph=graph,
            engine=engine,
            storage=storage,
            claim=log.claim_number,
            site=site,
            stagers={sink_id: sink.stager() for sink_id, sink in sinks.items()},
            memory_bytes=options.memory_bytes,
        )
        loop = EpochLoop(
            computer=computer,
            ledger=ledger,
            partitions=partitions,
            pacing={
                node.id: _pacing(node, partitions, site) for node in graph.nodes if node.stateful
            },
            time=PipelineTime(graph.watermarks, last),
        )
        return QueryParts(
            options=options,
            ledger=ledger,
            coordinator=coordinator,
            loop=loop,
            scratch=ScratchReader(scratch),
            jobs=jobs,
            close=held.close,
            now_ms=options.clock or runtime.now_ms,
            engine=engine,
            cluster=site if isinstance(site, ClusterSite) else None,
            input_end=InputEnd(
                options.end_of_input, engine, options.name, before_end(valid.state, entry)
            ),
        )

    def _site(
        self, valid: Validated, claim_number: int, version: Version, fleet: Fleet | None
    ) -> LocalSite | ClusterSite:
        """The place where tasks will run, with what it still has of the state."""
        options = self._options
        if fleet is None:
            valid.files.open(claim_number, valid.prepared)
            return LocalSite(valid.files, options.local_limit_bytes)
        site = ClusterSite(
            fleet,
            valid.storage,
            valid.files.root,
            self._health,
            limit_bytes=options.local_limit_bytes,
            priorities=valid.graph.priorities,
        )
        site.open(claim_number, version)
        return site


def _close(sink: Sink) -> None:
    """A sink is anybody's code: what it raises here keeps neither the others nor the end waiting."""
    try:
        sink.close()
    except Exception:
        logger.exception("%s could not be closed; all that it has published stays", sink.describe())


@contextmanager
def _scratch_folder(root: Path) -> Iterator[Path]:
    """A folder that looks to Spark like a query's checkpoint; those of drivers that were killed go."""
    folders = OwnFolders(root, "holdfast-scratch-")
    folders.sweep()
    folder = folders.make()
    try:
        yield folder
    finally:
        folders.remove(folder)


def _records(graph: AnyGraph) -> tuple[SchemaRecord, ...]:
    """The tables as log entries keep them."""
    return tuple(
        msgspec.structs.replace(schema.record(), behind_ms=graph.behind_ms.get(table, 0))
        for table, schema in graph.tables.items()
    )


def _pacing(node: AnyNode, partitions: int, site: Site) -> Pacing:
    return Pacing(
        partitions,
        must_preaggregate=node.must_preaggregate,
        may_preaggregate=node.may_preaggregate,
        # With fewer tasks a task would need state that only other hosts have.
        fixed=not site.one_host,
    )


def _teller(graph: AnyGraph) -> Callable[[CheckpointEvent], None]:
    """Tells user code of checkpoints that are complete."""

    def tell(event: CheckpointEvent) -> None:
        if event.error is None:
            for node in graph.nodes:
                if node.on_checkpoint is not None:
                    node.on_checkpoint(event.epoch)

    return tell


def _take_over(valid: Validated, coordinator: Coordinator, sinks: Mapping[str, Sink]) -> None:
    """Finish what an earlier driver left undone: deletions, and output not yet acknowledged."""
    coordinator.finish_collection()
    # Also after going back to an older entry: what an entry covers is published (invariant 6).
    coordinator.ledger.restore_pending(valid.state.pending)
    coordinator.publish(restored=True)
    coordinator.record_acknowledged()
    failpoint("start.published")
    for sink_id, sink in sinks.items():
        sink.sweep(coordinator.ledger.pending().get(sink_id, ()))
