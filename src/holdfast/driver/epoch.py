"""Epochs, one after the other: each is shaped and placed, computed, and recorded whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from holdfast import runtime
from holdfast.checkpoint.entry import EpochRecord
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.time import PipelineTime
from holdfast.driver.compute import Computed, EpochComputer, Given
from holdfast.driver.engine import AnyGraph, AnyNode, Batch, HostGoneError, JobFailedError
from holdfast.driver.pacing import Pacing, StageShape
from holdfast.driver.progress import EpochProgress, progress_of
from holdfast.driver.reports import ComputedTwiceError, fetched, received
from holdfast.errors import InternalError
from holdfast.failpoints import failpoint
from holdfast.state.version import Version

__all__ = ["EpochLoop"]

logger = logging.getLogger("holdfast.spark")

# A stage that others read and that was computed twice: so often is an epoch begun anew for it.
_MOST_REPEATS = 5


@dataclass(kw_only=True)
class EpochLoop:
    """Runs epochs of a pipeline."""

    computer: EpochComputer
    ledger: Ledger
    partitions: int
    pacing: Mapping[str, Pacing]
    """Per operator how its tasks are cut."""
    time: PipelineTime
    next_due: Mapping[str, int] | None = None
    """Per kind of time when the next timer may be due; None if that isn't known."""
    _last_shapes: dict[str, StageShape] = field(default_factory=dict)

    @property
    def graph(self) -> AnyGraph:
        """The pipeline."""
        return self.computer.graph

    def run(
        self, batch: Batch, record: EpochRecord, position: Mapping[str, bytes]
    ) -> EpochProgress:
        """Process one micro-batch: version e−1 becomes version e, or nothing happens.

        A host may be lost on the way: the same epoch is then run again, elsewhere.
        """
        attempt = repeats = 0
        while True:
            attempt += 1
            try:
                return self._attempt(batch, record, position)
            except ComputedTwiceError as error:
                repeats += 1
                if repeats == _MOST_REPEATS:
                    raise InternalError(f"epoch {record.epoch}: {error}, {repeats} times") from None
                logger.warning("epoch %d is run again: %s", record.epoch, error)
            except (JobFailedError, HostGoneError) as error:
                self.computer.site.failed(error, attempt)

    def _attempt(
        self, batch: Batch, record: EpochRecord, position: Mapping[str, bytes]
    ) -> EpochProgress:
        began = runtime.monotonic()
        site = self.computer.site
        with self.ledger.epoch() as (version, mergeable):
            computed = self.computer.compute(self.given(batch, record, version, mergeable))
            failpoint("epoch.before_record")
            site.accept(computed.changes, fetched(computed.every))
            self._record(record, computed, position)
        self._learn(computed)
        site.retire(self.ledger)
        return progress_of(self.ledger, record, computed, runtime.monotonic() - began)

    def given(
        self, batch: Batch, record: EpochRecord, version: Version, mergeable: frozenset[str]
    ) -> Given:
        """What the next epoch is computed from: shaped by those before, placed where state is now."""
        inputs = self.computer.engine.input_partitions(batch)
        return Given(
            batch=batch,
            record=record,
            previous_processing_ms=self.time.previous_processing_ms,
            version=version,
            shapes={node.id: self._shape(node, inputs) for node in self.graph.nodes},
            placement=self.computer.site.place(version, self.partitions),
            mergeable=mergeable,
        )

    @cached_property
    def _counting(self) -> set[str]:
        """The operators that know how many rows they have: none of theirs expire."""
        return {op.id for op in self.graph.operators if not op.has_expiry}

    def _shape(self, node: AnyNode, inputs: int) -> StageShape:
        if not node.stateful:
            return StageShape(1, preaggregate=False, shuffle=False)
        pacing = self.pacing[node.id]
        shape = pacing.next(1 if node.derived else inputs)
        if node.derived and not shape.shuffle:
            # Without one, the tasks of the operator before would become one task too.
            shape = replace(shape, shuffle=True)
        if shape != self._last_shapes.get(node.id):
            logger.info("epochs of %s now run as %s: %s", node.id, shape, pacing.why())
            self._last_shapes[node.id] = shape
        return shape

    def _learn(self, computed: Computed) -> None:
        for id_, pacing in self.pacing.items():
            part, of_node = computed.parts[id_], computed.reports[id_]
            pacing.learn(
                received=sum(r.rows for r in of_node),
                keys=sum(r.keys for r in of_node),
                source_rows=received(part, of_node),
                grouped=part.shape.preaggregate,
                work_s=sum(r.seconds.get("state", 0.0) for r in of_node),
            )

    def is_due(self, record: EpochRecord) -> bool:
        """Whether an epoch without input may have something to do all the same."""
        if self.ledger.version.epoch < 0:
            return self.graph.begins_with_rows
        return self._is_due(record.processing_time_ms, record.watermark_ms)

    def awaits_tick(self, now_ms: int) -> bool:
        """Whether the next epoch has something to do though no input should come."""
        has_run = self.ledger.version.epoch >= 0
        return has_run and self._is_due(now_ms, self.time.watermark_at(now_ms))

    def awaits_watermark(self, now_ms: int) -> bool:
        """Whether the next epoch has something to do because the watermark has moved."""
        after = self.time.watermark_at(now_ms)
        if after is None or after == self.time.watermark_ms:
            return False
        if any(operator.late_by_epoch_before for operator in self.graph.operators):
            # Which rows are late later on must not depend on whether something is due now.
            return True
        # What goes by processing time is not meant: the driver's clock moves all the time.
        return self.graph.needs_ticks and self._is_due(-1, after)

    def _is_due(self, processing_ms: int, watermark_ms: int | None) -> bool:
        if self.next_due is None:
            # Not known after a restart.
            return True
        now = {"processing": processing_ms, "event": watermark_ms}
        return any(
            (clock := now[kind]) is not None and ms <= clock for kind, ms in self.next_due.items()
        )

    def goes_on(self, processing_ms: int) -> bool:
        """Whether something is due at the time of the last epoch itself: rows that go round."""
        return self._is_due(processing_ms, None)

    def skip(self, record: EpochRecord, position: Mapping[str, bytes]) -> None:
        """An epoch without input, in which nothing is due: version e is version e−1."""
        if self.ledger.version.epoch < 0:
            # Without state nothing will be, until there are rows.
            self.next_due = {}
        with self.ledger.epoch():
            self.ledger.skip_epoch(self.time.end(record, {}), position)

    def _record(
        self, record: EpochRecord, computed: Computed, position: Mapping[str, bytes]
    ) -> None:
        """Make what was computed the newest version."""
        self.next_due = computed.next_due
        ended = record.at_end and not self.goes_on(record.processing_time_ms)
        self.ledger.record_epoch(
            self.time.end(
                msgspec.structs.replace(record, rows=computed.rows, ended=ended),
                computed.greatest_ms,
            ),
            computed.changes,
            computed.staged,
            position,
            sum(r.new_keys for r in computed.every if r.operator in self._counting),
            computed.placed,
        )
