"""Where checkpoints live."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.errors import ConfigurationError
from holdfast.storage.base import NotFoundError, ObjectInfo, Storage
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage

__all__ = [
    "LocalStorage",
    "MemoryStorage",
    "NotFoundError",
    "ObjectInfo",
    "Storage",
    "open_storage",
]

_SUPPORTED = "use a path (ck, /data/ck), file:///data/ck, or memory://name in tests"


def open_storage(url: str | Path) -> Storage:
    """The storage at a path or URL. Nothing is created or read yet.

    >>> open_storage("file:///data/check%20points")
    LocalStorage('/data/check points')
    >>> open_storage("memory://docs")
    MemoryStorage('docs')
    """
    if isinstance(url, Path):
        return LocalStorage(url)
    scheme, colon, rest = url.partition(":")
    if colon and scheme == "file" and rest.startswith("/"):
        parts = urlsplit(url)
        if parts.netloc in ("", "localhost") and not parts.query and not parts.fragment:
            return LocalStorage(unquote(parts.path))
    elif colon and scheme == "memory" and rest.startswith("//"):
        return MemoryStorage(rest[2:])
    elif url and "://" not in url:
        return LocalStorage(url)
    raise ConfigurationError(
        f"{url!r} is no checkpoint storage that Holdfast knows", hint=_SUPPORTED
    )
