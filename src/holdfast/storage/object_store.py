"""Checkpoint storage in an object store: S3 and what speaks like it, Google Cloud Storage, Azure.

A put is atomic there: an object is visible when it is complete. ``put_if_absent`` is a conditional
put, of which the store lets exactly one win; a mark in the object's metadata tells a writer whose
answer was lost, and who is told "exists" when trying again, that the object is its own.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from holdfast.errors import StorageError
from holdfast.failpoints import failpoint
from holdfast.storage.base import (
    Buffer,
    NotFoundError,
    ObjectInfo,
    Storage,
    check_name,
    check_prefix,
    check_range,
    is_safe_part,
)
from holdfast.storage.object_store_errors import is_missing_object, words_of
from holdfast.storage.object_store_url import ObjectStorePlace
from holdfast.storage.packages import require_package

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult
    from obstore.store import ClientConfig, S3Store

__all__ = ["ObjectStoreStorage"]

_MARK = "holdfast-mark"
_PIECE_BYTES = 16 * 2**20  # what one request moves
_PIECES_AT_ONCE = 4
_DELETE_AT_ONCE = 1000

# The clients of this process. Used before a fork, obstore hangs in the child for good (its threads
# are gone), so that is refused.
_clients: dict[tuple[object, ...], S3Store] = {}
_clients_of = 0


class ObjectStoreStorage(Storage):
    """Objects below a prefix of a bucket: ``s3://bucket/ck``, ``gs://bucket/ck``, ``az://container/ck``.

    Endpoint, region and credentials come from the environment of each process (``AWS_ENDPOINT_URL``,
    ``AWS_REGION``, ``AWS_ACCESS_KEY_ID``, …), never from the URL. The query takes ``timeout``, the
    limit of one request (30 unless told); a request is tried again until three times as long.

    >>> ObjectStoreStorage("s3://bucket/ck")
    ObjectStoreStorage('s3://bucket/ck')
    """

    packages = MappingProxyType({"obstore": (0, 10)})

    def __init__(self, url: str) -> None:
        self.place = ObjectStorePlace.of(url)
        self.url = self.place.url
        require_package("obstore", "object-store", self.url)

    def __repr__(self) -> str:
        return f"ObjectStoreStorage({self.url!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (ObjectStoreStorage, (self.url,))

    def get(self, name: str) -> bytes:
        """The whole object."""
        return self._read(name, 0, None)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Bytes ``start`` to ``start + length`` (less at the end of the object)."""
        check_range(start, length)
        return self._read(name, start, length)

    def put(self, name: str, data: Buffer) -> None:
        """Create or replace an object."""
        view = memoryview(data).cast("B")
        with self._errors("write", name, missing_is_error=True):
            failpoint("storage.object_store.before_put")
            # Above this size in parts, each within the time limit of a request.
            self._client().put(
                check_name(name), view, chunk_size=_PIECE_BYTES,
                use_multipart=len(view) > _PIECE_BYTES,
            )  # fmt: skip
            failpoint("storage.object_store.after_put")

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        """Create an object; False if there is one."""
        return not self.exists(name) and self.create(name, data)

    def create(self, name: str, data: Buffer) -> bool:
        """The same, without a look."""
        from obstore.exceptions import AlreadyExistsError

        mark = uuid.uuid4().hex
        view = memoryview(data).cast("B")
        with self._errors("write", name, missing_is_error=True):
            failpoint("storage.object_store.before_put")
            try:
                self._client(len(view)).put(
                    check_name(name), view, mode="create", attributes={_MARK: mark}
                )
            except AlreadyExistsError:
                return self._mark_of(name) == mark
            failpoint("storage.object_store.after_put")
        return True

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects whose name starts with ``prefix``, in order of name."""
        # Stores that obstore speaks to list whole folders only.
        folder, _, _ = check_prefix(prefix).rpartition("/")
        found = []
        with self._errors("list", prefix, missing_is_error=True):
            for chunk in self._client().list(folder or None, chunk_size=1000):
                for meta in chunk:
                    name = meta["path"]
                    if name.startswith(prefix) and all(map(is_safe_part, name.split("/"))):
                        when = meta["last_modified"].timestamp()
                        found.append(ObjectInfo(name, meta["size"], when))
        return iter(sorted(found, key=lambda info: info.name))

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that don't exist are no error."""
        wanted = [check_name(name) for name in dict.fromkeys(names)]
        for start in range(0, len(wanted), _DELETE_AT_ONCE):
            some = wanted[start : start + _DELETE_AT_ONCE]
            try:
                with self._errors("delete", some[0]):
                    self._client().delete(some)
            except NotFoundError:
                # Some stores object to what is missing: then one at a time.
                for name in some:
                    with contextlib.suppress(NotFoundError), self._errors("delete", name):
                        self._client().delete(name)

    def size(self, name: str) -> int:
        """The object's size in bytes."""
        with self._errors("look at", name):
            return int(self._client().head(check_name(name))["size"])

    def _read(self, name: str, start: int, length: int | None) -> bytes:
        """In pieces, each within the time limit of a request, all of the same object."""
        check_name(name)
        wanted = _PIECE_BYTES if length is None else min(length, _PIECE_BYTES)
        # Stores refuse ranges that are empty or begin behind the end.
        if wanted == 0 or (first := self._piece(name, start, start + wanted, None)) is None:
            self.size(name)
            return b""
        size = first.meta["size"]
        end = size if length is None else min(size, start + length)
        cuts = range(start + wanted, end, _PIECE_BYTES)
        with self._errors("read", name):
            begin = first.bytes().to_bytes()
        if not cuts:
            return begin

        def rest(cut: int) -> bytes:
            piece = self._piece(name, cut, min(cut + _PIECE_BYTES, end), first.meta["e_tag"])
            with self._errors("read", name):
                return b"" if piece is None else piece.bytes().to_bytes()

        with ThreadPoolExecutor(_PIECES_AT_ONCE) as pool:
            return b"".join([begin, *pool.map(rest, cuts)])

    def _piece(self, name: str, start: int, end: int, e_tag: str | None) -> GetResult | None:
        """A range of an object; None if it begins behind the end."""
        options: GetOptions = {"range": (start, end)}
        if e_tag is not None:
            options["if_match"] = e_tag
        with self._errors("read", name):
            try:
                return self._client().get(name, options=options)
            except Exception as error:
                refused = _is_the_stores(error) and "range" in str(error).lower()
                if refused and e_tag is None and start >= self.size(name):
                    return None
                raise

    def _mark_of(self, name: str) -> str | None:
        with self._errors("look at", name):
            attributes = self._client().get(name, options={"head": True}).attributes
        return attributes.get(_MARK)

    def _client(self, size_bytes: int = 0) -> S3Store:
        """The process's client; one with more patience for a large object in one request."""
        timeout_s = self.place.timeout_s
        while size_bytes > _PIECE_BYTES:
            timeout_s, size_bytes = timeout_s * 2, size_bytes // 2
        key = (self.place.address, timeout_s, self.place.settings(os.environ))
        if key not in _clients:
            _clients[key] = self._connect(timeout_s)
        elif _clients_of != os.getpid():
            raise StorageError(
                f"{self.url} was used in the process that this one was forked from",
                hint="start processes with multiprocessing's spawn, or use the storage only in them",
            )
        return _clients[key]

    def _connect(self, timeout_s: float) -> S3Store:
        global _clients_of
        from obstore.store import from_url

        _clients_of = os.getpid()
        options: ClientConfig = {
            "timeout": timedelta(seconds=timeout_s),
            "connect_timeout": timedelta(seconds=min(5, timeout_s)),
        }
        if self.place.is_plain_http(os.environ):
            options["allow_http"] = True
        with self._errors("open", self.place.address):
            # The classes of the other stores have the same methods.
            return cast(
                "S3Store",
                from_url(
                    self.place.address,
                    client_options=options,
                    retry_config={
                        "max_retries": 8,
                        "retry_timeout": timedelta(seconds=3 * timeout_s),
                    },
                ),
            )

    @contextlib.contextmanager
    def _errors(self, verb: str, name: str, *, missing_is_error: bool = False) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if not missing_is_error and is_missing_object(error):
                raise NotFoundError(name) from error
            raise self._error(verb, name, error) from error
        except Exception as error:
            if not _is_the_stores(error):
                raise
            raise self._error(verb, name, error) from error

    def _error(self, verb: str, name: str, error: Exception) -> StorageError:
        text, hint = words_of(error, self.place.scheme)
        return StorageError(f"can't {verb} {name!r} in {self.url}: {text}", hint=hint)


def _is_the_stores(error: Exception) -> bool:
    """Whether an error is the store's rather than ours: obstore has a root class of its own."""
    return isinstance(error, (OSError, ValueError)) or type(error).__module__.startswith("obstore")
