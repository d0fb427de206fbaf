"""From a log entry back to a running pipeline: the checks and the bytes it needs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from holdfast import runtime
from holdfast.checkpoint.blobs import read_blob
from holdfast.checkpoint.entry import Checkpoint
from holdfast.checkpoint.log import LogState
from holdfast.driver.local_files import LocalFiles
from holdfast.driver.scratch import source_offsets
from holdfast.errors import ConfigurationError, CorruptionError
from holdfast.operators.base import Operator
from holdfast.operators.description import Description, find_moved
from holdfast.operators.process.evolution import check_evolution
from holdfast.state.run import Run
from holdfast.state.schema import TableSchema
from holdfast.storage import Storage
from holdfast.tiers.opener import RunOpener, local_path, open_stored

__all__ = [
    "check_programs",
    "check_sinks",
    "check_sources",
    "check_stored",
    "continue_states",
    "prepare_runs",
    "read_position",
]


def check_programs(
    entry: Checkpoint,
    now: Mapping[str, Description],
    unnamed: Collection[str] = (),
    drop_state: Sequence[str] = (),
) -> None:
    """Refuse a program that would lose state, or read it as something else.

    An operator that the entry doesn't know begins without state; one that only the entry knows is an
    error, unless ``drop_state`` names it. ``unnamed`` are those that got their name from their place.
    """
    before = {id_: Description.parse(entry.program[id_]) for id_ in _operators(entry)}
    moved = find_moved(before, now, unnamed)
    if moved is not None:
        raise _moved(entry, *moved)
    names = set(now)
    orphans = [id_ for id_ in _operators(entry) if id_ not in names]
    unknown = [id_ for id_ in drop_state if id_ not in orphans]
    if unknown:
        raise ConfigurationError(
            f"drop_state names {unknown[0]!r}, but entry {entry.number} has no state of such an "
            "operator that the program doesn't have",
            hint=f"what it could drop: {', '.join(orphans)}" if orphans else "leave it out",
        )
    left = [id_ for id_ in orphans if id_ not in drop_state]
    if left:
        raise _orphaned(entry, left, [id_ for id_ in sorted(names) if id_ not in entry.program])
    for id_, description in now.items():
        if id_ in before:
            _check_same(entry, id_, before[id_].what, description.what)


def _operators(entry: Checkpoint) -> list[str]:
    return [id_ for id_ in entry.program if not id_.startswith(("sink-", "side-"))]


def _orphaned(entry: Checkpoint, left: list[str], new: list[str]) -> ConfigurationError:
    tables = {name: refs for name, refs in entry.tables.items() if name.split(".")[0] in left}
    runs = {run.name: run for run in entry.runs}
    rows = sum(runs[ref.run].rows for refs in tables.values() for ref in refs)
    renamed = f' (give {new[0]!r} its old name: .named("{left[0]}"))' if new else ""
    return ConfigurationError(
        f"entry {entry.number} holds state of {', '.join(map(repr, left))} (tables "
        f"{', '.join(sorted(tables)) or 'without rows'}, about {rows} rows), which the program doesn't "
        "have" + (f"; it has {', '.join(map(repr, new))} instead" if new else ""),
        hint=f"was it renamed?{renamed} To leave its state behind start with drop_state={left!r}, or "
        "start with a new checkpoint_dir",
    )


def _moved(entry: Checkpoint, old: str, new: str) -> ConfigurationError:
    return ConfigurationError(
        f"the operator that is {old!r} in entry {entry.number} is {new!r} in the program, where it "
        "would get the state of another: without names, operators are told apart by their order",
        hint=f'give it its old name, .named("{old}"), and each of the others a name of its own; or '
        "put them in the order they had. If it is where it was, and was changed to what the other had been, "
        f'call each what it was called there: .named("{new}")',
    )


def _check_same(entry: Checkpoint, id_: str, before: str, now: str) -> None:
    """Refuse an operator whose keys or aggregates are not those the state was made with."""
    if before == now:
        return
    old, new = before.splitlines(), now.splitlines()
    changed = [f"was: {line}" for line in old if line not in new]
    changed += [f"now: {line}" for line in new if line not in old]
    raise ConfigurationError(
        f"keys or aggregates of {id_!r} differ from those of entry {entry.number}: "
        + "; ".join(changed or ["the order of columns changed"]),
        hint="start with the keys and aggregates it was made with, or with a new checkpoint_dir",
    )


def continue_states(entry: Checkpoint, operator: Operator) -> None:
    """Let an operator keep the column ids of the entry's tables; refuse changes it can't read."""
    earlier = {
        record.table: TableSchema.from_record(record)
        for record in entry.schemas
        if record.table.startswith(f"{operator.id}.")
    }
    operator.continuing(earlier)
    check_evolution(earlier, operator.tables, entry.number)


def check_sinks(state: LogState, sinks: dict[str, str]) -> None:
    """Refuse to go on without a sink that is still owed output."""
    newest = state.last_checkpoint
    if newest is None:
        return
    for sink, owed in state.pending.items():
        before = newest.program.get(sink, "")
        if owed and sinks.get(sink) != before:
            raise ConfigurationError(
                f"entry {newest.number} may owe output to {sink} ({before}), but that is now "
                f"{sinks.get(sink, 'gone')}",
                hint="start with the sinks it ran with, in the same order; further ones may follow",
            )


def check_sources(entry: Checkpoint, position: Mapping[str, bytes], sources: int) -> None:
    """Refuse a program that reads more or fewer sources than the entry has positions for."""
    known = source_offsets(position.get(f"offsets/{entry.epoch}", b"").decode())
    if known is not None and len(known) != sources:
        raise ConfigurationError(
            f"entry {entry.number} has positions of {len(known)} sources, and the program reads "
            f"{sources} (one of them keeps time, if anything in the program goes by time)",
            hint="start with the sources it ran with, in the same order, or with a new checkpoint_dir",
        )


def read_position(entry: Checkpoint, storage: Storage) -> dict[str, bytes]:
    """Spark's files as the entry keeps them."""
    whose = f"entry {entry.number}"
    return {path: read_blob(storage, blob, whose) for path, blob in entry.spark.items()}


