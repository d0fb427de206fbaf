"""Whether the checkpoints of a directory can be restored: every named byte is read once and checked.

Runs are shared by checkpoints, so each is read once, whatever the number of entries that name it.
What is found wrong is collected, not raised: a person wants to know all of it, and what is still
whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from holdfast.checkpoint.blobs import is_content_of
from holdfast.checkpoint.entry import Checkpoint, StagedOutput
from holdfast.errors import CorruptionError, HoldfastError, StorageError
from holdfast.sinks.write_ahead import STAGED_EXTENSION
from holdfast.sinks.write_ahead import is_content_of as is_staged_content
from holdfast.state.blocks import OpenRun
from holdfast.state.layout import ColumnLayout
from holdfast.state.run import Run
from holdfast.state.schema import KEY_HASH, TableSchema
from holdfast.storage import NotFoundError, Storage
from holdfast.tiers.opener import open_stored

__all__ = ["Problem", "Report", "TableTotals", "verify_checkpoints"]

_BLOBS = "blobs/"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written."""

    what: str
    """The run, object or log entry."""
    wrong: str
    entries: tuple[int, ...]
    """The checkpoints that can't be restored without it."""


@dataclass(slots=True)
class TableTotals:
    """What was read of one state table."""

    runs: int = 0
    rows: int = 0
    size_bytes: int = 0
    bad: int = 0


@dataclass(slots=True)
class Report:
    """What verifying some checkpoints came to."""

    tables: dict[str, TableTotals] = field(default_factory=lambda: defaultdict(TableTotals))
    objects: TableTotals = field(default_factory=TableTotals)
    """Everything that is no run: Spark's files, staged output."""
    problems: list[Problem] = field(default_factory=list)

    def bad_entries(self) -> set[int]:
        """The checkpoints that can't be restored."""
        return {number for problem in self.problems for number in problem.entries}


@dataclass(slots=True)
class _Needed:
    """A run and who needs it."""

    run: Run
    schema: TableSchema | None
    entries: list[int]


def runs_bytes(entries: Sequence[Checkpoint]) -> int:
    """How many bytes of runs :func:`verify_checkpoints` will read."""
    stored = {run.stored for entry in entries for run in entry.runs if run.stored is not None}
    return sum(form.size_bytes for form in stored)


def verify_checkpoints(
    storage: Storage, entries: Sequence[Checkpoint], advance: Callable[[int], None]
) -> Report:
    """Check everything that these checkpoints name; ``advance`` is told the bytes of each run."""
    report = Report()
    sizes = {info.name: info.size_bytes for info in storage.list()}
    for needed in _runs_of(entries):
        totals = report.tables[needed.run.table]
        wrong = _wrong_with_run(needed, storage, sizes)
        stored_bytes = needed.run.stored.size_bytes if needed.run.stored else 0
        totals.runs += 1
        totals.rows += needed.run.rows
        totals.size_bytes += stored_bytes
        advance(stored_bytes)
        if wrong is not None:
            totals.bad += 1
            name = f"run {needed.run.name} of {needed.run.table}"
            if needed.run.stored is not None:
                name += f" ({needed.run.stored.object})"
            report.problems.append(Problem(name, wrong, tuple(needed.entries)))
    for entry in entries:
        report.problems += [
            Problem(f"log entry {entry.number}", wrong, (entry.number,))
            for wrong in _wrong_with_entry(entry)
        ]
    _check_objects(report, storage, sizes, entries)
    return report


def _runs_of(entries: Sequence[Checkpoint]) -> list[_Needed]:
    needed: dict[tuple[str, str], _Needed] = {}
    for entry in entries:
        schemas = {record.table: TableSchema.from_record(record) for record in entry.schemas}
        for run in entry.runs:
            # One run may have been stored twice, if the first attempt's reply was lost.
            name = (run.name, run.stored.object if run.stored is not None else "")
            known = needed.setdefault(name, _Needed(run, schemas.get(run.table), []))
            known.entries.append(entry.number)
    return list(needed.values())


