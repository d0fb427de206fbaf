"""Work in other Python processes, in which nothing is left over from what was done before.

A helper is a Python with a hash seed of its own: where sets have another order. For each piece of
work it forks, so what the work changes is gone with it.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from holdfast.errors import InputError

__all__ = ["ElsewhereError", "Helper", "forked", "serve", "to_send"]


class ElsewhereError(Exception):
    """What was raised elsewhere: its words, and where."""

    def __init__(self, said: str, where: str) -> None:
        super().__init__(said)
        self.where = where


def forked(call: Callable[[], Any]) -> Any:
    """What a call comes to in a fork of this process; ``ElsewhereError`` if it raises."""
    ours, theirs = Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        _answer(theirs, call)
    theirs.close()
    try:
        good, answer = ours.recv()
    except EOFError:
        good, answer = False, ("its process died", "")
    finally:
        ours.close()
        os.waitpid(pid, 0)
    if not good:
        raise ElsewhereError(*answer)
    return answer


def _answer(to: Connection, call: Callable[[], Any]) -> None:
    """In the fork: answer, and end without what ends other processes."""
    try:
        answer: tuple[bool, Any] = (True, call())
    except ElsewhereError as error:
        answer = (False, (str(error), error.where))
    except BaseException as error:  # noqa: BLE001 - told to who has asked
        words = f"{type(error).__name__}: {error}"
        answer = (False, (words, traceback.format_exc()))
    try:
        to.send(answer)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


class Helper:
    """Another Python, which works for this one."""

    def __init__(self, hash_seed: int, about: bytes) -> None:
        """``about``: what its work is about, pickled."""
        self._pipe, theirs = Pipe()
        descriptor = theirs.fileno()
        self._process = subprocess.Popen(
            [
                sys.executable,
                *("-W", "ignore"),
                "-c",
                f"from holdfast.testing.elsewhere import serve; serve({descriptor})",
            ],
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            pass_fds=[descriptor],
            # With what it has forked it can be ended as one.
            start_new_session=True,
        )
        self.closed = False
        theirs.close()
        self._pipe.send(list(sys.path))
        self._pipe.send_bytes(about)

    def ask(self, work: Callable[..., Any], *arguments: Any, within_s: float) -> Any:
        """What ``work(about, *arguments)`` comes to there; ``ElsewhereError`` if it raises."""
        try:
            self._pipe.send((work, arguments))
            if not self._pipe.poll(within_s):
                self.close()
                raise ElsewhereError(f"it goes on after {within_s:.0f} s", "")
            good, answer = self._pipe.recv()
        except (EOFError, ConnectionError):
            self.close()
            raise ElsewhereError("its process died", "") from None
        if not good:
            raise ElsewhereError(*answer)
        return answer

    def close(self) -> None:
        """End it, whatever it does."""
        if not self.closed:
            self.closed = True
            self._pipe.close()
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def serve(descriptor: int) -> None:
    """Be a helper."""
    pipe = Connection(descriptor)
    sys.path[:] = pipe.recv()
    try:
        about = pickle.loads(pipe.recv_bytes())  # noqa: S301 - from who has started it
        while True:
            work, arguments = pipe.recv()
            try:
                answer: tuple[bool, Any] = (True, forked(lambda: work(about, *arguments)))  # noqa: B023
            except ElsewhereError as error:
                answer = (False, (str(error), error.where))
            pipe.send(answer)
    except (EOFError, ConnectionError):
        return
    except Exception as error:  # noqa: BLE001 - told to who has asked
        pipe.recv()
        pipe.send((False, (f"{type(error).__name__}: {error}", traceback.format_exc())))


def to_send(about: object, process: object) -> bytes:
    """Something with user code in it, as Spark's workers get it, if PySpark is there."""
    try:
        from holdfast.spark.cluster import shipping
    except ImportError:
        shipping = None  # type: ignore[assignment]
    try:
        if shipping is None:
            return pickle.dumps(about)
        shipping.send_along(process)
        return shipping.pickled(about)
    except Exception as error:
        raise InputError(
            f"{type(process).__name__} can't be sent to another Python process: "
            f"{type(error).__name__}: {error}",
            hint="a process is sent to Spark's workers, too: make what can't be pickled in open()",
        ) from error
