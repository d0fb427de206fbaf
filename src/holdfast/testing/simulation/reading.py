"""Somebody who reads a checkpoint while its pipeline goes on."""

from __future__ import annotations

from holdfast import runtime
from holdfast.checkpoint.entry import Checkpoint
from holdfast.checkpoint.pins import pin, unpin
from holdfast.checkpoint.reader import stored_tables
from holdfast.errors import ConfigurationError, CorruptionError, FormatError, StorageError
from holdfast.storage import NotFoundError
from holdfast.testing.simulation.store import SimulatedStore

__all__ = ["read_pinned"]

_ATTEMPTS = 20
_LASTS_MS = 600_000


def read_pinned(store: SimulatedStore, entry: Checkpoint, stays_s: float) -> str | None:
    """Pin a checkpoint, read it after a while, and let it go; what of it was gone (invariant 9), if any."""
    storage, name, now_ms = store.client(), runtime.new_id(), runtime.now_ms()
    try:
        pin(storage, entry.number, "reader", pin_id=name, now_ms=now_ms, lasts_ms=_LASTS_MS)
        runtime.sleep(stays_s)
        gone = sorted(name for name in entry.objects() if name not in store.objects)
        if gone:
            return f"entry {entry.number} is pinned, and {gone[0]} isn't there"
        for view in stored_tables(entry, storage).values():
            for _ in view.scan():
                runtime.sleep(0.0)
    except (ConfigurationError, CorruptionError, FormatError, StorageError, NotFoundError) as error:
        store.world.tell(f"reading fails, and says so: {error}")
    finally:
        _let_go(store, name)
    return None


def _let_go(store: SimulatedStore, name: str) -> None:
    for _ in range(_ATTEMPTS):
        try:
            unpin(store.client(), name)
        except StorageError:
            runtime.sleep(1.0)
        else:
            return
