from __future__ import annotations

import itertools

import pytest

from holdfast.errors import ConfigurationError
from holdfast.storage import MemoryStorage
from holdfast.testing import StorageTests

_names = itertools.count()


class TestMemoryStorage(StorageTests):
    crosses_processes = False

    @pytest.fixture
    def storage(self) -> MemoryStorage:
        return MemoryStorage(f"suite-{next(_names)}")


def test_storages_of_one_name_are_one_and_of_two_names_are_two() -> None:
    MemoryStorage("mine").put("a", b"x")
    assert MemoryStorage("mine").get("a") == b"x"
    assert not MemoryStorage("yours").exists("a")


def test_a_name_must_fit_into_a_url() -> None:
    with pytest.raises(ConfigurationError, match="memory://"):
        MemoryStorage("a/b")
