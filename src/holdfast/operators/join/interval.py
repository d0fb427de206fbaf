"""The interval join: rows of two streams with equal keys that happened near each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.choices import JoinKind, check_choice
from holdfast.errors import InputError
from holdfast.operators.base import Clock, Place, Session, StateReader, Update
from holdfast.operators.columns import Bits
from holdfast.operators.event_time import EventTime
from holdfast.operators.input_rows import Fields
from holdfast.operators.join.entries import EntryTable, JoinHints, StoredSideRows
from holdfast.operators.join.matching import Micros, find_stretches
from holdfast.operators.join.operator import JoinOperator, JoinOutput
from holdfast.operators.join.packing import SideName
from holdfast.operators.join.rows import Arrived, KeySpace, SideRows, arrived, key_space
from holdfast.state.hashing import HashRange
from holdfast.state.keys import SortedRows
from holdfast.state.schema import TableSchema

__all__ = ["IntervalJoinOperator"]

# Bounds further apart than this would not fit a timestamp.
_MOST_MS = 2**60 // 1000


@dataclass(frozen=True)
class _SidePlan:
    """What becomes of the rows of one side."""

    name: SideName
    time: EventTime
    reach_ms: int
    """How long after a row's time a row of the other side can still match it."""
    entries: EntryTable
    hints: JoinHints | None
    """Only where rows without a match are put out."""
    once: bool
    """Whether a row with a match is done with: it is put out, or never will be."""

    def bounds(self, micros: Micros) -> Micros:
        """When, by the watermark in ms, no further match can come."""
        bounds: Micros = -(-micros // 1000) + self.reach_ms
        return bounds


class IntervalJoinOperator(JoinOperator):
    """Joins rows with equal keys whose times are near each other.

    A pair matches if the right row's time is at least the left row's plus ``lower_ms`` and at most
    the left row's plus ``upper_ms``. A null key matches nothing. Rows that have found no match are
    put out, where ``how`` asks for it, when the watermark says that none can come. Rows that don't
    say when they happened match nothing and don't wait. Late rows go to the side outputs
    ``late_left`` and ``late_right``.

    >>> fields = [("k", pa.string()), ("ts", pa.timestamp("us"))]
    >>> operator = IntervalJoinOperator(
    ...     "join", fields[:1], fields, [("k", pa.string()), ("at", pa.timestamp("us"))], how="left",
    ...     left_time=EventTime("ts"), right_time=EventTime("at"), lower_ms=0, upper_ms=1000)
    >>> operator.output_schema.names
    ['k', 'ts', 'at']
    >>> [table.table for table in operator.tables]
    ['join.left', 'join.right', 'join.left_due']
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - the operator's word for it
        on: Fields,
        left: Fields,
        right: Fields,
        *,
        how: JoinKind,
        left_time: EventTime,
        right_time: EventTime,
        lower_ms: int,
        upper_ms: int,
    ) -> None:
        super().__init__(id, on, left, right, left_time=left_time, right_time=right_time)
        check_choice("how", how, JoinKind)
        if lower_ms > upper_ms or max(abs(lower_ms), abs(upper_ms)) > _MOST_MS:
            raise InputError(
                f"no row lies between {lower_ms} ms and {upper_ms} ms from another",
                hint="give a lower bound that is not above the upper one",
            )
        self.how, self.lower_ms, self.upper_ms = how, lower_ms, upper_ms
        left_only = how in ("semi", "anti")
        self._check_output(left_only=left_only)
        self.output = JoinOutput(on, left, right, left_only=left_only)
        self.plans = (self._plan("left"), self._plan("right"))
        self.needs_ticks = any(plan.hints for plan in self.plans)
        self.deletes = self.needs_ticks or how == "semi"

    def _plan(self, side: SideName) -> _SidePlan:
        is_left = side == "left"
        alone = self.how in (("left", "full", "anti") if is_left else ("right", "full"))
        once = is_left and self.how in ("semi", "anti")
        fields = self.left if is_left else self.right
        other = self.times["right" if is_left else "left"]
        reach = self.upper_ms if is_left else -self.lower_ms
        return _SidePlan(
            side,
            self.times[side],
            # A row of the other side may come as late as it is allowed to.
            reach + other.allowed_lateness_ms,
            EntryTable(
                f"{self.id}.{side}",
                self.on,
                fields,
                self.times[side].column,
                marks=alone and not once,
                # What waits to be put out must be seen until then, so it is deleted instead.
                expires=not alone,
            ),
            JoinHints(f"{self.id}.{side}_due", self.on) if alone else None,
            once,
        )

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """The rows of either side that can still match, and when those without a match are due."""
        hints = tuple(plan.hints.schema for plan in self.plans if plan.hints)
        return (*(plan.entries.schema for plan in self.plans), *hints)

    @property
    def output_schema(self) -> pa.Schema:
        """What is joined on, the other left columns, and (but for semi and anti) the right ones."""
        return self.output.schema

    def describe(self) -> str:
        """Kind, keys, bounds and columns; equal words mean equal state."""
        on = ", ".join(f"{name}: {kind}" for name, kind in self.on)
        return (
            f"{self.how} interval join on {on}\n"
            f"from {self.lower_ms} ms to {self.upper_ms} ms\n{self._sides_in_words()}"
        )

    def open(self, state: StateReader, clock: Clock, place: Place) -> Session:
        """Begin the work of one task."""
        del place
        return _IntervalSession(self, state, clock)


@dataclass
class _PieceOfWork:
    """The rows of one side in an epoch, and which of them have a match."""

    plan: _SidePlan
    arrived: Arrived
    stored: StoredSideRows
    new_matched: Bits
    old_matched: Bits
    """Stored rows that found a match in this epoch."""

    @property
    def new(self) -> SideRows:
        return self.arrived.rows


@dataclass
class _IntervalSession(Session):
    operator: IntervalJoinOperator
    state: StateReader
    clock: Clock

    def update(self, rows: SortedRows, within: HashRange) -> Update:
        """Match new rows with new and stored ones, then put out what can't match any more."""
        space, left, right = self._gather(rows, within)
        outputs = list(
            self._match(left.new, left.new_matched, right.stored, right.old_matched, space)
        )
        outputs += self._match(left.new, left.new_matched, right.new, right.new_matched, space)
        outputs += self._match(left.stored, left.old_matched, right.new, right.new_matched, space)
        if self.operator.how == "semi":
            outputs += [
                self.operator.output.left_alone(left.new, np.flatnonzero(left.new_matched)),
                self.operator.output.left_alone(left.stored, np.flatnonzero(left.old_matched)),
            ]
        changes: dict[str, pa.Table] = {}
        gained = 0
        for work in (left, right):
            outputs += self._alone(work)
            gained += self._keep(work, space, changes)
        return Update(changes, self.operator.output.together(outputs), gained)

    def _gather(
        self, rows: SortedRows, within: HashRange
    ) -> tuple[KeySpace, _PieceOfWork, _PieceOfWork]:
        operator = self.operator
        hinting = [plan.hints for plan in operator.plans if plan.hints]
        hints = [each.due(self.state, self.clock, within) for each in hinting]
        space = key_space(rows, operator.on, hints)
        due = dict(zip([each.name for each in hinting], space.of_hints, strict=True))
        came = [
            arrived(rows.table, space, operator.packing, plan.name, plan.time.column)
            for plan in operator.plans
        ]
        works = []
        for plan, mine, other in zip(operator.plans, came, reversed(came), strict=True):
            wanted = space.marked(other.rows.groups) & ~space.null
            if plan.hints:
                wanted |= space.marked(due[plan.hints.name])
            stored = plan.entries.find(self.state, space, wanted)
            none = np.zeros(len(mine.rows), np.bool_)
            works.append(_PieceOfWork(plan, mine, stored, none, np.zeros(len(stored), np.bool_)))
        return space, works[0], works[1]

    def _match(
        self,
        left: SideRows,
        left_matched: Bits,
        right: SideRows,
        right_matched: Bits,
        space: KeySpace,
    ) -> Iterator[pa.Table]:
        """The pairs of some rows; marks those that have one."""
        operator = self.operator
        found = find_stretches(
            (left.groups, left.micros),
            (right.groups, right.micros),
            operator.lower_ms * 1000,
            operator.upper_ms * 1000,
        )
        if space.null.any():
            null = space.null[left.groups]
            found.ends[null] = found.starts[null]
        left_matched |= found.matched
        right_matched |= found.covered(len(right))
        if operator.how in ("semi", "anti"):
            return
        for of_left, of_right in found.pairs():
            yield operator.output.pairs(left, right, of_left, of_right)

    def _over(self, work: _PieceOfWork, rows: SideRows) -> Bits:
        """Rows that no future row can match."""
        if self.clock.watermark_ms is None:
            return np.zeros(len(rows), np.bool_)
        over: Bits = work.plan.bounds(rows.micros) <= self.clock.watermark_ms
        return over

    def _alone(self, work: _PieceOfWork) -> Iterator[pa.Table]:
        """Rows without a match for which none can come any more."""
        if not work.plan.hints:
            return
        output = self.operator.output
        put_out = output.left_alone if work.plan.name == "left" else output.right_alone
        timeless = work.arrived.timeless
        yield put_out(timeless, np.arange(len(timeless)))
        new = self._over(work, work.new) & ~work.new_matched
        yield put_out(work.new, np.flatnonzero(new))
        old = self._over(work, work.stored) & ~work.old_matched & ~work.stored.matched
        yield put_out(work.stored, np.flatnonzero(old))

    def _keep(self, work: _PieceOfWork, space: KeySpace, changes: dict[str, pa.Table]) -> int:
        """Write down what can still match or has to be put out; how many rows more there are."""
        plan, new = work.plan, work.new
        keep = ~self._over(work, new)
        if not plan.hints:
            keep &= ~space.null[new.groups]
        if plan.once:
            keep &= ~work.new_matched
        kept = np.flatnonzero(keep)
        bounds = plan.bounds(new.micros[kept])
        entries = plan.entries.new(
            new,
            kept,
            space,
            self.clock.epoch,
            matched=work.new_matched[kept] if plan.entries.marks else None,
            expires=bounds if plan.entries.expires else None,
        )
        gone = np.zeros(len(work.stored), np.bool_)
        if plan.hints:
            gone |= self._over(work, work.stored)
            changes[plan.hints.name] = plan.hints.new(new.groups[kept], bounds, space)
        if plan.once:
            gone |= work.old_matched
        marked = np.zeros(len(gone), np.bool_)
        if plan.entries.marks:
            marked = work.old_matched & ~work.stored.matched & ~gone
        changes[plan.entries.name] = plan.entries.changes(
            entries, work.stored, np.flatnonzero(gone), np.flatnonzero(marked)
        )
        return len(kept) - int(gone.sum())
