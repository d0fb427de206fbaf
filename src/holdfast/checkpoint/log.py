"""The log: the one place where it is decided what is true, and by which driver.

A driver opens a pipeline by creating the next entry, a *claim*; from then on every driver with a
lower claim is *fenced*: it finds the claim where it wanted to write, or above. Creating entry N+1
and finding nothing above it is the only commit point (invariant 3), and whoever finds another's
entry above its own stops for good (invariant 5).

Three things can go wrong with "create if absent", and each has its sentence below: its reply may be
lost (read back and compare nonces); it may be carried out much later (remember the nonces that were
tried); and the number may be free only because retention has removed the entry that stood there
while this driver slept (list the log after creating).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from holdfast import runtime
from holdfast.checkpoint.entry import (
    FORMAT,
    Checkpoint,
    Claim,
    Collect,
    Entry,
    StagedOutput,
    decode_entry,
    encode_entry,
    entry_name,
    place_digest,
)
from holdfast.checkpoint.log_state import LogState, list_entries, read_log
from holdfast.errors import (
    ConfigurationError,
    CorruptionError,
    FencedError,
    FormatError,
    InternalError,
    StorageError,
)
from holdfast.failpoints import failpoint
from holdfast.storage import NotFoundError, Storage
from holdfast.storage.probe import check_creates_once

__all__ = ["Log", "LogMovedError", "LogState", "read_log", "tried_exclusive"]


class LogMovedError(StorageError):
    """Another driver wrote to the log since it was read: read and check it again, then retry."""

    kind = "moved"


class Log:
    """The log as the driver that claimed it writes it. Safe to use from several threads.

    >>> from itertools import count
    >>> from holdfast.storage import MemoryStorage
    >>> clock, nonces, storage = count(1000), count(), MemoryStorage("docs-log")
    >>> def claim(driver):
    ...     return Log.claim(storage, "orders", driver, now_ms=lambda: next(clock),
    ...                      nonce=lambda: str(next(nonces)))
    >>> first = claim("host-a")
    >>> second = claim("host-b")
    >>> second.claim_number
    1
    >>> first.check_not_fenced()
    Traceback (most recent call last):
    holdfast.errors.FencedError: driver 'host-a' (claim 0) of pipeline 'orders' in memory://docs-log is fenced by entry 1, a claim written by driver 'host-b' (claim 1). What to do: leave the pipeline to that driver; start this one again only when it has stopped
    """

    def __init__(
        self,
        storage: Storage,
        pipeline: str,
        driver: str,
        state: LogState,
        *,
        now_ms: Callable[[], int],
        nonce: Callable[[], str],
        exclusive: str = "",
    ) -> None:
        """Use :meth:`claim`."""
        self.storage = storage
        self.pipeline = pipeline
        self.driver = driver
        self._state = state
        self._claim = state.last_number + 1
        self._now_ms = now_ms
        self._nonce = nonce
        self._exclusive = exclusive
        self._tried: set[str] = set()
        self._fenced: FencedError | None = None
        self._lock = runtime.rlock()

    @classmethod
    def claim(
        cls,
        storage: Storage,
        pipeline: str,
        driver: str,
        *,
        now_ms: Callable[[], int],
        nonce: Callable[[], str],
        expect_last: int | None = None,
        damaged_ok: bool = False,
        exclusive: str = "",
    ) -> Log:
        """Take the pipeline over: create a claim behind the last entry.

        With ``expect_last`` (the last number of the log that was checked; -1 for an empty one)
        nothing is written if the log has gone on since: ``LogMovedError``. Without it a lost race
        is tried again at the new end. ``damaged_ok`` is for starting from an older entry when
        newer ones are damaged. ``exclusive`` is what :func:`tried_exclusive` said.
        """
        while True:
            state = read_log(storage, damaged_ok=damaged_ok)
            if state.pipeline not in (None, pipeline):
                raise ConfigurationError(
                    f"{storage.url} holds the checkpoints of pipeline {state.pipeline!r}, "
                    f"not of {pipeline!r}",
                    hint="use another checkpoint directory, or start the pipeline of that name",
                )
            if expect_last not in (None, state.last_number):
                raise LogMovedError(
                    f"another driver wrote entry {state.last_number} to {storage.url} while this "
                    "one was starting",
                    hint="stop the other driver, or start this one again to take over from it",
                )
            failpoint("log.before_claim")
            log = cls(
                storage, pipeline, driver, state, now_ms=now_ms, nonce=nonce, exclusive=exclusive
            )
            if log._create(Claim, {"driver": driver}) is None:
                continue
            failpoint("log.after_claim")
            if damaged_ok:
                log._leave_unreadable()
            return log

    @property
    def claim_number(self) -> int:
        """The number of this driver's claim: it begins the names of all that the driver writes."""
        return self._claim

    @property
    def last_number(self) -> int:
        """The number of the last entry that this driver knows of."""
        return self._state.last_number

    def state(self) -> LogState:
        """What this driver knows of the log: no reading, since nobody else may write to it."""
        return self._state

    def entry(self, number: int) -> Entry:
        """Entry ``number``, if it counts; else ``NotFoundError``."""
        return self.state().entry(number)

    def checkpoints(self) -> Iterator[Checkpoint]:
        """The retained checkpoints, newest first."""
        return self.state().checkpoints()

    def find_checkpoint(
        self, epoch: int | None = None, entry: int | None = None
    ) -> Checkpoint | None:
        """The checkpoint of that epoch or entry number; without either the newest, if any."""
        return self.state().find_checkpoint(epoch, entry)

    def append_checkpoint(self, **fields: Any) -> Checkpoint:
        """Create a checkpoint entry: when this returns, the checkpoint exists.

        ``fields`` are those of :class:`Checkpoint` without the header. ``FencedError`` if another
        driver has taken over; ``StorageError`` if storage failed, and then it may be tried again.
        """
        entry = self._create(Checkpoint, fields)
        assert isinstance(entry, Checkpoint)
        return entry

    def _leave_unreadable(self) -> None:
        """Have a collect entry say anew which numbers count: from here on nobody reads around damage.

        Entries that can't be read are left. As long as one counts, nobody knows what it names, and
        nothing is collected.
        """
        with self._lock:
            state = self._state
            whole = tuple(number for number in state.numbers if state.reader.is_readable(number))
            self._state = replace(state, numbers=whole)
            self.append_collect((), ())

    def append_collect(
        self,
        entries: Iterable[int],
        objects: Iterable[str],
        *,
        expect_last: int | None = None,
        pending: Mapping[str, tuple[StagedOutput, ...]] | None = None,
    ) -> Collect:
        """Create a collect entry: from here on nobody may use these entries and objects.

        Only then may they be deleted (invariant 9): see :mod:`holdfast.checkpoint.retention`.
        ``expect_last`` is the last number of the state in which nothing needed them. If the log
        has gone on since, ``LogMovedError``: also a checkpoint of this driver's own, whose reply
        was lost, may have been carried out late and need them. ``pending`` is what sinks have not
        acknowledged yet; without it, what the log says of that stays true.
        """
        with self._lock:
            doomed = set(entries)
            checkpoint = self._state.last_checkpoint
            if any(checkpoint is None or number >= checkpoint.number for number in doomed):
                raise InternalError(f"entries {sorted(doomed)} can't all be collected")
            fields = {
                "entries": tuple(sorted(doomed)),
                "objects": tuple(sorted(set(objects))),
                "pending": dict(self._state.pending if pending is None else pending),
            }
            entry = self._create(Collect, fields, expect_last)
            assert isinstance(entry, Collect)
            return entry

    def collected(self, entries: Iterable[int]) -> None:
        """Note that these entries have been deleted, after all that only they named."""
        with self._lock:
            gone = set(entries)
            self._state.reader.forget(gone)
            left = tuple(n for n in self._state.left_over if n not in gone)
            self._state = replace(self._state, left_over=left)

    def check_not_fenced(self) -> None:
        """Raise ``FencedError`` if another driver has taken over; before whatever can't be undone."""
        with self._lock:
            self._raise_if_fenced()
            self._look()

    def _create(
        self, kind: type[Entry], fields: dict[str, Any], expect_last: int | None = None
    ) -> Entry | None:
        """Create an entry behind the last. None if a claim lost its race (and nothing happened)."""
        with self._lock:
            self._raise_if_fenced()
            while True:
                if expect_last not in (None, self.last_number):
                    raise LogMovedError(
                        f"entry {self.last_number} was written to {self.storage.url} after what "
                        f"was read up to entry {expect_last}",
                        hint="decide again and retry",
                    )
                entry = self._made(kind, fields)
                self._tried.add(entry.nonce)
                failpoint("log.before_create")
                if self._put(entry):
                    break
                if isinstance(entry, Claim):
                    return None
                # An earlier attempt of our own was carried out late and stands there: go behind it.
            failpoint("log.after_create")
            self._accept(entry)
            self._look()
            failpoint("log.after_entry")
            return entry

    def _put(self, entry: Entry) -> bool:
        """Whether ``entry`` stands at its number now; False if one stands there that may."""
        name, data = entry_name(entry.number), _encoded(entry)
        lost: Exception | None = None
        try:
            if self.storage.put_if_absent(name, data):
                return True
        except Exception as error:  # noqa: BLE001 - whatever it was, the entry may be there
            lost = error
        # "Exists" may answer a request that was repeated on the way, and an error may hide a
        # success: only the entry that stands there can tell.
        try:
            found = self._state.reader.read(entry.number)
        except NotFoundError:
            self._look()
            if lost is None:
                # It was there and is gone: somebody else's retention removed it.
                raise self._fence(entry.number) from None
            raise StorageError(
                f"log entry {name} could not be written to {self.storage.url}: {lost}",
                hint="mend the storage; writing it may be tried again",
            ) from lost
        except (FormatError, CorruptionError):
            if isinstance(entry, Claim):
                raise
            # A newer Holdfast has taken over; or nobody can tell who has, and nothing can follow it.
            raise self._fence(entry.number) from None
        if found.nonce == entry.nonce:
            return True
        if not isinstance(entry, Claim):
            self._look()
            if self._state.last_number < entry.number:
                raise self._fence(entry.number)
        return False

    def _made(self, kind: type[Entry], fields: dict[str, Any]) -> Entry:
        state = self._state
        number = state.last_number + 1
        if kind is Collect:
            fields = {**fields, **_what_counts(state.numbers, fields["entries"], number)}
        return kind(
            format=FORMAT,
            number=number,
            claim=self._claim,
            nonce=self._nonce(),
            pipeline=self.pipeline,
            written_ms=self._now_ms(),
            last_checkpoint=state.last_checkpoint.number if state.last_checkpoint else None,
            last_collect=state.last_collect.number if state.last_collect else None,
            last_epoch=max(state.last_epoch, fields.get("epoch", -1)),
            exclusive=self._exclusive,
            **fields,
        )

    def _accept(self, entry: Entry) -> None:
        """The entry stands behind the last one: it is the last now."""
        state = self._state
        state.reader.remember(entry)
        # Whatever else was tried at this number can't be carried out any more.
        self._tried.clear()
        state = replace(state, numbers=(*state.numbers, entry.number), last_entry=entry)
        if isinstance(entry, Checkpoint):
            state = replace(
                state, last_checkpoint=entry, last_epoch=max(state.last_epoch, entry.epoch)
            )
        if isinstance(entry, Collect):
            doomed = set(entry.entries)
            state = replace(
                state,
                numbers=tuple(n for n in state.numbers if n not in doomed),
                left_over=tuple(sorted(doomed.union(state.left_over))),
                last_collect=entry,
            )
        self._state = state

    # Fencing

    def _look(self) -> None:
        """List the log; stop for good if another driver's entry stands above the last one."""
        visible = list_entries(self.storage)
        there = set(visible)
        while self._tried and (number := self._state.last_number + 1) in there:
            try:
                entry = self._state.reader.read(number)
            except (NotFoundError, FormatError, CorruptionError):
                break
            if entry.nonce not in self._tried:
                break
            self._accept(entry)
        counting = set(self._state.numbers)
        last = self._state.last_number
        if visible and visible[-1] > last:
            raise self._fence(visible[-1])
        if not counting.intersection((last - 1, last)) <= there:
            # Only the retention of a higher claim can have removed it.
            raise self._fence(last)
        left_over = tuple(number for number in visible if number not in counting)
        self._state = replace(self._state, left_over=left_over)

    def _raise_if_fenced(self) -> None:
        if self._fenced is not None:
            raise FencedError(self._fenced.message, hint=self._fenced.hint)

    def _fence(self, number: int) -> FencedError:
        self._fenced = FencedError(
            f"driver {self.driver!r} (claim {self._claim}) of pipeline {self.pipeline!r} in "
            f"{self.storage.url} is fenced by {self._describe(number)}",
            hint="leave the pipeline to that driver; start this one again only when it has stopped",
        )
        return self._fenced

    def _describe(self, number: int) -> str:
        """An entry and who wrote it, as far as that can still be read."""
        reader = self._state.reader
        try:
            entry = reader.read(number)
        except (NotFoundError, CorruptionError, FormatError, StorageError) as error:
            return f"another driver's entry {number} (unreadable: {error})"
        kind = type(entry).__name__.lower()
        try:
            claim = entry if isinstance(entry, Claim) else reader.read(entry.claim)
        except (NotFoundError, CorruptionError, FormatError, StorageError):
            claim = None
        driver = repr(claim.driver) if isinstance(claim, Claim) else "another"
        return f"entry {number}, a {kind} written by driver {driver} (claim {entry.claim})"


def tried_exclusive(storage: Storage, state: LogState) -> str:
    """Try whether create-if-absent works, once per directory; what its entries say of it from then on.

    Before the claim: it is the first to need it. ``ConfigurationError`` if it doesn't work.
    """
    here = place_digest(storage.url)
    if state.last_entry is None or state.last_entry.exclusive != here:
        check_creates_once(storage)
    return here


def _encoded(entry: Entry) -> bytes:
    data = encode_entry(entry)
    try:
        decode_entry(data)
    except CorruptionError as error:
        # Once written it could never be read: better to fail before.
        raise InternalError(f"entry {entry.number} is not well-formed: {error}") from error
    return data


def _what_counts(
    numbers: Iterable[int], doomed: Iterable[int], number: int
) -> dict[str, int | tuple[int, ...]]:
    """What a collect entry at ``number`` says of the entries that are left."""
    left = set(numbers).difference(doomed)
    first = number
    while first - 1 in left:
        first -= 1
    return {"first": first, "kept": tuple(sorted(n for n in left if n < first))}