def _wrong_with_run(needed: _Needed, storage: Storage, sizes: dict[str, int]) -> str | None:
    stored = needed.run.stored
    if stored is None:
        return "it has no stored form (invariant 2)"
    there = sizes.get(stored.object)
    if there is None:
        return "the object is missing"
    if there != stored.size_bytes:
        return f"the object has {there} bytes, the log says {stored.size_bytes}"
    try:
        opened = open_stored(needed.run, storage)
        opened.verify()
        if needed.schema is not None:
            ColumnLayout.find(needed.schema, needed.run.name, opened.schema)
        return _differs(needed.run, opened)
    except (CorruptionError, StorageError) as error:
        return error.message.removeprefix(f"run {needed.run.name}: ")


def _differs(run: Run, opened: OpenRun) -> str | None:
    """In what the log's description of a run differs from the run itself."""
    totals = opened.totals
    if (totals.rows, totals.tombstones) != (run.rows, run.tombstones):
        return (
            f"it has {totals.rows} rows and {totals.tombstones} tombstones, the log says "
            f"{run.rows} and {run.tombstones}"
        )
    # The blocks of a timed run are bounded by times.
    if opened.blocks and KEY_HASH not in opened.schema.names:
        first, last = opened.blocks[0].first, opened.blocks[-1].last
        if first < run.range.first or last > run.range.last:
            return "it holds hashes outside its range"
    return None


def _wrong_with_entry(entry: Checkpoint) -> Iterator[str]:
    """Contradictions in what an entry says."""
    runs = {run.name: run for run in entry.runs}
    schemas = {record.table for record in entry.schemas}
    for table, refs in entry.tables.items():
        if table not in schemas:
            yield f"it has no schema for table {table}"
        for ref in refs:
            run = runs.get(ref.run)
            if run is None:
                yield f"table {table} refers to run {ref.run}, which it does not describe"
            elif run.table != table or not run.range.covers(ref.range):
                yield f"table {table} uses a part of run {ref.run} that the run does not have"
            elif run.last_epoch > entry.epoch:
                yield f"run {ref.run} is of epoch {run.last_epoch}, after the checkpoint's"
        known = [(runs[ref.run], ref.range) for ref in refs if ref.run in runs]
        for (a, a_range), (b, b_range) in combinations(known, 2):
            share_epochs = a.first_epoch <= b.last_epoch and b.first_epoch <= a.last_epoch
            if share_epochs and a_range.overlaps(b_range):
                yield f"runs {a.name} and {b.name} of {table} overlap and share epochs"


def _check_objects(
    report: Report, storage: Storage, sizes: dict[str, int], entries: Sequence[Checkpoint]
) -> None:
    """Check that all that is no run is there, and blobs by their content."""
    needed: dict[str, list[int]] = defaultdict(list)
    expected: dict[str, set[int]] = defaultdict(set)
    for entry in entries:
        of_runs = {run.stored.object for run in entry.runs if run.stored is not None}
        for name in sorted(entry.objects() - of_runs):
            needed[name].append(entry.number)
        for output in _staged(entry):
            if output.size_bytes:
                expected[output.name].add(output.size_bytes)
    for name, numbers in sorted(needed.items()):
        report.objects.runs += 1
        report.objects.size_bytes += sizes.get(name, 0)
        wrong = _wrong_with_object(name, storage, sizes, expected[name])
        if wrong is not None:
            report.objects.bad += 1
            report.problems.append(Problem(f"object {name}", wrong, tuple(numbers)))


def _staged(entry: Checkpoint) -> Iterator[StagedOutput]:
    for outputs in (*entry.staged.values(), *entry.pending.values()):
        yield from outputs


def _wrong_with_object(
    name: str, storage: Storage, sizes: dict[str, int], expected: set[int]
) -> str | None:
    there = sizes.get(name)
    if there is None:
        return "it is missing"
    if expected - {there}:
        return f"it has {there} bytes, the log says {max(expected - {there})}"
    if not name.startswith(_BLOBS) and not name.endswith(STAGED_EXTENSION):
        return None
    try:
        data = storage.get(name)
    except (NotFoundError, HoldfastError) as error:
        return f"it can't be read: {error}"
    whole = is_content_of if name.startswith(_BLOBS) else is_staged_content
    if not whole(name, data):
        return "its content is not what its name says"
    return None
