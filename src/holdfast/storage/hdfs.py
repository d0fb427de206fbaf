"""Checkpoint storage in HDFS.

HDFS shows a file from the moment it is created, with nothing in it. An object is therefore written
under a temporary name in ``.tmp/``, closed, and then renamed to its own: without overwriting
(``put_if_absent``: of many racers the NameNode lets exactly one rename) or over what is there
(``put``). Every attempt has a temporary name of its own, so an attempt that was given up can do no
harm if it goes on later.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

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
from holdfast.storage.block_locations import Locator, WebHdfsLocator, hosts_of_all
from holdfast.storage.bounded import Progress, bounded
from holdfast.storage.hdfs_errors import fault_of
from holdfast.storage.hdfs_url import HdfsPlace
from holdfast.storage.hedged import hedged
from holdfast.storage.packages import require_package

if TYPE_CHECKING:
    from hdfs_native import Client, FileReader, FileStatus

__all__ = ["HdfsStorage"]

T = TypeVar("T")

_log = logging.getLogger(__name__)
_TEMPORARY = ".tmp"  # no object name may begin with a dot, so it can't clash
_CHUNK_BYTES = 2**20
_ATTEMPTS = 3  # at least
_PAUSE_S = 0.3
_STAGGER_S = 0.2  # several times what a small object takes
_QUEUE_BYTES = 2**23  # the client may take so much before a DataNode has any of it

# One client per process: used before a fork, it hangs in the child. Those of the parent are kept
# in the child too, since closing them there would hang as well.
_clients: dict[tuple[object, ...], Client] = {}
# Per cluster how many copies files have there unless told.
_usual: dict[str, int] = {}
# Per cluster until when (seconds since 1970) calls may meet hosts that are dead. Not per object:
# whoever recovers from a loss opens its storage anew.
_wary_until: dict[str, float] = {}


class HdfsStorage(Storage):
    """Objects as files below a folder of HDFS: ``hdfs://nn:9000/ck``.

    Options stand in the URL's query: ``replication`` (copies of each block), ``block`` (size of a
    block, 128 MiB unless told, so that most objects are one block), ``timeout`` (give an attempt up
    when nothing has moved for so long, 10 unless told), and ``web`` (the NameNode's HTTP address,
    for :meth:`locations`; port 9870 of the NameNode's host unless told).

    >>> HdfsStorage("hdfs://nn:9000/ck?replication=3").url
    'hdfs://nn:9000/ck?replication=3'
    """

    packages = MappingProxyType({"hdfs-native": (0, 14, 7)})

    def __init__(self, url: str) -> None:
        self.place = HdfsPlace.of(url)
        self.url = self.place.url
        require_package("hdfs_native", "hdfs", self.url)
        self.locator: Locator | None = WebHdfsLocator(self.place.web) if self.place.web else None
        """Who says which hosts hold a file. It isn't pickled: set your own on the driver."""
        self._located = True

    def __repr__(self) -> str:
        return f"HdfsStorage({self.url!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopened, (self.url, _wary_until.get(self.place.authority_url, 0.0)))

    @property
    def _wary(self) -> bool:
        return time.time() < _wary_until.get(self.place.authority_url, 0.0)

    def expect_faults(self, seconds: float) -> None:
        """Don't wait for an attempt at reading or writing that doesn't move: make others beside it."""
        _wary_until[self.place.authority_url] = time.time() + seconds

    def get(self, name: str) -> bytes:
        """The whole object."""
        return self._read(name, 0, None)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Bytes ``start`` to ``start + length`` (less at the end of the object)."""
        check_range(start, length)
        return self._read(name, start, length)

    def reader(self, name: str) -> Callable[[int, int], bytes]:
        """See :meth:`Storage.reader`: the NameNode is asked where the blocks are once, and after faults."""
        kept: builtins.list[FileReader] = []

        def read(start: int, length: int) -> bytes:
            check_range(start, length)
            return self._read(name, start, length, kept)

        return read

    def put(self, name: str, data: Buffer) -> None:
        """Create or replace an object."""
        self._write(name, data, overwrite=True)

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        """Create an object; False if there is one."""
        return not self.exists(name) and self.create(name, data)

    def create(self, name: str, data: Buffer) -> bool:
        """The same, without a look."""
        return self._write(name, data, overwrite=False)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects whose name starts with ``prefix``, in order of name."""
        folder, _, beginning = check_prefix(prefix).rpartition("/")
        return self._walk(f"{folder}/" if folder else "", beginning)

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that don't exist are no error."""
        for name in names:
            path = self._path(name)

            def delete(_: Progress, path: str = path) -> bool:
                return self._client().delete(path, False)

            with contextlib.suppress(NotFoundError):
                self._try("delete", name, delete)

    def size(self, name: str) -> int:
        """The object's size in bytes."""
        path = self._path(name)
        status = self._try("look at", name, lambda _: self._client().get_file_info(path))
        if status.isdir:
            raise NotFoundError(name)
        return status.length

    def locations(self, name: str) -> tuple[str, ...]:
        """The hosts that hold every block of the object.

        None if the NameNode doesn't say: where something runs is a matter of speed, so that is a
        warning (once) and not an error.
        """
        path = self._path(name)
        if self.locator is None:
            return ()
        try:
            hosts = hosts_of_all(self.locator(path))
        except (OSError, ValueError, LookupError) as error:
            if self._located:
                _log.warning("can't tell which hosts hold %s in %s: %s", name, self.url, error)
            self._located = False
            return ()
        self._located = True
        return hosts

    def sweep(self, older_than_s: float) -> int:
        """Remove temporary files that were begun longer ago than that.

        Should a writer be alive after all, its attempt fails and it tries again under a new name.
        """
        folder = self.place.path(_TEMPORARY)
        before_ms = (time.time() - older_than_s) * 1000
        removed = 0
        with contextlib.suppress(NotFoundError):
            for status in self._try("sweep", _TEMPORARY, self._lister(folder)):
                if status.modification_time <= before_ms:
                    removed += bool(self._remove(status.path))
        return removed

    # How it is done

    def _path(self, name: str) -> str:
        return self.place.path(check_name(name))

    def _read(
        self,
        name: str,
        start: int,
        length: int | None,
        kept: builtins.list[FileReader] | None = None,
    ) -> bytes:
        """Bytes of an object; with what is ``kept`` of it from reads before, which this one adds to."""
        path = self._path(name)
        attempts = itertools.count()

        def read(progress: Progress) -> bytes:
            if next(attempts) == 0 and kept:
                reader = kept[0]
            else:
                reader = self._client().read(path)
                if kept is not None:
                    kept[:] = [reader]
            size = len(reader)
            end = size if length is None else min(size, start + length)
            pieces = []
            for piece in reader.read_range_stream(start, end - start) if start < end else ():
                pieces.append(piece)
                progress.moved()
            return b"".join(pieces)

        return self._try("read", name, lambda progress: self._hedged(read, progress))

    def _write(self, name: str, data: Buffer, *, overwrite: bool) -> bool:
        """Write under a temporary name, then rename; whether the object is ours."""
        path = self._path(name)
        view = memoryview(data).cast("B")
        began = time.monotonic()
        left: builtins.list[str] = []
        renamed: builtins.list[str] = []

        def upload(progress: Progress) -> str:
            temporary = self.place.path(f"{_TEMPORARY}/{os.getpid()}-{uuid.uuid4().hex}")
            left.append(temporary)
            self._upload(temporary, view, self._copies(left, began), progress)
            return temporary

        def attempt(progress: Progress) -> bool:
            temporary = self._hedged(upload, progress, len(view))
            failpoint("storage.hdfs.before_rename")
            progress.moved()
            renamed.append(temporary)
            self._rename(temporary, path, overwrite)
            failpoint("storage.hdfs.after_rename")
            left.remove(temporary)
            return True

        try:
            written = self._try("write", name, attempt, missing_is_error=True)
        except FileExistsError:
            # An earlier attempt may have got through though its answer was lost.
            written = len(renamed) > 1 and self._was_ours(name, view, renamed)
        for temporary in left:
            # What can't be removed now, a sweep removes later.
            with contextlib.suppress(StorageError):
                self._remove(temporary)
        return written

    def _hedged(self, call: Callable[[Progress], T], progress: Progress, size_bytes: int = 0) -> T:
        """The call, beside itself when hosts were lost: another attempt talks to other DataNodes."""
        if not self._wary:
            return call(progress)
        # While the client's queue goes out at the end nothing seems to move: up to a second for it.
        stagger_s = _STAGGER_S + min(1.0, size_bytes / _QUEUE_BYTES)
        return hedged(call, progress, stagger_s, _is_final)

    def _copies(self, attempts: builtins.list[str], began: float) -> tuple[int | None, int | None]:
        """How many copies to write, and how many there should be in the end.

        The NameNode counts on a DataNode for some time after it is gone, and the client gives up
        when one of those it was told to write to doesn't answer. So later attempts write fewer
        copies, and HDFS makes the others by itself. ``attempts`` names the temporary files so far.
        A single copy is the last resort: the next DataNode to go might be the one that has it.
        When hosts were lost, first attempts write one copy less as well.
        """
        wanted = self.place.replication
        if len(attempts) == 1 and not self._wary:
            return wanted, wanted
        wanted = wanted or _usual.get(self.place.authority_url)
        if wanted is None:
            # The first attempt's file tells what HDFS is configured with.
            with contextlib.suppress(FileNotFoundError):
                wanted = self._client().get_file_info(attempts[0]).replication
        if wanted is None:
            return None, None
        if self.place.replication is None:
            _usual[self.place.authority_url] = wanted
        # By then the NameNode should have noticed who is gone.
        desperate = time.monotonic() - began > 1.5 * self.place.timeout_s
        return 1 if desperate else max(1, wanted - 1), wanted

    def _upload(
        self,
        temporary: str,
        view: memoryview,
        copies: tuple[int | None, int | None],
        progress: Progress,
    ) -> None:
        from hdfs_native import WriteOptions

        client, (now, later) = self._client(), copies
        options = WriteOptions(
            block_size=self.place.block_bytes, replication=now, overwrite=False, create_parent=True
        )
        # The inner writer: when an outer one that failed is collected as garbage, in whichever
        # thread that happens, it closes itself, which can take minutes.
        writer = client.inner.create(temporary, options)
        failpoint("storage.hdfs.write")
        for start in range(0, len(view), _CHUNK_BYTES):
            writer.write(bytes(view[start : start + _CHUNK_BYTES]))
            progress.moved()
        if view:
            with contextlib.suppress(NotImplementedError):  # erasure-coded folders can't
                writer.hsync()  # onto the DataNodes' disks, not only into their memory
        progress.moved()
        writer.close()
        progress.moved()
        if now != later and later is not None:
            _log.warning("%s was written with %s of %s copies for now", temporary, now, later)
            client.set_replication(temporary, later)
            progress.moved()

    def _rename(self, temporary: str, path: str, overwrite: bool) -> None:
        client = self._client()
        try:
            client.rename(temporary, path, overwrite)
        except FileNotFoundError:  # most likely the folder isn't there yet
            client.mkdirs(path.rpartition("/")[0] or "/", create_parent=True)
            client.rename(temporary, path, overwrite)

    def _was_ours(self, name: str, view: memoryview, mine: Iterable[str]) -> bool:
        """Whether the object that is there is one of those that we asked to be renamed to it.

        Then its temporary file is gone, and the bytes are ours.
        """
        gone = [path for path in mine if not self._is_there(path)]
        return bool(gone) and self.get(name) == view

    def _is_there(self, path: str) -> bool:
        try:
            self._try("look at", path, lambda _: self._client().get_file_info(path))
        except NotFoundError:
            return False
        return True

    def _remove(self, path: str) -> bool:
        return self._try("remove", path, lambda _: self._client().delete(path, False), retry=False)

    def _walk(self, folder: str, beginning: str) -> Iterator[ObjectInfo]:
        """Objects in ``folder`` (empty or ending in /) whose name there starts with ``beginning``."""
        found = {}
        with contextlib.suppress(NotFoundError):
            for status in self._try("list", folder, self._lister(self.place.path(folder))):
                last = status.path.rpartition("/")[2]
                if last.startswith(beginning) and is_safe_part(last):
                    # A folder sorts as "name/", where its objects belong in order of full names.
                    found[f"{last}/" if status.isdir else last] = status
        for last, status in sorted(found.items()):
            if status.isdir:
                yield from self._walk(folder + last, "")
            else:
                yield ObjectInfo(folder + last, status.length, status.modification_time / 1000)

    def _lister(self, folder: str) -> Callable[[Progress], builtins.list[FileStatus]]:
        def entries(progress: Progress) -> builtins.list[FileStatus]:
            found = []
            for status in self._client().list_status(folder):
                found.append(status)
                progress.moved()
            # Of a file, HDFS lists the file itself.
            return [s for s in found if s.path.rstrip("/") != folder.rstrip("/")]

        return entries

    def _try(
        self,
        verb: str,
        name: str,
        call: Callable[[Progress], T],
        *,
        retry: bool = True,
        missing_is_error: bool = False,
    ) -> T:
        """Run a call, again while its failure may pass: some times, and for some seconds."""
        began = time.monotonic()
        for attempt in itertools.count(1):
            try:
                return bounded(call, self.place.timeout_s)
            except (OSError, RuntimeError) as error:
                fault = fault_of(error)
                if fault.kind == "exists" and verb == "write":
                    raise FileExistsError(name) from error
                if fault.kind == "missing" and not missing_is_error:
                    raise NotFoundError(name) from error
                pause_s = min(_PAUSE_S * attempt, 2)
                if isinstance(error, TimeoutError):
                    self._forget_client()  # its connection may never speak again
                    pause_s = 0.0
                # Long enough that the NameNode has learnt which DataNodes are gone.
                patience_s = _ATTEMPTS * self.place.timeout_s
                tired = attempt >= _ATTEMPTS and time.monotonic() - began > patience_s
                if fault.is_final or tired or not retry:
                    raise StorageError(
                        f"can't {verb} {name!r} in {self.url}: {self._unreachable() or fault.text}",
                        hint=fault.hint,
                    ) from error
            time.sleep(pause_s)
        raise AssertionError("never left but by return or raise")

    def _unreachable(self) -> str:
        """Why the NameNode can't be reached, if that is so: its client doesn't tell."""
        if self.place.port is None:
            return ""
        try:
            with socket.create_connection((self.place.host, self.place.port), timeout=2):
                return ""
        except OSError as error:
            return f"the NameNode {self.place.host}:{self.place.port} can't be reached ({error})"

    def _client(self) -> Client:
        key = self._client_key()
        # Looked up once: another thread may forget it meanwhile.
        if (client := _clients.get(key)) is None:
            from hdfs_native import Client

            client = _clients[key] = Client(self.place.authority_url)
        return client

    def _client_key(self) -> tuple[object, ...]:
        settings = ("HADOOP_USER_NAME", "HADOOP_CONF_DIR", "HADOOP_HOME")
        return (os.getpid(), self.place.authority_url, *map(os.environ.get, settings))

    def _forget_client(self) -> None:
        _clients.pop(self._client_key(), None)


def _is_final(error: BaseException) -> bool:
    """Whether an attempt beside the one that failed so would do no better."""
    if not isinstance(error, (OSError, RuntimeError)):
        return True
    fault = fault_of(error)
    return fault.is_final or fault.kind != "other"


def _reopened(url: str, wary_until: float) -> HdfsStorage:
    """A storage that was sent from another process, and what that one knew of lost hosts."""
    storage = HdfsStorage(url)
    cluster = storage.place.authority_url
    _wary_until[cluster] = max(wary_until, _wary_until.get(cluster, 0.0))
    return storage
