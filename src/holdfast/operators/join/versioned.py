"""The versioned join: rows of a stream with the version of a table's row that was valid at their time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.choices import VersionedKind, check_choice
from holdfast.errors import InputError
from holdfast.operators.base import Clock, Place, Session, StateReader, Update
from holdfast.operators.columns import Bits
from holdfast.operators.event_time import EventTime
from holdfast.operators.input_rows import Fields
from holdfast.operators.join.entries import EntryTable, JoinHints, StoredSideRows
from holdfast.operators.join.matching import Micros, find_stretches, stable_order
from holdfast.operators.join.operator import JoinOperator, JoinOutput
from holdfast.operators.join.rows import KeySpace, SideRows, arrived, key_space
from holdfast.state.columns import Indices
from holdfast.state.hashing import HashRange
from holdfast.state.keys import SortedRows
from holdfast.state.schema import TableSchema

__all__ = ["VersionedJoinOperator"]


class VersionedJoinOperator(JoinOperator):
    """Joins each left row with the right row of its key that was valid at its time.

    Right rows are versions: each is valid from its time until that of the key's next one; of two
    with the same time the one that arrived later counts. A left row waits until the watermark says
    that no version can come any more that it would have to be joined with, so the order in which rows
    arrive makes no difference. ``deleted`` names a boolean right column: where it is true, the key has
    no row from that time on. A version is kept while it is its key's newest or a left row may need it.

    >>> rates = [("currency", pa.string()), ("since", pa.timestamp("us")), ("rate", pa.float64())]
    >>> orders = [("currency", pa.string()), ("ts", pa.timestamp("us")), ("amount", pa.int64())]
    >>> operator = VersionedJoinOperator(
    ...     "priced", rates[:1], orders, rates, how="left",
    ...     left_time=EventTime("ts"), right_time=EventTime("since"))
    >>> operator.output_schema.names
    ['currency', 'ts', 'amount', 'since', 'rate']
    """

    needs_ticks = True
    deletes = True

    def __init__(
        self,
        id: str,  # noqa: A002 - the operator's word for it
        on: Fields,
        left: Fields,
        right: Fields,
        *,
        how: VersionedKind,
        left_time: EventTime,
        right_time: EventTime,
        deleted: str | None = None,
    ) -> None:
        super().__init__(id, on, left, right, left_time=left_time, right_time=right_time)
        check_choice("how", how, VersionedKind)
        if deleted is not None and dict(right).get(deleted) != pa.bool_():
            raise InputError(
                f"the right side of the join has no boolean column {deleted!r}",
                hint="name a boolean column that says that a row is deleted",
            )
        self._check_output()
        self.how, self.deleted = how, deleted
        self.output = JoinOutput(on, left, right)
        self.waiting = EntryTable(f"{id}.waiting", self.on, self.left, left_time.column)
        self.versions = EntryTable(f"{id}.versions", self.on, self.right, right_time.column)
        self.waiting_due = JoinHints(f"{id}.waiting_due", self.on)
        self.versions_due = JoinHints(f"{id}.versions_due", self.on)
        self.wait_ms = right_time.allowed_lateness_ms
        """How long after its time a left row waits: a version may be that late."""
        self.history_ms = max(left_time.allowed_lateness_ms, right_time.allowed_lateness_ms)
        """How far behind the watermark the left rows still to be put out can be."""

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """Left rows that wait, versions, and when to look at the keys of either."""
        parts = (self.waiting, self.versions, self.waiting_due, self.versions_due)
        return tuple(part.schema for part in parts)

    @property
    def output_schema(self) -> pa.Schema:
        """What is joined on, the other left columns, the other right columns."""
        return self.output.schema

    def describe(self) -> str:
        """Kind, keys and columns; equal words mean equal state."""
        on = ", ".join(f"{name}: {kind}" for name, kind in self.on)
        deleted = "" if self.deleted is None else f"\ndeleted: {self.deleted}"
        return f"{self.how} versioned join on {on}\n{self._sides_in_words()}{deleted}"

    def open(self, state: StateReader, clock: Clock, place: Place) -> Session:
        """Begin the work of one task."""
        del place
        return _VersionedSession(self, state, clock)


@dataclass(frozen=True, slots=True)
class _Versions:
    """All versions of the keys that an epoch looks at, by key and time.

    Of those with equal times the one that counts is the last.
    """

    stored: StoredSideRows
    new: SideRows
    groups: Indices
    micros: Micros
    is_new: Bits
    origin: Indices
    """For each version its number among those stored, or among the new ones."""
    deleted: Bits


@dataclass
class _VersionedSession(Session):
    operator: VersionedJoinOperator
    state: StateReader
    clock: Clock

    def update(self, rows: SortedRows, within: HashRange) -> Update:
        """Put out left rows that are due with their versions, and free versions no one needs."""
        operator = self.operator
        hints = [
            each.due(self.state, self.clock, within)
            for each in (operator.waiting_due, operator.versions_due)
        ]
        space = key_space(rows, operator.on, hints)
        left, right = (
            arrived(rows.table, space, operator.packing, side, operator.times[side].column)
            for side in ("left", "right")
        )
        waiting = operator.waiting.find(self.state, space, space.marked(space.of_hints[0]))
        due_now, due_before = self._is_due(left.rows), self._is_due(waiting)
        touched = space.marked(
            right.rows.groups, *space.of_hints, left.rows.groups[due_now], waiting.groups
        )
        versions = self._versions(space, touched & ~space.null, right.rows)
        outputs = [
            *self._join(waiting, np.flatnonzero(due_before), versions),
            *self._join(left.rows, np.flatnonzero(due_now), versions),
        ]
        if operator.how == "left":
            timeless = left.timeless
            outputs.append(operator.output.left_alone(timeless, np.arange(len(timeless))))
        changes: dict[str, pa.Table] = {}
        gained = self._wait(left.rows, ~due_now, waiting, due_before, space, changes)
        gained += self._keep(versions, space, changes)
        return Update(changes, operator.output.together(outputs), gained)

    def _is_due(self, rows: SideRows) -> Bits:
        """Left rows that no version can come for any more."""
        if self.clock.watermark_ms is None:
            return np.zeros(len(rows), np.bool_)
        due: Bits = _up(rows.micros) + self.operator.wait_ms <= self.clock.watermark_ms
        return due

    def _versions(self, space: KeySpace, touched: Bits, new: SideRows) -> _Versions:
        stored = self.operator.versions.find(self.state, space, touched)
        usable = np.flatnonzero(~space.null[new.groups])
        groups = np.concatenate([stored.groups, new.groups[usable]])
        micros = np.concatenate([stored.micros, new.micros[usable]])
        deleted = np.concatenate([self._deleted(stored), self._deleted(new)[usable]])
        origin = np.concatenate([np.arange(len(stored)), usable])
        # Stored versions stay before new ones of the same time.
        order = stable_order(groups, micros)
        return _Versions(
            stored,
            new,
            groups[order],
            micros[order],
            order >= len(stored),
            origin[order],
            deleted[order],
        )

    def _deleted(self, versions: SideRows) -> Bits:
        if self.operator.deleted is None:
            return np.zeros(len(versions), np.bool_)
        (flags,) = versions.at(np.arange(len(versions)), [self.operator.deleted])
        deleted: Bits = flags.fill_null(False).to_numpy(zero_copy_only=False)
        return deleted

    def _join(self, left: SideRows, due: Indices, versions: _Versions) -> list[pa.Table]:
        """Rows that are due, each with the version valid at its time."""
        groups, micros = left.groups[due], left.micros[due]
        # As far back as there are versions.
        reach = max(0, int(micros.max(initial=0)) - int(versions.micros.min(initial=0)))
        found = find_stretches((groups, micros), (versions.groups, versions.micros), -reach, 0)
        matched = np.flatnonzero(found.matched)
        last = found.ends[matched] - 1
        there = ~versions.deleted[last]
        matched, last = matched[there], last[there]
        is_new, origin = versions.is_new[last], versions.origin[last]
        output = self.operator.output
        tables = [
            output.pairs(left, versions.stored, due[matched[~is_new]], origin[~is_new]),
            output.pairs(left, versions.new, due[matched[is_new]], origin[is_new]),
        ]
        if self.operator.how == "left":
            alone = np.ones(len(due), np.bool_)
            alone[matched] = False
            tables.append(output.left_alone(left, due[alone]))
        return tables

    def _wait(
        self,
        left: SideRows,
        wait: Bits,
        waiting: StoredSideRows,
        done: Bits,
        space: KeySpace,
        changes: dict[str, pa.Table],
    ) -> int:
        """Keep left rows that are not due, and forget those put out; how many more there are."""
        operator = self.operator
        if operator.how == "inner":
            wait = wait & ~space.null[left.groups]
        kept, gone = np.flatnonzero(wait), np.flatnonzero(done)
        entries = operator.waiting.new(left, kept, space, self.clock.epoch)
        none = np.empty(0, np.int64)
        changes[operator.waiting.name] = operator.waiting.changes(entries, waiting, gone, none)
        times = _up(left.micros[kept]) + operator.wait_ms
        changes[operator.waiting_due.name] = operator.waiting_due.new(
            left.groups[kept], times, space
        )
        return len(kept) - len(gone)

    def _keep(self, versions: _Versions, space: KeySpace, changes: dict[str, pa.Table]) -> int:
        """Keep versions that may be needed, and forget the others; how many more there are."""
        operator = self.operator
        needed = self._needed(versions)
        none = np.empty(0, np.int64)
        kept = versions.origin[needed & versions.is_new]
        gone = np.sort(versions.origin[~needed & ~versions.is_new])
        entries = operator.versions.new(versions.new, kept, space, self.clock.epoch)
        table = operator.versions.changes(entries, versions.stored, gone, none)
        changes[operator.versions.name] = table
        times = _up(versions.new.micros[kept]) + operator.history_ms
        hinted = versions.new.groups[kept]
        if self.clock.watermark_ms is not None:
            ahead = times > self.clock.watermark_ms
            times, hinted = times[ahead], hinted[ahead]
        changes[operator.versions_due.name] = operator.versions_due.new(hinted, times, space)
        return len(kept) - len(gone)

    def _needed(self, versions: _Versions) -> Bits:
        """All versions after the time that left rows are past, and the one valid at it."""
        groups, micros = versions.groups, versions.micros
        same = groups[1:] == groups[:-1]
        needed = np.ones(len(groups), np.bool_)
        # Of versions with equal times the last counts.
        needed[:-1] = ~(same & (micros[1:] == micros[:-1]))
        if self.clock.watermark_ms is None:
            return needed
        past = micros <= (self.clock.watermark_ms - self.operator.history_ms) * 1000
        needed[:-1] &= ~(same & past[1:])
        # That there is no row any more need not be kept where nothing is before it.
        needed &= ~(past & versions.deleted)
        return needed


def _up(micros: Micros) -> Micros:
    ms: Micros = -(-micros // 1000)
    return ms
