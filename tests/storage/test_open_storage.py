from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import ConfigurationError
from holdfast.storage import LocalStorage, MemoryStorage, open_storage


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("/data/ck", "/data/ck"),
        ("file:///data/ck", "/data/ck"),
        ("file:/data/ck", "/data/ck"),
        ("file://localhost/data/ck", "/data/ck"),
        ("file:///data/a%20b", "/data/a b"),
        ("/data/100%25:done", "/data/100%25:done"),
        (Path("/data/ck"), "/data/ck"),
    ],
)
def test_paths_and_file_urls_open_local_storage(url: str | Path, root: str) -> None:
    storage = open_storage(url)
    assert isinstance(storage, LocalStorage)
    assert storage.root == Path(root)
    again = open_storage(storage.url)
    assert isinstance(again, LocalStorage)
    assert again.root == storage.root


def test_a_relative_path_is_meant_from_here_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = open_storage("ck")
    monkeypatch.chdir("/")
    storage.put("a", b"x")
    assert (tmp_path / "ck" / "a").read_bytes() == b"x"


def test_memory_urls_open_memory_storage() -> None:
    assert isinstance(open_storage("memory://t"), MemoryStorage)


@pytest.mark.parametrize("url", ["s3://bucket/ck", "hdfs://n/ck", "", "file://host/x", "gs://b"])
def test_other_urls_are_refused_with_what_is_supported(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"file:///data/ck") as caught:
        open_storage(url)
    assert repr(url) in str(caught.value)
