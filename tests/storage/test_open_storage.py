from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from holdfast.errors import ConfigurationError
from holdfast.storage import (
    HdfsStorage,
    LocalStorage,
    MemoryStorage,
    ObjectStoreStorage,
    open_storage,
)
from holdfast.storage.hdfs_url import HdfsPlace
from holdfast.storage.object_store_url import ObjectStorePlace


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


@pytest.mark.parametrize("path", ["~/ck", "~", "~kelp/ck", Path("~/ck")])
def test_what_only_shells_expand_is_refused(path: str | Path) -> None:
    with pytest.raises(ConfigurationError, match=r"folder '~(kelp)?' .*os\.path\.expanduser\('~"):
        open_storage(path)


def test_memory_urls_open_memory_storage() -> None:
    assert isinstance(open_storage("memory://t"), MemoryStorage)


@pytest.mark.parametrize(
    "url", ["ftp://host/ck", "", "file://host/x", "http://b", "dbfs:/ck", "hdfs:/ck", "s3:/b/ck"]
)
def test_other_urls_are_refused_with_what_is_supported(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"file:///data/ck.*hdfs://.*s3://") as caught:
        open_storage(url)
    assert repr(url) in str(caught.value)


@pytest.mark.parametrize(
    "url", ["hdfs://nn:9000/ck", "hdfs://nameservice/ck?replication=3", "hdfs://nn:9000"]
)
def test_hdfs_urls_open_hdfs(url: str) -> None:
    storage = open_storage(url)
    assert isinstance(storage, HdfsStorage)
    assert storage.url == url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("hdfs:///ck", "no HDFS folder"),
        ("hdfs://user@nn:9000/ck", "names a user"),
        ("hdfs://nn:port/ck", "no valid port"),
        ("hdfs://nn:9000/ck?replicas=3", "unknown options: replicas"),
        ("hdfs://nn:9000/ck?replication=0", "replication"),
        ("hdfs://nn:9000/ck?block=big", "block can't be 'big'"),
        ("hdfs://nn:9000/ck?block=5", "block must be at least 1,048,576 bytes"),
        ("hdfs://nn:9000/ck?timeout=0s", "timeout can't be '0s'"),
        ("hdfs://nn:9000/ck?block_mb=1", "no option 'block_mb'. What to do: it is called block"),
    ],
)
def test_wrong_urls_are_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        open_storage(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://", "no object store"),
        ("s3:///ck", "no object store"),
        ("s3://key:secret@bucket/ck", "carries credentials"),
        ("s3://bucket/ck?secret_key=x", "options"),
        ("s3://bucket/ck?timeout=soon", "timeout can't be 'soon'"),
        ("s3://bucket/ck?timeout_s=5", "no option 'timeout_s'. What to do: it is called timeout"),
        ("gs://bucket/ck#x", "no object store"),
    ],
)
def test_wrong_urls_are_refused_and_secrets_not_repeated(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        open_storage(url)
    assert "secret@" not in str(caught.value)


def test_times_and_sizes_of_a_url_are_written_as_everywhere() -> None:
    for text, seconds in (("10s", 10), ("500ms", 0.5), ("1+minute", 60), ("7", 7), ("1.5", 1.5)):
        assert HdfsPlace.of(f"hdfs://nn/ck?timeout={text}").timeout_s == seconds
        assert ObjectStorePlace.of(f"s3://bucket/ck?timeout={text}").timeout_s == seconds
    for text, mib in (("64MiB", 64), ("1g", 1024), ("100MB", 95), (str(2 << 20), 2)):
        assert HdfsPlace.of(f"hdfs://nn/ck?block={text}").block_bytes == mib << 20
    plain = HdfsPlace.of("hdfs://nn/ck")
    assert (plain.timeout_s, plain.block_bytes) == (10, 128 << 20)
    assert ObjectStorePlace.of("s3://bucket/ck").timeout_s == 30


@pytest.mark.parametrize("url", ["gs://bucket/ck", "az://container/ck", "abfss://c@acc/ck"])
def test_other_clouds_open_too(url: str) -> None:
    assert isinstance(open_storage(url), ObjectStoreStorage)


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("hdfs://nn/ck", "hdfs_native", "hdfs"), ("s3://bucket/ck", "obstore", "object-store")],
)
def test_a_missing_package_is_told_with_the_command_that_installs_it(
    url: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the import system does for a name that isn't installed.
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, module, raising=False)
    importlib.invalidate_caches()
    with pytest.raises(ConfigurationError, match=re.escape(f"pip install 'holdfast[{extra}]'")):
        open_storage(url)
