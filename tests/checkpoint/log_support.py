"""What tests of the log share: clocks, nonces and checkpoints that name given objects."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.checkpoint.entry import Checkpoint, Claim, entry_name
from holdfast.checkpoint.log import Log, read_log
from holdfast.checkpoint.log_state import list_entries
from holdfast.checkpoint.pins import read_pins
from holdfast.checkpoint.retention import list_collectable
from holdfast.errors import StorageError
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.run import Run, StoredForm
from holdfast.storage import MemoryStorage, ObjectInfo, Storage
from holdfast.storage.base import Buffer


def counting_nonces(prefix: str) -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"{prefix}-{next(numbers)}"


def open_log(storage: Storage, driver: str = "d", **options: Any) -> Log:
    clock = itertools.count(1_000)
    options = {"now_ms": lambda: next(clock), "nonce": counting_nonces(driver), **options}
    return Log.claim(storage, options.pop("pipeline", "orders"), driver, **options)


def flip(storage: MemoryStorage, *numbers: int) -> None:
    """Damage some entries."""
    for number in numbers:
        data = bytearray(storage.get(entry_name(number)))
        data[len(data) // 2] ^= 1
        storage.put(entry_name(number), bytes(data))


def checkpoint_fields(epoch: int, objects: Iterable[str] = (), **more: Any) -> dict[str, Any]:
    runs = tuple(
        Run(
            name=name.rpartition("/")[2],
            table="op.t",
            range=FULL_RANGE,
            first_epoch=epoch,
            last_epoch=epoch,
            rows=1,
            stored=StoredForm(name, 1, "00", 1),
        )
        for name in objects
    )
    fields: dict[str, Any] = {
        "epoch": epoch,
        "runs": runs,
        "tables": {},
        "schemas": (),
        "program": {},
        "spark": {},
        "epochs": (),
        "pending": {},
        "staged": {},
        "state_rows": 0,
        "new_bytes": 0,
        "shared_bytes": 0,
        "duration_ms": 0,
    }
    return {**fields, **more}


def check_log(storage: Storage) -> None:
    """Everything that must hold of a log at any moment, whoever is writing to it."""
    state = read_log(storage)
    collect = state.last_collect
    first = collect.first if collect is not None else 0
    dense = [n for n in state.numbers if n >= first]
    assert dense == list(range(first, state.last_number + 1)), "the log isn't dense"
    claim = None
    for number in dense:
        entry = state.entry(number)
        assert entry.number == number
        if isinstance(entry, Claim):
            assert entry.claim == number
            claim = number
        assert claim in (None, entry.claim), f"entry {number} is not of the claim in effect"
        claim = entry.claim
    counting = set(state.numbers) | {p.entry for p in read_pins(storage).values()}
    for number in counting.intersection(list_entries(storage)):
        entry = state.reader.read(number)
        if isinstance(entry, Checkpoint):
            missing = [name for name in entry.objects() if not storage.exists(name)]
            assert not missing, f"entry {number} names {missing}, which are gone"


def check_nothing_is_left_over(storage: Storage) -> None:
    """After a collection that was given every object: all that is there is needed."""
    state = read_log(storage)
    assert state.left_over == ()
    named = {name for checkpoint in state.checkpoints() for name in checkpoint.objects()}
    assert set(list_collectable(storage)) == named


class FlakyStorage(MemoryStorage):
    """A storage whose next creations can fail, lose their reply or be carried out later.

    Before each call, ``before`` is run: there a test lets other drivers act.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.faults: list[str] = []
        self.late: list[tuple[str, bytes]] = []
        self.before: Callable[[], object] = lambda: None

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        self.before()
        fault = self.faults.pop(0) if self.faults else ""
        if fault in ("fail", "late"):
            self.late += [(name, bytes(data))] * (fault == "late")
            raise StorageError(f"no reply for {name}")
        created = super().put_if_absent(name, data)
        if fault == "lose":
            raise StorageError(f"no reply for {name}")
        # A request that was repeated on the way finds what it has created itself.
        return created and fault != "repeat"

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self.before()
        return super().list(prefix)

    def get(self, name: str) -> bytes:
        self.before()
        return super().get(name)

    def delete(self, names: Iterable[str]) -> None:
        self.before()
        super().delete(names)

    def deliver(self) -> None:
        """Carry out what was late."""
        late, self.late = self.late, []
        for name, data in late:
            super().put_if_absent(name, data)
