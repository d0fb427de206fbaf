"""Reading the log: which entries count, and what they say. Nothing here writes.

Entries are dense: from the number that the newest collect entry calls ``first``, every number up to
the last is there and counts. Below it only the ``kept`` ones count (savepoints, pinned ones). What
else is visible there is a left-over: an entry about to be deleted, or the *stray* of a driver that
slept while retention removed the number it had found free.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from holdfast.checkpoint.entry import (
    EPOCHS_PER_ENTRY,
    Checkpoint,
    Collect,
    Entry,
    StagedOutput,
    decode_entry,
    entry_name,
    entry_number,
)
from holdfast.errors import ConfigurationError, CorruptionError
from holdfast.storage import NotFoundError, Storage

__all__ = ["EntryReader", "LogState", "Summary", "list_entries", "read_log"]

_ENTRIES_IN_MEMORY = 64
_ATTEMPTS = 10
Kind = TypeVar("Kind", Checkpoint, Collect)


@dataclass(frozen=True, slots=True)
class Summary:
    """As much of an entry as retention needs; small, since it is kept for every entry."""

    number: int
    written_ms: int = 0
    is_checkpoint: bool = False
    savepoint: str | None = None
    objects: frozenset[str] = frozenset()
    readable: bool = True
    """Otherwise nobody knows what it names."""


class EntryReader:
    """Reads entries by number; remembers some whole and a summary of each."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._summaries: dict[int, Summary] = {}

    def entry(self, number: int) -> Entry:
        """Entry ``number``; ``NotFoundError`` if there is none, ``CorruptionError`` if damaged."""
        known = self._entries.get(number)
        return known if known is not None else self.remember(self.read(number))

    def read(self, number: int) -> Entry:
        """The same, from storage in any case."""
        name = entry_name(number)
        what = f"log entry {number} ({name} in {self._storage.url})"
        try:
            entry = decode_entry(self._storage.get(name), what)
        except CorruptionError:
            # Bytes may also change on their way here: an entry is damaged if it is so twice.
            entry = decode_entry(self._storage.get(name), what)
        if entry.number != number:
            raise CorruptionError(f"{what} is a copy of entry {entry.number}")
        return entry

    def summary(self, number: int) -> Summary:
        """What retention needs of entry ``number``; also if it is damaged or gone."""
        if number not in self._summaries and not self.is_readable(number):
            return Summary(number, readable=False)
        return self._summaries[number]

    def is_readable(self, number: int) -> bool:
        """Whether an entry is there and whole."""
        try:
            self.entry(number)
        except (CorruptionError, NotFoundError):
            return False
        return True

    def remember(self, entry: Entry) -> Entry:
        """Keep an entry that was read or written just now."""
        objects: Iterable[str] = entry.objects() if isinstance(entry, Checkpoint) else ()
        if isinstance(entry, Collect):
            # The checkpoint that named it first may be one that can't be read.
            objects = entry.owed_objects()
        self._summaries[entry.number] = Summary(
            entry.number,
            entry.written_ms,
            isinstance(entry, Checkpoint),
            entry.savepoint if isinstance(entry, Checkpoint) else None,
            # Neighbouring checkpoints name mostly the same objects: one string for all of them.
            frozenset(map(sys.intern, objects)),
        )
        self._entries[entry.number] = entry
        if len(self._entries) > _ENTRIES_IN_MEMORY:
            self._entries.popitem(last=False)
        return entry

    def forget(self, numbers: Iterable[int]) -> None:
        """These entries are gone."""
        for number in numbers:
            self._entries.pop(number, None)
            self._summaries.pop(number, None)


