"""A server process: started with a log of its own, watched until it is ready, ended by its id."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["Daemon", "ServiceError", "cache_folder", "free_ports", "locked", "wait_until"]


class ServiceError(Exception):
    """A server can't be had or didn't come up; the message says why and what to do."""


def cache_folder(name: str) -> Path:
    """A folder for what is fetched once: below ``HOLDFAST_CACHE``, else the user's cache."""
    base = os.environ.get("HOLDFAST_CACHE")
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        base = str(Path(home) / "holdfast")
    folder = Path(base) / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process at a time: two test runs must not fill the same cache."""
    import fcntl

    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nothing listens on just now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def wait_until(ready: Callable[[], bool], what: str, within_s: float = 60) -> None:
    """Poll until ``ready()``; after ``within_s`` seconds that is an error about ``what``."""
    deadline = time.monotonic() + within_s
    while not ready():
        if time.monotonic() > deadline:
            raise ServiceError(f"{what} did not happen within {within_s:g} s")
        time.sleep(0.05)


class Daemon:
    """One server process. ``start`` returns at once; ``wait_ready`` polls its log for ``ready_text``.

    Reading the log rather than a port also works for a server in a network namespace of its own.
    ``prefix`` is put in front of the command: ``["ip", "netns", "exec", "lab-h1"]``. Every command
    in it must ``exec`` the next, so that ``pid`` is the server's.
    """

    name = "daemon"
    ready_text = ""

    def __init__(
        self, folder: Path, *, prefix: Sequence[str] = (), dies_with_parent: bool = True
    ) -> None:
        self.folder = Path(folder)
        self.prefix = list(prefix)
        self.dies_with_parent = dies_with_parent
        """The kernel kills it when the thread that started it ends: start it from the main thread."""
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def command(self) -> list[str]:
        """What to run."""
        raise NotImplementedError

    def variables(self) -> Mapping[str, str]:
        """Environment variables to add."""
        return {}

    @property
    def log(self) -> Path:
        """Everything the server says, over all its starts."""
        return self.folder / "logs" / f"{self.name}.log"

    @property
    def pid(self) -> int:
        """The process id."""
        if self._process is None:
            raise ServiceError(f"{self.name} has not been started")
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs (or is paused)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, without waiting."""
        if self.alive:
            raise ServiceError(f"{self.name} runs already, as process {self.pid}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [*self._dying_with_parent(), *self.prefix, *self.command()],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **self.variables()},
            )  # fmt: skip

    def wait_ready(self, within_s: float = 90) -> None:
        """Return when it serves; an error, with the end of its log, if it ends or takes too long."""

        def ready() -> bool:
            said = self.said()
            if self.ready_text in said:
                return True
            if not self.alive:
                raise ServiceError(f"{self.name} ended at start; {self.log} ends:\n{said[-2000:]}")
            return False

        wait_until(ready, f"{self.name} is ready ({self.log})", within_s)

    def said(self) -> str:
        """The log since the last start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def stop(self, *, kill: bool = True) -> None:
        """End it (SIGKILL unless told otherwise) and wait for that; no error if it has ended."""
        if self._process is None:
            return
        if self.alive:
            self.signal(signal.SIGKILL if kill else signal.SIGTERM)
        self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal: SIGSTOP pauses it (it keeps its connections), SIGCONT lets it go on."""
        os.kill(self.pid, number)

    def _dying_with_parent(self) -> list[str]:
        if not self.dies_with_parent or (setpriv := shutil.which("setpriv")) is None:
            return []
        return [setpriv, "--pdeathsig", "KILL"]
