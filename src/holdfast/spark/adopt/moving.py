"""Moving a query over: read its state and position, check that they fit, write one checkpoint."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.checkpoint.coordinator import Coordinator, StoreResult
from holdfast.checkpoint.entry import Checkpoint, EpochRecord
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.log import Log, LogState, read_log, tried_exclusive
from holdfast.checkpoint.retention import Retention
from holdfast.driver.options import _NAME
from holdfast.errors import ConfigurationError, HoldfastError, InputError, InternalError
from holdfast.failpoints import failpoint
from holdfast.operators.description import Description
from holdfast.spark.adopt.old_query import OldQuery, StatefulOperator
from holdfast.spark.adopt.position import check_sources, last_epoch, next_watermark, position_for
from holdfast.spark.adopt.program import NewProgram, adopted_tables
from holdfast.spark.adopt.tables import AdoptedTable, partitions_for, write_table
from holdfast.spark.said import SaidPipeline, SaidResult
from holdfast.state.expiry import TableClock
from holdfast.state.version import Change, Version
from holdfast.storage import Storage, open_storage

__all__ = ["Adoption", "adopt"]

logger = logging.getLogger("holdfast.adopt")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Adoption:
    """What was taken over: what :func:`holdfast.adopt` returns.

    >>> import holdfast as hf
    >>> def told(adoption: hf.Adoption) -> str:
    ...     return f"{sum(adoption.rows.values())} rows; {'; '.join(adoption.warnings)}"
    """

    epoch: int
    """The old query's last committed batch; the moved job continues with the next number."""
    entry: int
    """The log entry that holds it."""
    rows: Mapping[str, int]
    """Per state table how many rows."""
    warnings: tuple[str, ...]
    """What the moved job will do otherwise than the old one."""


def adopt(
    pipeline: SaidPipeline | SaidResult,
    name: str,
    checkpoint_dir: str | Path,
    spark_checkpoint: str | Path,
    *,
    operator: int | None = None,
) -> Adoption:
    """Write a checkpoint from which ``pipeline`` continues where a Spark query stopped.

    ``spark_checkpoint`` is the ``checkpointLocation`` of the old query, which must not run any more;
    it is only read. ``pipeline`` reads the same sources, in the same order, and has the old query's
    keys and aggregates. Afterwards ``pipeline.start(name, checkpoint_dir)`` goes on with the first
    batch that the old query did not commit. ``operator`` chooses one of several stateful operators.
    """
    program = NewProgram.of(pipeline)
    _check_name(name)
    old = OldQuery.open(program.frame.sparkSession, spark_checkpoint)
    chosen = old.operator(operator)
    position = position_for(program, old)
    record = last_epoch(old.batch, position, program.watermarks)
    tables = adopted_tables(program, old, chosen, record)
    check_sources(program, old, position)
    warnings = _warnings(old, chosen, program, position)
    storage = open_storage(str(checkpoint_dir))
    log = _claim(storage, name)
    failpoint("adopt.claimed")
    changes = _write(tables, old, chosen, storage, log.claim_number)
    failpoint("adopt.written")
    old.check_stopped()
    entry = _record(log, storage, program, record, position, changes)
    rows = {table.schema.table: 0 for table in tables}
    for run in entry.runs:
        rows[run.table] += run.rows
    for warning in warnings:
        logger.warning("adopting %s: %s", old.location, warning)
    return Adoption(entry.epoch, entry.number, rows, warnings)


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InputError(
            f"{name!r} can't name a pipeline", hint="use letters, digits and _ . - (100 at most)"
        )


def _warnings(
    old: OldQuery, chosen: StatefulOperator, program: NewProgram, position: Mapping[str, bytes]
) -> tuple[str, ...]:
    told = []
    others = [str(operator) for operator in old.operators if operator != chosen]
    if others:
        told.append(f"the state of other operators is left behind: {', '.join(others)}")
    if old.planned > old.batch:
        told.append(
            f"batch {old.planned} was begun and not committed: the moved job reads its input again, "
            "and what the old query's sink may have of it is the old sink's"
        )
    if next_watermark(old.batch, position) and not program.watermarks:
        told.append(
            "the old query has a watermark and the program has none: it takes late rows too, and "
            "forgets nothing"
        )
    return tuple(told)


def _claim(storage: Storage, name: str) -> Log:
    state = read_log(storage)
    _check_unused(storage, state)
    return Log.claim(
        storage,
        name,
        f"{socket.gethostname()}:{os.getpid()} (adopt)",
        now_ms=_now_ms,
        nonce=lambda: secrets.token_hex(8),
        expect_last=state.last_number,
        exclusive=tried_exclusive(storage, state),
    )


def _check_unused(storage: Storage, state: LogState) -> None:
    newest = state.last_checkpoint
    if newest is not None:
        raise ConfigurationError(
            f"{storage.url} already holds checkpoints of pipeline {state.pipeline!r}, the newest of "
            f"epoch {newest.epoch}",
            hint="adopt into a new checkpoint_dir",
        )


def _write(
    tables: list[AdoptedTable],
    old: OldQuery,
    chosen: StatefulOperator,
    storage: Storage,
    claim: int,
) -> list[Change]:
    cores = old.spark.sparkContext.defaultParallelism
    partitions = partitions_for(old.state_bytes(chosen), cores)
    changes = []
    for table in tables:
        runs = write_table(table, storage, claim=claim, epoch=old.batch, partitions=partitions)
        changes += [Change(run.table, run.range, (), run) for run in runs]
    return changes


class _StoredAtOnce:
    """Every run is stored as it is written."""

    def store(self, version: Version, clock: TableClock | None) -> StoreResult:
        del version, clock
        return StoreResult(())


def _record(
    log: Log,
    storage: Storage,
    program: NewProgram,
    record: EpochRecord,
    position: Mapping[str, bytes],
    changes: list[Change],
) -> Checkpoint:
    ledger = Ledger(Version(record.epoch - 1))
    # As an epoch counts them: keys, not what else is kept under each.
    keyed = program.operator.tables[0].table
    keys = sum(c.output.rows for c in changes if c.output is not None and c.table == keyed)
    ledger.record_epoch(record, changes, {}, position, keys)
    coordinator = Coordinator(
        log=log,
        storage=storage,
        ledger=ledger,
        storer=_StoredAtOnce(),
        sinks={},
        schemas=tuple(schema.record() for schema in program.operator.tables),
        program={program.operator.id: str(Description.of(program.operator))},
        retention=Retention(1, None),
        now_ms=_now_ms,
    )
    entry = coordinator.checkpoint()
    if entry is None:
        failed: HoldfastError | None = coordinator.last_error
        raise failed or InternalError("nothing was adopted")
    return entry
