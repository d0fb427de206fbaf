"""Where checkpoints live."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.errors import ConfigurationError
from holdfast.storage.base import NotFoundError, ObjectInfo, Storage
from holdfast.storage.hdfs import HdfsStorage
from holdfast.storage.local import LocalStorage, check_no_home
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.object_store import ObjectStoreStorage
from holdfast.storage.object_store_url import ENVIRONMENT

__all__ = [
    "HdfsStorage",
    "LocalStorage",
    "MemoryStorage",
    "NotFoundError",
    "ObjectInfo",
    "ObjectStoreStorage",
    "Storage",
    "open_storage",
]

# One slash is how Hadoop writes a URL without a host (dbfs:/ck). One letter is a drive.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/|.*://")
_SUPPORTED = (
    "use a path (ck, /data/ck), file:///data/ck, hdfs://namenode:9000/ck, s3://bucket/ck, "
    "gs://bucket/ck, az://container/ck, or memory://name in tests"
)


def open_storage(url: str | Path) -> Storage:
    """The storage at a path or URL. Nothing is created or read yet.

    >>> open_storage("file:///data/check%20points")
    LocalStorage('/data/check points')
    >>> open_storage("memory://docs")
    MemoryStorage('docs')
    >>> open_storage("hdfs://nn:9000/ck?replication=3")
    HdfsStorage('hdfs://nn:9000/ck?replication=3')
    >>> open_storage("s3://bucket/ck")
    ObjectStoreStorage('s3://bucket/ck')
    """
    check_no_home(url)
    if isinstance(url, Path):
        return LocalStorage(url)
    scheme, colon, rest = url.partition(":")
    if colon and scheme == "file" and rest.startswith("/"):
        parts = urlsplit(url)
        if parts.netloc in ("", "localhost") and not parts.query and not parts.fragment:
            return LocalStorage(unquote(parts.path))
    elif colon and scheme == "memory" and rest.startswith("//"):
        return MemoryStorage(rest[2:])
    elif colon and scheme == "hdfs" and rest.startswith("//"):
        return HdfsStorage(url)
    elif colon and scheme in ENVIRONMENT and rest.startswith("//"):
        return ObjectStoreStorage(url)
    elif url and _URL.match(url) is None:
        return LocalStorage(url)
    raise ConfigurationError(
        f"{url!r} is no checkpoint storage that Holdfast knows", hint=_SUPPORTED
    )