@dataclass(frozen=True, slots=True)
class LogState:
    """The log as it was when it was read; entries are read when they are asked for."""

    reader: EntryReader
    numbers: tuple[int, ...] = ()
    """The entries that count, ascending."""
    left_over: tuple[int, ...] = ()
    """Visible entries that don't: to be deleted, whoever wrote them."""
    last_entry: Entry | None = None
    last_checkpoint: Checkpoint | None = None
    last_collect: Collect | None = None
    last_epoch: int = -1
    """No epoch above it was ever published, as far as can be told: the next has the next number."""

    @property
    def pending(self) -> Mapping[str, tuple[StagedOutput, ...]]:
        """Per sink the output that was not acknowledged yet, as far as the log knows."""
        newest, told = self.last_checkpoint, self.last_collect
        if newest is None:
            return {}
        if told is not None and told.pending is not None and told.number > newest.number:
            return told.pending
        return newest.pending

    @property
    def last_number(self) -> int:
        """The number of the last entry; -1 if there is none."""
        return self.numbers[-1] if self.numbers else -1

    @property
    def pipeline(self) -> str | None:
        """Whose log this is; None while it is empty."""
        return self.last_entry.pipeline if self.last_entry is not None else None

    def entry(self, number: int) -> Entry:
        """Entry ``number``, if it counts; else ``NotFoundError``."""
        if number not in self.numbers:
            raise NotFoundError(entry_name(number))
        return self.reader.entry(number)

    def checkpoints(self) -> Iterator[Checkpoint]:
        """The retained checkpoints, newest first. Damaged ones are passed over."""
        return self._checkpoints_among(reversed(self.numbers))

    def find_checkpoint(
        self, epoch: int | None = None, entry: int | None = None
    ) -> Checkpoint | None:
        """The checkpoint of that epoch or entry number; without either the newest, if any.

        Raises ``ConfigurationError`` if the one asked for isn't retained.
        """
        if epoch is None and entry is None:
            return self.last_checkpoint
        numbers = reversed(self.numbers) if entry is None else {entry}.intersection(self.numbers)
        for found in self._checkpoints_among(numbers):
            if epoch in (None, found.epoch):
                return found
        asked = f"entry {entry}" if entry is not None else f"epoch {epoch}"
        raise ConfigurationError(
            f"{asked} is not a checkpoint that is retained", hint=self._what_there_is()
        )

    def _checkpoints_among(self, numbers: Iterable[int]) -> Iterator[Checkpoint]:
        for number in numbers:
            with contextlib.suppress(CorruptionError, NotFoundError):
                if self.reader.summary(number).is_checkpoint:
                    entry = self.reader.entry(number)
                    assert isinstance(entry, Checkpoint)
                    yield entry

    def _what_there_is(self) -> str:
        there = list(self.checkpoints())
        if not there:
            return "there is none yet: wait for the first, or start without from_entry="
        return "choose one of " + ", ".join(f"{c.number} (epoch {c.epoch})" for c in there[:20])


def list_entries(storage: Storage) -> list[int]:
    """The numbers of all visible entries, ascending."""
    numbers = (entry_number(info.name) for info in storage.list("log/"))
    return [number for number in numbers if number is not None]


def read_log(storage: Storage, *, damaged_ok: bool = False) -> LogState:
    """Read the end of the log: which entries count, the last one, the newest checkpoint.

    An empty or missing directory gives an empty state. ``FormatError`` if a newer Holdfast wrote
    what is read; ``CorruptionError``, naming the newest whole checkpoint, if it is damaged. With
    ``damaged_ok`` damaged entries are passed over instead.
    """
    missing = ""
    for _ in range(_ATTEMPTS):
        visible = list_entries(storage)
        reader = EntryReader(storage)
        if not visible:
            return LogState(reader)
        if damaged_ok:
            return _read_around_damage(reader, visible)
        try:
            return _read_end(reader, visible)
        except NotFoundError as error:
            # A driver may append and delete while this reads: look again.
            missing = error.args[0]
        except CorruptionError as error:
            raise _with_hint(error, reader, visible) from error
    gap = CorruptionError(f"{missing} is missing in {storage.url}, though later entries are there")
    raise _with_hint(gap, reader, visible)


