"""Versions: for each state table, the segments that together are the state after an epoch.

Segments that overlap never share epochs, so "newest first" is well defined for every hash, whatever
P was when each run was written. A version is a value: every change makes a new one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from holdfast.errors import InternalError
from holdfast.state.hashing import HashRange
from holdfast.state.run import Run, Segment

__all__ = ["Change", "Version"]


@dataclass(frozen=True, slots=True)
class Change:
    """In ``range``, the runs named ``inputs`` (neighbours in epoch order, maybe none) become ``output``.

    With no inputs it adds a new, newest run. With ``output`` None the inputs simply go.
    """

    table: str
    range: HashRange
    inputs: tuple[str, ...]
    output: Run | None
    parts: tuple[Segment, ...] = ()
    """The segments that ``output`` was made of, if told: then the change fits only as long as the
    inputs have exactly these in the range. Otherwise they must have all of the range, except where
    another input holds the same epochs already."""


@dataclass(frozen=True, slots=True)
class Version:
    """The state after ``epoch``."""

    epoch: int
    tables: Mapping[str, tuple[Segment, ...]] = field(default_factory=dict)

    def segments(self, table: str, within: HashRange) -> tuple[Segment, ...]:
        """The segments of a table cut to a range, newest first."""
        return self.partitioned(table, [within])[0]

    def partitioned(self, table: str, ranges: Sequence[HashRange]) -> list[tuple[Segment, ...]]:
        """The same for many ranges at once; they must be disjoint and ascending."""
        return _partitioned(self.tables.get(table, ()), ranges)

    def runs(self) -> dict[str, Run]:
        """Every run that this version names, by name."""
        return {s.run.name: s.run for segments in self.tables.values() for s in segments}

    def unsaved(self) -> dict[str, Run]:
        """Those of them that are not durable: what a checkpoint has to store."""
        return {name: run for name, run in self.runs().items() if not run.is_durable}

    def can_apply(self, change: Change) -> bool:
        """Whether the inputs are still there, complete and neighbours, in the change's range."""
        return _fits(self.segments(change.table, change.range), change)

    def apply(self, changes: Iterable[Change], epoch: int | None = None) -> Version:
        """The version after these changes, numbered ``epoch`` if given. All must be applicable."""
        tables = dict(self.tables)
        by_table: dict[str, list[Change]] = {}
        for change in changes:
            by_table.setdefault(change.table, []).append(change)
        for table, wanted in by_table.items():
            for together in _disjoint(wanted):
                tables[table] = self._applied(tables.get(table, ()), together)
        return Version(self.epoch if epoch is None else epoch, tables)

    def with_runs(self, runs: Mapping[str, Run]) -> Version:
        """The same version with newer descriptions of some runs (a form gained or lost)."""
        tables = {
            table: tuple(Segment(runs.get(s.run.name, s.run), s.range) for s in segments)
            for table, segments in self.tables.items()
        }
        return Version(self.epoch, tables)

    def _applied(
        self, segments: Sequence[Segment], changes: Sequence[Change]
    ) -> tuple[Segment, ...]:
        """Apply changes of one table whose ranges are disjoint and ascending."""
        ranges = [change.range for change in changes]
        for change, present in zip(changes, _partitioned(segments, ranges), strict=True):
            if not _fits(present, change):
                raise InternalError(f"{change} does not fit version {self.epoch}")
        kept: list[Segment] = []
        for segment in segments:
            touched = (changes[index] for index in _overlapping(ranges, segment.range))
            holes = [change.range for change in touched if segment.run.name in change.inputs]
            kept += _without(segment, holes)
        for change in changes:
            if change.output is not None and change.output.rows:
                part = change.output.range.intersect(change.range)
                kept += [] if part is None else [Segment(change.output, part)]
        return tuple(sorted(kept, key=lambda s: (s.range.first, s.run.first_epoch)))


def _without(segment: Segment, holes: Iterable[HashRange]) -> list[Segment]:
    """What is left of a segment without some disjoint, ascending ranges."""
    parts = [segment.range]
    for hole in holes:
        parts[-1:] = parts[-1].subtract(hole) if parts else ()
    return [Segment(segment.run, part) for part in parts]


def _partitioned(
    segments: Iterable[Segment], ranges: Sequence[HashRange]
) -> list[tuple[Segment, ...]]:
    parts: list[list[Segment]] = [[] for _ in ranges]
    for segment in segments:
        for index in _overlapping(ranges, segment.range):
            part = segment.range.intersect(ranges[index])
            if part is not None:
                parts[index].append(Segment(segment.run, part))
    return [tuple(sorted(part, key=lambda s: -s.run.last_epoch)) for part in parts]


def _overlapping(ranges: Sequence[HashRange], span: HashRange) -> Iterable[int]:
    """The indices of those disjoint, ascending ranges that overlap ``span``."""
    index = bisect_left(ranges, span.first, key=lambda r: r.last)
    while index < len(ranges) and ranges[index].first <= span.last:
        yield index
        index += 1


def _disjoint(changes: Sequence[Change]) -> list[list[Change]]:
    """Changes to apply together, sorted, if none overlap (as in an epoch); else one by one."""
    ordered = sorted(changes, key=lambda change: change.range)
    if all(a.range.last < b.range.first for a, b in pairwise(ordered)):
        return [ordered]
    return [[change] for change in changes]


def _fits(present: Sequence[Segment], change: Change) -> bool:
    """Whether a change can be applied where these segments are all that lies in its range."""
    inputs = [segment for segment in present if segment.run.name in change.inputs]
    others = [segment for segment in present if segment.run.name not in change.inputs]
    if {segment.run.name for segment in inputs} != set(change.inputs):
        return False
    if not inputs:
        # A new run is the newest of its range, or newest-first would mean nothing.
        output = change.output
        return output is None or all(s.run.last_epoch < output.first_epoch for s in others)
    if not _neighbours([segment.run for segment in inputs], others, change.output):
        return False
    if change.parts:
        return _where(inputs) == _where(change.parts)
    return all(_complete(segment.run, inputs, change.range) for segment in inputs)


def _neighbours(inputs: Sequence[Run], others: Iterable[Segment], output: Run | None) -> bool:
    """Whether no other segment shares an epoch with what is merged, or lies between."""
    runs = inputs if output is None else [*inputs, output]
    first = min(run.first_epoch for run in runs)
    last = max(run.last_epoch for run in runs)
    if output is not None and (output.first_epoch, output.last_epoch) != (first, last):
        return False
    return not any(s.run.first_epoch <= last and s.run.last_epoch >= first for s in others)


def _where(segments: Iterable[Segment]) -> list[tuple[str, HashRange]]:
    return sorted((segment.run.name, segment.range) for segment in segments)


def _complete(run: Run, inputs: Sequence[Segment], within: HashRange) -> bool:
    """Whether all of a run's range is there, or was merged into another input."""
    rest = run.range.intersect(within)
    missing = [] if rest is None else [rest]
    for segment in inputs:
        other = segment.run
        holds = other.first_epoch <= run.first_epoch and run.last_epoch <= other.last_epoch
        if holds:
            missing = [part for whole in missing for part in whole.subtract(segment.range)]
    return not missing
