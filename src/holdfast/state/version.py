"""Versions: for each state table, the segments that together are the state after an epoch.

Segments that overlap never share epochs, so "newest first" is well defined for every hash, whatever
P was when each run was written. A version is a value: every change makes a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class Version:
    """The state after ``epoch``."""

    epoch: int
    tables: Mapping[str, tuple[Segment, ...]] = field(default_factory=dict)

    def segments(self, table: str, within: HashRange) -> tuple[Segment, ...]:
        """The segments of a table cut to a range, newest first."""
        cut = (
            Segment(s.run, part)
            for s in self.tables.get(table, ())
            if (part := s.range.intersect(within)) is not None
        )
        return tuple(sorted(cut, key=lambda s: -s.run.last_epoch))

    def runs(self) -> dict[str, Run]:
        """Every run that this version names, by name."""
        return {s.run.name: s.run for segments in self.tables.values() for s in segments}

    def can_apply(self, change: Change) -> bool:
        """Whether the inputs are still there, complete and neighbours, in the change's range."""
        present = self.segments(change.table, change.range)
        wanted = set(change.inputs)
        epochs = {s.run.name: (s.run.first_epoch, s.run.last_epoch) for s in present}
        if not wanted <= set(epochs):
            return False
        for name in wanted:
            covered = sum(s.range.last - s.range.first + 1 for s in present if s.run.name == name)
            run = next(s.run for s in present if s.run.name == name)
            part = run.range.intersect(change.range)
            if part is None or covered != part.last - part.first + 1:
                return False
        if not wanted:
            return True
        first = min(epochs[name][0] for name in wanted)
        last = max(epochs[name][1] for name in wanted)
        between = {n for n, (a, b) in epochs.items() if a <= last and b >= first}
        return between == wanted

    def apply(self, changes: Iterable[Change], epoch: int | None = None) -> Version:
        """The version after these changes, numbered ``epoch`` if given. All must be applicable."""
        tables = dict(self.tables)
        for change in changes:
            current = Version(self.epoch, tables)
            if not current.can_apply(change):
                raise InternalError(f"{change} does not fit version {self.epoch}")
            tables[change.table] = _applied(tables.get(change.table, ()), change)
        return Version(self.epoch if epoch is None else epoch, tables)

    def with_runs(self, runs: Mapping[str, Run]) -> Version:
        """The same version with newer descriptions of some runs (a form gained or lost)."""
        tables = {
            table: tuple(Segment(runs.get(s.run.name, s.run), s.range) for s in segments)
            for table, segments in self.tables.items()
        }
        return Version(self.epoch, tables)


def _applied(segments: Sequence[Segment], change: Change) -> tuple[Segment, ...]:
    kept: list[Segment] = []
    for segment in segments:
        if segment.run.name in change.inputs:
            kept += [Segment(segment.run, r) for r in segment.range.subtract(change.range)]
        else:
            kept.append(segment)
    if change.output is not None and change.output.rows:
        kept.append(Segment(change.output, change.range))
    return tuple(sorted(kept, key=lambda s: (s.range.first, s.run.first_epoch)))