def _read_end(reader: EntryReader, visible: Sequence[int]) -> LogState:
    """The state, if the last entry and those it points to are whole and no number is missing."""
    last = reader.entry(visible[-1])
    checkpoint = last if isinstance(last, Checkpoint) else _pointed(reader, last.last_checkpoint)
    collect = last if isinstance(last, Collect) else _pointed(reader, last.last_collect)
    if not isinstance(checkpoint, Checkpoint | None) or not isinstance(collect, Collect | None):
        raise CorruptionError(f"log entry {last.number} points to entries of another kind")
    counting = _counting(visible, collect)
    # One by one: anybody may have written the last, and numbers have twenty digits.
    there = set(counting)
    for number in range(collect.first if collect is not None else 0, visible[-1] + 1):
        if number not in there:
            raise NotFoundError(entry_name(number))
    known = (last.last_epoch, checkpoint.epoch if checkpoint is not None else None)
    newest = max((epoch for epoch in known if epoch is not None), default=-1)
    state = _state(reader, visible, counting, last, checkpoint, collect)
    return replace(state, last_epoch=newest)


def _read_around_damage(reader: EntryReader, visible: Sequence[int]) -> LogState:
    """The state according to those entries that are whole, found by reading down from the end."""
    last = next((reader.entry(n) for n in reversed(visible) if reader.is_readable(n)), None)
    collect = _newest(reader, visible, Collect)
    counting = _counting(visible, collect)
    # One that doesn't count is about to be deleted, and what it names may be gone.
    checkpoint = _newest(reader, counting, Checkpoint)
    state = _state(reader, visible, counting, last, checkpoint, collect)
    return replace(state, last_epoch=_last_epoch(reader, visible))


def _newest(reader: EntryReader, numbers: Sequence[int], kind: type[Kind]) -> Kind | None:
    """The newest whole entry of a kind among these, by what the entries behind it say of it.

    Where an entry is missing, a driver that was fenced long ago may have put one in its place.
    """
    newest: float = math.inf
    for number in reversed(numbers):
        if number > newest or not reader.is_readable(number):
            continue
        entry = reader.entry(number)
        if isinstance(entry, kind):
            return entry
        told = entry.last_checkpoint if kind is Checkpoint else entry.last_collect
        newest = -1 if told is None else told
    return None


def _last_epoch(reader: EntryReader, visible: Sequence[int]) -> int:
    """The newest epoch that any of these entries, of which some are damaged, can be of.

    An entry that can't be read may be a checkpoint, and of as late an epoch as one may.
    """
    unreadable, expected = 0, visible[-1]
    for number in reversed(visible):
        unreadable += expected - number
        expected = number - 1
        if not reader.is_readable(number):
            unreadable += 1
            continue
        entry = reader.entry(number)
        known = entry.last_epoch
        if isinstance(entry, Checkpoint):
            known = max(entry.epoch, entry.epoch if known is None else known)
        if known is not None:
            return known + unreadable * EPOCHS_PER_ENTRY
    return unreadable * EPOCHS_PER_ENTRY - 1


def _pointed(reader: EntryReader, number: int | None) -> Entry | None:
    return None if number is None else reader.entry(number)


def _counting(visible: Sequence[int], collect: Collect | None) -> tuple[int, ...]:
    if collect is None:
        return tuple(visible)
    kept = set(collect.kept)
    return tuple(n for n in visible if n >= collect.first or n in kept)


def _state(
    reader: EntryReader,
    visible: Sequence[int],
    counting: tuple[int, ...],
    last: Entry | None,
    checkpoint: Checkpoint | None,
    collect: Collect | None,
) -> LogState:
    left_over = tuple(sorted(set(visible).difference(counting)))
    return LogState(reader, counting, left_over, last, checkpoint, collect)


def _with_hint(
    error: CorruptionError, reader: EntryReader, visible: Sequence[int]
) -> CorruptionError:
    whole = _read_around_damage(reader, visible).last_checkpoint
    return CorruptionError(
        error.message,
        hint="no checkpoint in it is whole: restore the directory from a copy"
        if whole is None
        else f"start from entry {whole.number} (epoch {whole.epoch}), the newest checkpoint that "
        f"is whole: from_entry={whole.number}",
    )
