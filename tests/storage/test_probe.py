"""A storage that lets an object be created twice is found out, and nothing of the trial stays."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigurationError, StorageError
from holdfast.storage import LocalStorage, MemoryStorage, ObjectInfo, ObjectStoreStorage, Storage
from holdfast.storage.base import Buffer
from holdfast.storage.probe import check_creates_once, remove_old_probes


class Overwrites(MemoryStorage):
    """As a server that takes a conditional put for a plain one."""

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        self.put(name, data)
        return True


class OverwritesSilently(MemoryStorage):
    """As one that says that it has refused, and hasn't."""

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        created = not self.exists(name)
        self.put(name, data)
        return created


class LooksFirst(MemoryStorage):
    """As a client that looks before it asks such a server."""

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        return not self.exists(name) and self.create(name, data)

    def create(self, name: str, data: Buffer) -> bool:
        self.put(name, data)
        return True


_numbers = itertools.count()


@pytest.mark.parametrize("kind", [Overwrites, OverwritesSilently, LooksFirst])
def test_a_storage_that_creates_what_is_there_is_refused(kind: type[MemoryStorage]) -> None:
    storage = kind(f"probe-{next(_numbers)}")
    storage.put("log/other", b"x")
    with pytest.raises(ConfigurationError, match=rf"{storage.url} creates objects.*conditional"):
        check_creates_once(storage)
    assert [info.name for info in storage.list()] == ["log/other"]


def test_a_storage_that_refuses_is_fine_and_nothing_stays(tmp_path: Path) -> None:
    for storage in (LocalStorage(tmp_path / "ck"), MemoryStorage("probe-fine")):
        check_creates_once(storage)
        assert list(storage.list()) == []


def test_many_may_try_at_once(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "ck")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: check_creates_once(storage), range(40)))
    assert list(storage.list()) == []


def test_a_trial_that_fails_is_removed_as_far_as_it_goes() -> None:
    class Breaks(MemoryStorage):
        def create(self, name: str, data: Buffer) -> bool:
            raise StorageError("no reply")

    storage = Breaks("probe-breaks")
    with pytest.raises(StorageError, match="no reply"):
        check_creates_once(storage)
    assert list(storage.list()) == []


def test_what_killed_trials_left_is_removed_by_whoever_sweeps() -> None:
    class Old(MemoryStorage):
        def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
            for info in super().list(prefix):
                age = 90_000 if info.name.endswith("killed") else 0
                yield ObjectInfo(info.name, info.size_bytes, time.time() - age)

    storage: Storage = Old("probe-old")
    storage.put("log/probe-killed", b"first")
    storage.put("log/probe-of-another-driver", b"first")
    remove_old_probes(storage)
    assert [info.name for info in storage.list()] == ["log/probe-of-another-driver"]


class TakesAnyPut:
    """obstore's client of a server that doesn't look at the condition of a put."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, name: str, data: Any, *, mode: str = "", **options: Any) -> Any:
        del mode
        return self._store.put(name, data, **options)


def test_an_object_store_is_tried_past_the_clients_own_look(
    monkeypatch: pytest.MonkeyPatch, require: Callable[[str, str], None]
) -> None:
    require("obstore", "pip install 'holdfast[object-store]'")
    from obstore.store import MemoryStore

    store = MemoryStore()
    storage = ObjectStoreStorage("s3://bucket/ck")
    monkeypatch.setattr(storage, "_client", lambda size_bytes=0: store)
    check_creates_once(storage)
    monkeypatch.setattr(storage, "_client", lambda size_bytes=0: TakesAnyPut(store))
    assert not storage.put_if_absent("there", b"1") or not storage.put_if_absent("there", b"2")
    with pytest.raises(ConfigurationError, match="creates objects"):
        check_creates_once(storage)
    assert [info.name for info in storage.list()] == ["there"]
