"""Where checkpoints live."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
    "serve",
]

# One slash is how Hadoop writes a URL without a host (dbfs:/ck). One letter is a drive.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/|.*://")
_SUPPORTED = (
    "use a path (ck, /data/ck), file:///data/ck, hdfs://namenode:9000/ck, s3://bucket/ck, "
    "gs://bucket/ck, az://container/ck, or memory://name in tests"
)


_served: Mapping[str, Callable[[str], Storage]] = {
    "hdfs": HdfsStorage,
    "memory": lambda url: MemoryStorage(url.removeprefix("memory://")),
    **dict.fromkeys(ENVIRONMENT, ObjectStoreStorage),
}


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
    elif colon and scheme in _served and rest.startswith("//"):
        return _served[scheme](url)
    elif url and _URL.match(url) is None:
        return LocalStorage(url)
    raise ConfigurationError(
        f"{url!r} is no checkpoint storage that Holdfast knows", hint=_SUPPORTED
    )


@contextmanager
def serve(scheme: str, opened: Callable[[str], Storage]) -> Iterator[None]:
    """Have URLs of a scheme of one's own opened by this, in this process, until the block ends.

    >>> with serve("mine", lambda url: MemoryStorage("docs")):
    ...     open_storage("mine://anything")
    MemoryStorage('docs')
    """
    global _served
    before, _served = _served, {**_served, scheme: opened}
    try:
        yield
    finally:
        _served = before
