"""Taking a pipeline over: everything is looked at first, and the claim is written last."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast import runtime
from holdfast.checkpoint.entry import EPOCHS_PER_ENTRY, LAST_EPOCH, Checkpoint
from holdfast.checkpoint.log import Log, LogMovedError, LogState, read_log, tried_exclusive
from holdfast.driver.engine import AnyGraph, Platform
from holdfast.driver.local_files import LocalFiles
from holdfast.driver.options import Options
from holdfast.driver.restore import (
    check_programs,
    check_sinks,
    check_sources,
    check_stored,
    continue_states,
    prepare_runs,
    read_position,
)
from holdfast.driver.scratch import renumbered
from holdfast.errors import ConfigurationError, CorruptionError, FencedError, InternalError
from holdfast.operators.description import find_alike
from holdfast.sinks.base import Sink, SinkContext
from holdfast.storage import Storage

__all__ = ["Own", "Validated", "claim", "local_files", "sink_context"]

logger = logging.getLogger("holdfast.start")

_ATTEMPTS = 4
_NONCES = 64


@dataclass(frozen=True, kw_only=True)
class Validated:
    """Everything that could be found out without changing anything."""

    graph: AnyGraph
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

    def discard(self) -> None:
        """Nothing comes of it: what was prepared goes."""
        if self.prepared is not None:
            self.files.discard(self.prepared)


def claim(
    platform: Platform, options: Options, sinks: Mapping[str, Sink], mine: Own
) -> tuple[Validated, Log]:
    """Claim a log that was validated as it is; if its driver keeps writing, claim and look again.

    Who claims anew takes over from nobody but himself: ``mine`` has his claims, to which this is added.
    """
    since = mine.claims[0] if mine.claims else None
    for attempt in range(_ATTEMPTS):
        valid = _validate(platform, options, sinks, since)
        last_attempt = attempt == _ATTEMPTS - 1 and not mine.claims
        try:
            check_still_own(valid.state, mine)
            log = Log.claim(
                valid.storage,
                options.name,
                runtime.whoami(),
                now_ms=runtime.now_ms,
                nonce=mine.nonce,
                expect_last=None if last_attempt else valid.state.last_number,
                damaged_ok=valid.damaged_ok,
                exclusive=tried_exclusive(valid.storage, valid.state),
            )
        except LogMovedError:
            valid.discard()
            continue
        except BaseException:
            valid.discard()
            raise
        mine.claims.append(log.claim_number)
        if last_attempt:
            valid.discard()
            valid = _validate(platform, options, sinks, since)
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


def _validate(
    platform: Platform, options: Options, sinks: Mapping[str, Sink], since: int | None
) -> Validated:
    graph = platform.graph()
    storage = platform.open_storage(options.checkpoint_dir)
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
        sink.validate(sink_context(options, sink_id, None, storage, graph))
    files = local_files(options, storage)
    if not platform.is_cluster:
        files.check()
    epoch, position, prepared = -1, {}, None
    if entry is not None:
        epoch = _checked_epoch(state)
        stored = read_position(entry, storage)
        sources = platform.count_sources(graph) + graph.needs_ticks
        check_sources(entry, stored, sources)
        position = renumbered(stored, entry.epoch, epoch)
        if platform.is_cluster:
            check_stored(entry, state, storage)
        else:
            prepared = prepare_runs(entry, state, storage, files)
    return Validated(
        graph=graph,
        storage=storage,
        state=state,
        entry=entry,
        epoch=epoch,
        position=position,
        files=files,
        prepared=prepared,
        damaged_ok=damaged_ok,
    )


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


def local_files(options: Options, storage: Storage) -> LocalFiles:
    """Where a pipeline's runs are on this host's disk."""
    return LocalFiles(options.local_dir, options.name, storage.url)


def sink_context(
    options: Options,
    sink_id: str,
    log: Log | None,
    storage: Storage,
    graph: AnyGraph,
    to_dataframe: Callable[[pa.Table], Any] | None = None,
) -> SinkContext:
    """What a sink is told; claim 0 while nothing may be changed, and there are no rows to hand over."""
    place = graph.sinks[sink_id]
    fence = {} if log is None else {"check_not_fenced": log.check_not_fenced}
    return SinkContext(
        pipeline=options.name,
        sink=sink_id,
        claim=0 if log is None else log.claim_number,
        storage=storage,
        schema=place.schema,
        key_names=place.key_names,
        to_dataframe=to_dataframe or _no_rows_yet,
        **fence,
    )


def _no_rows_yet(table: pa.Table) -> Any:
    del table
    raise InternalError("a sink wants to hand rows over while its pipeline is being validated")
