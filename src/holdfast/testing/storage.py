"""The conformance suite that every storage back end must pass.

Subclass it in a test module and say how to make an empty storage::

    import pytest
    from holdfast.storage import LocalStorage
    from holdfast.testing import StorageTests

    class TestLocalStorage(StorageTests):
        @pytest.fixture
        def storage(self, tmp_path):
            return LocalStorage(tmp_path / "ck")

Set ``crosses_processes = False`` if no other process can reach the objects, and the two sizes
lower where moving megabytes is slow. The module itself doesn't import pytest.
"""

from __future__ import annotations

import multiprocessing
import pickle
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from unittest import TestCase

from holdfast.errors import InputError
from holdfast.storage import NotFoundError, Storage, open_storage

__all__ = ["StorageTests"]

_raises = TestCase().assertRaises
_BAD_NAMES = (
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    "../a",
    "a/../b",
    ".",
    ".hidden",
    "a/.b",
    "-a",
    "a b",
    "ä",
)


class StorageTests:
    """What a storage must do, one behaviour per test; each gets an empty ``storage``.

    >>> import pytest
    >>> from holdfast.storage import LocalStorage
    >>> class TestLocalStorage(StorageTests):
    ...     @pytest.fixture
    ...     def storage(self, tmp_path):
    ...         return LocalStorage(tmp_path / "ck")
    """

    crosses_processes = True
    """Whether a storage that was pickled into another process reaches the same objects."""

    big_bytes = 10 * 2**20
    """The size of the largest object written."""

    racers = 8
    """How many threads race to create the same object; half as many processes do."""

    # What is put can be got

    def test_an_object_is_read_back_as_it_was_written(self, storage: Storage) -> None:
        """Every byte value survives."""
        data = bytes(range(256)) * 3
        storage.put("runs/1-a.parquet", data)
        assert storage.get("runs/1-a.parquet") == data
        assert storage.size("runs/1-a.parquet") == len(data)

    def test_any_buffer_can_be_written(self, storage: Storage) -> None:
        """Bytes, bytearrays and views, also of wider items, are written as their raw bytes."""
        storage.put("a", bytearray(b"one"))
        storage.put("b", memoryview(b"-two-")[1:4])
        storage.put("c", memoryview(b"12345678").cast("Q"))
        assert storage.put_if_absent("d", memoryview(b"-four-")[1:5])
        assert [storage.get(name) for name in "abcd"] == [b"one", b"two", b"12345678", b"four"]

    def test_an_object_may_be_empty(self, storage: Storage) -> None:
        """Empty is not absent."""
        storage.put("empty", b"")
        assert storage.put_if_absent("empty2", b"")
        assert storage.exists("empty")
        assert storage.size("empty") == 0
        assert storage.get("empty") == storage.get("empty2") == b""
        assert storage.get_range("empty", 0, 10) == b""
        assert not storage.put_if_absent("empty", b"full")

    def test_an_object_may_be_big(self, storage: Storage) -> None:
        """Larger than any buffer or single request along the way."""
        data = random.Random(7).randbytes(self.big_bytes)  # noqa: S311 - not for secrets
        storage.put("big", data)
        assert storage.get("big") == data
        assert storage.size("big") == len(data)
        middle = len(data) // 2
        assert storage.get_range("big", middle, 1000) == data[middle : middle + 1000]
        assert storage.put_if_absent("big2", data)
        assert storage.get("big2") == data

    def test_put_replaces(self, storage: Storage) -> None:
        """Longer and shorter objects replace what was there."""
        storage.put("a", b"first")
        storage.put("a", b"the second")
        assert storage.get("a") == b"the second"
        storage.put("a", b"3")
        assert storage.get("a") == b"3"
        assert storage.size("a") == 1

    def test_ranges(self, storage: Storage) -> None:
        """Ranges end with the object; none may be negative."""
        storage.put("a", b"0123456789")
        for read in (partial(storage.get_range, "a"), storage.reader("a")):
            assert read(0, 10) == b"0123456789"
            assert read(3, 4) == b"3456"
            assert read(8, 100) == b"89"
            assert read(5, 0) == b""
            assert read(10, 5) == b""
            assert read(99, 5) == b""
        for start, length in ((-1, 2), (0, -1)):
            with _raises(InputError):
                storage.get_range("a", start, length)

    def test_what_is_missing_is_not_found(self, storage: Storage) -> None:
        """Also before anything was ever written."""
        for _ in range(2):
            for name in ("a", "b", "a/b", "log/7.json"):
                assert not storage.exists(name)
                with _raises(NotFoundError):
                    storage.get(name)
                with _raises(NotFoundError):
                    storage.get_range(name, 0, 1)
                with _raises(NotFoundError):
                    storage.reader(name)(0, 1)
                with _raises(NotFoundError):
                    storage.size(name)
            storage.put("log/77.json", b"another")

    # Names

    def test_unsafe_names_are_refused(self, storage: Storage) -> None:
        """Nothing can be reached outside the storage, by any verb."""
        verbs: tuple[Callable[[str], object], ...] = (
            storage.get,
            lambda name: storage.get_range(name, 0, 1),
            lambda name: storage.put(name, b"x"),
            lambda name: storage.put_if_absent(name, b"x"),
            lambda name: storage.delete([name]),
            storage.exists,
            storage.size,
        )
        for name in _BAD_NAMES:
            for verb in verbs:
                with _raises(InputError, msg=f"{name!r} was accepted"):
                    verb(name)
        for prefix in ("/", "../", "a/../", ".h", "a//"):
            with _raises(InputError, msg=f"{prefix!r} was accepted"):
                list(storage.list(prefix))
        assert list(storage.list()) == []

    def test_names_may_be_deep_and_long(self, storage: Storage) -> None:
        """Two hundred characters a part, several parts, every safe character."""
        name = "/".join(["a" * 200, "B=1", "_x.y-z+0", "000"])
        storage.put(name, b"deep")
        assert storage.get(name) == b"deep"
        assert [info.name for info in storage.list("a" * 200)] == [name]

    def test_a_folder_is_no_object(self, storage: Storage) -> None:
        """Folders don't exist by themselves."""
        storage.put("log/7.json", b"x")
        assert not storage.exists("log")
        with _raises(NotFoundError):
            storage.get("log")
        storage.delete(["log"])
        assert storage.exists("log/7.json")

    # Listing

    def test_listing_is_in_order_of_full_names(self, storage: Storage) -> None:
        """As strings compare, wherever the slashes are."""
        names = ["a/b", "a-b", "a.b", "a0", "a+b", "aa/a", "aa/b/c", "A", "a_b", "log/10", "log/9"]
        for name in names:
            storage.put(name, name.encode())
        found = list(storage.list())
        assert [info.name for info in found] == sorted(names)
        assert [info.size_bytes for info in found] == [len(name) for name in sorted(names)]

    def test_listing_takes_any_prefix(self, storage: Storage) -> None:
        """A prefix is the beginning of a name, not necessarily a folder."""
        for name in ("log/007", "log/008", "log/017", "logs/1", "lo", "runs/1-a", "pins/x/y"):
            storage.put(name, b"x")
        listed = {
            prefix: [info.name for info in storage.list(prefix)]
            for prefix in ("log/", "log/00", "log", "log/007", "pins/", "pins/x/", "none", "runs/2")
        }
        assert listed == {
            "log/": ["log/007", "log/008", "log/017"],
            "log/00": ["log/007", "log/008"],
            "log": ["log/007", "log/008", "log/017", "logs/1"],
            "log/007": ["log/007"],
            "pins/": ["pins/x/y"],
            "pins/x/": ["pins/x/y"],
            "none": [],
            "runs/2": [],
        }

    def test_listing_tells_when_an_object_was_written(self, storage: Storage) -> None:
        """Within a day of this machine's clock (stores have their own)."""
        storage.put("a", b"x")
        (info,) = storage.list()
        assert abs(info.modified - time.time()) < 86_400

    def test_listing_shows_what_was_just_written_and_deleted(self, storage: Storage) -> None:
        """Listing is consistent: the log depends on it."""
        for i in range(20):
            storage.put_if_absent(f"log/{i:03}", b"x")
            assert [info.name for info in storage.list("log/")][-1] == f"log/{i:03}"
        for i in range(20):
            storage.delete([f"log/{i:03}"])
            assert len(list(storage.list("log/"))) == 19 - i

    # Deleting

    def test_delete(self, storage: Storage) -> None:
        """Several at a time, from any iterable; those that are missing are no error."""
        storage.delete(["never/was"])
        for name in ("a", "b/c", "b/d"):
            storage.put(name, b"x")
        storage.delete(name for name in ("b/c", "missing", "a", "a", "b/c/e"))
        assert [info.name for info in storage.list()] == ["b/d"]
        assert not storage.exists("a")
        storage.delete([])

    def test_a_deleted_name_can_be_created_again(self, storage: Storage) -> None:
        """Deleting leaves nothing that stands in the way."""
        assert storage.put_if_absent("a", b"1")
        storage.delete(["a"])
        assert storage.put_if_absent("a", b"2")
        assert storage.get("a") == b"2"

    # Creating

    def test_create_if_absent_changes_nothing_that_is_there(self, storage: Storage) -> None:
        """The first one stays, whether it was put or created."""
        assert storage.put_if_absent("a", b"first")
        assert not storage.put_if_absent("a", b"second")
        storage.put("b", b"first")
        assert not storage.put_if_absent("b", b"second")
        assert storage.get("a") == storage.get("b") == b"first"

    def test_of_many_threads_one_creates(self, storage: Storage) -> None:
        """For each of many names exactly one racer is told that it won, and its bytes are there."""
        start = threading.Barrier(self.racers)
        with ThreadPoolExecutor(self.racers) as pool:
            racers = [
                pool.submit(_race, storage, f"racer {i}", 40, start.wait)
                for i in range(self.racers)
            ]
            _check_race(storage, {f"racer {i}": f.result() for i, f in enumerate(racers)}, 40)

    def test_of_many_processes_one_creates(self, storage: Storage) -> None:
        """The same between processes, which share nothing but the storage."""
        if not self.crosses_processes:
            return
        count = max(2, self.racers // 2)
        spawn = multiprocessing.get_context("spawn")
        with spawn.Manager() as manager, ProcessPoolExecutor(count, mp_context=spawn) as pool:
            start = manager.Barrier(count)
            racers = [
                pool.submit(_race, storage, f"racer {i}", 40, start.wait) for i in range(count)
            ]
            _check_race(storage, {f"racer {i}": f.result() for i, f in enumerate(racers)}, 40)

    def test_an_object_is_visible_only_when_complete(self, storage: Storage) -> None:
        """Readers that look all the time find whole objects or none; replaced ones old or new."""
        size = self.big_bytes // 5
        written = threading.Event()

        def write() -> None:
            try:
                for i in range(10):
                    storage.put_if_absent(f"new/{i}", bytes([65 + i]) * size)
                    storage.put("replaced", bytes([65 + i]) * size)
            finally:
                written.set()

        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(write)
            while not written.is_set():
                for info in storage.list():
                    data = storage.get(info.name)
                    assert info.size_bytes == len(data) == size, f"{info.name} is not whole"
                    assert data == data[:1] * size, f"{info.name} is a mixture"
            writer.result()
        assert len(list(storage.list("new/"))) == 10
        assert storage.get("replaced")[:1] == b"J"

    # Opening again

    def test_a_pickled_storage_reaches_the_same_objects(self, storage: Storage) -> None:
        """It goes into tasks that way."""
        storage.put("a", b"x")
        again = pickle.loads(pickle.dumps(storage))  # noqa: S301 - our own bytes
        assert again.get("a") == b"x"
        assert again.url == storage.url
        again.put("b", b"y")
        assert storage.get("b") == b"y"

    def test_the_url_opens_the_same_objects(self, storage: Storage) -> None:
        """Configuration names storage by URL."""
        storage.put("a", b"x")
        assert open_storage(storage.url).get("a") == b"x"

    # Left-overs

    def test_sweeping_leaves_visible_objects(self, storage: Storage) -> None:
        """Whatever their age."""
        assert storage.sweep(0) == 0
        storage.put("a", b"x")
        storage.sweep(0)
        assert storage.get("a") == b"x"

    def test_locations_are_host_names(self, storage: Storage) -> None:
        """Or nothing, where that means nothing."""
        storage.put("a", b"x")
        assert all(isinstance(host, str) for host in storage.locations("a"))


def _race(storage: Storage, racer: str, names: int, start: Callable[[], object]) -> list[int]:
    """Try to create every name; the numbers of those won."""
    start()
    return [i for i in range(names) if storage.put_if_absent(f"race/{i}", racer.encode())]


def _check_race(storage: Storage, won: dict[str, list[int]], names: int) -> None:
    winners = {i: racer for racer, numbers in won.items() for i in numbers}
    assert sum(map(len, won.values())) == names, f"not one winner per name: {won}"
    assert winners == {i: storage.get(f"race/{i}").decode() for i in range(names)}