def prepare_runs(entry: Checkpoint, state: LogState, storage: Storage, files: LocalFiles) -> Path:
    """Bring every run of an entry, checked, into a new folder on this host; files are linked."""
    folder = files.prepare()
    try:
        for run in entry.runs:
            _link_existing(run, files, folder)
        opener = RunOpener(folder, storage, verify=True)
        at_once = min(4, os.cpu_count() or 1)
        results = runtime.each(lambda run: _opened(run, opener), entry.runs, at_once)
        opener.keep_only(())
        bad = [error for error in results if error is not None]
        if bad:
            raise _unusable(entry, bad, state, storage)
    except BaseException:
        files.discard(folder)
        raise
    return folder


def check_stored(entry: Checkpoint, state: LogState, storage: Storage) -> None:
    """Raise unless every run of an entry is in storage, as far as its footer tells.

    On a cluster nobody reads all of the state before the pipeline runs: blocks are checked as they
    are used.
    """

    def opened(run: Run) -> CorruptionError | None:
        try:
            open_stored(run, storage)
        except CorruptionError as error:
            return error
        return None

    bad = [error for error in runtime.each(opened, entry.runs, at_once=8) if error is not None]
    if bad:
        raise _unusable(entry, bad, state, storage)


def _link_existing(run: Run, files: LocalFiles, folder: Path) -> None:
    for claim in files.claims():
        with contextlib.suppress(FileNotFoundError):
            os.link(local_path(files.root / str(claim), run.name), local_path(folder, run.name))
            return


def _opened(run: Run, opener: RunOpener) -> CorruptionError | None:
    try:
        opener.open(run)
    except CorruptionError as error:
        return error
    return None


def _unusable(
    entry: Checkpoint, bad: list[CorruptionError], state: LogState, storage: Storage
) -> CorruptionError:
    whole = newest_whole(state.checkpoints(), storage, below=entry.number)
    hint = (
        f"start from entry {whole.number} (epoch {whole.epoch}), the newest that is whole: "
        f"from_entry={whole.number}"
        if whole
        else "no retained entry is whole: restore the objects from a copy of the directory"
    )
    what = "; ".join(error.message for error in bad)
    return CorruptionError(
        f"entry {entry.number} (epoch {entry.epoch}) can't be used: {what}", hint=hint
    )


def newest_whole(
    checkpoints: Iterable[Checkpoint], storage: Storage, below: int
) -> Checkpoint | None:
    """The newest checkpoint under a number of which all that a start reads is there and right."""
    for entry in checkpoints:
        if entry.number < below:
            try:
                read_position(entry, storage)
                for run in entry.runs:
                    open_stored(run, storage).verify()
            except CorruptionError:
                continue
            return entry
    return None
