"""Finds out whether a storage keeps its promise that of several who create an object one wins.

The log stands on it: a server that takes a conditional write for a plain one lets two drivers write the
same entry, and neither finds out.
"""

from __future__ import annotations

import contextlib

from holdfast import runtime
from holdfast.errors import ConfigurationError, StorageError
from holdfast.storage.base import NotFoundError, Storage

__all__ = ["check_creates_once", "remove_old_probes"]

# Among the entries, whose folder will be there anyway; their readers pass over other names.
_PREFIX = "log/probe-"
# Whoever tried that long ago is dead, whatever the clocks say.
_LEFT_ALONE_S = 86_400.0


def check_creates_once(storage: Storage) -> None:
    """Raise ``ConfigurationError`` if an object that is there can be created once more.

    Safe beside others that do the same: everybody tries with an object of his own, and removes it.

    >>> from holdfast.storage import MemoryStorage
    >>> check_creates_once(MemoryStorage("docs-probe"))
    """
    name = f"{_PREFIX}{runtime.new_id()}"
    try:
        # Whether this one counts as created is not the question: its answer may get lost and come again.
        storage.put_if_absent(name, b"first")
        later = [storage.put_if_absent(name, b"second"), storage.create(name, b"third")]
        there = storage.get(name)
    except NotFoundError as error:
        raise StorageError(
            f"an object that was just written to {storage.url} is not there: {error}",
            hint="a storage must show what was written at once; use another one",
        ) from error
    finally:
        with contextlib.suppress(StorageError):
            storage.delete([name])
    if any(later) or there != b"first":
        raise ConfigurationError(
            f"{storage.url} creates objects that are there already: two drivers could take the pipeline "
            "over at once, and overwrite each other's checkpoints",
            hint="use a storage with conditional writes (If-None-Match: * on S3), or a version of its "
            "server that has them; docs/storage.md says more",
        )


def remove_old_probes(storage: Storage) -> None:
    """Remove what those left behind who were killed while they tried."""
    before = runtime.now_ms() / 1000 - _LEFT_ALONE_S
    old = [info.name for info in storage.list(_PREFIX) if info.modified < before]
    if old:
        storage.delete(old)
