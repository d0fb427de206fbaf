"""A driver without Spark: claims the log, then writes objects and checkpoints, publishes, collects.

Tests stop or kill it at failpoints, in a process of its own (:class:`Nursery`). They also run it in
their own process, as the other driver.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from holdfast import failpoints
from holdfast.checkpoint.log import Log
from holdfast.checkpoint.pins import read_pins
from holdfast.checkpoint.retention import (
    Retention,
    collect,
    finish_collection,
    list_collectable,
    plan_collection,
)
from holdfast.errors import FencedError
from holdfast.storage import Storage, open_storage
from tests.checkpoint.log_support import checkpoint_fields

RETENTION = Retention(keep_last=2)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def run(storage: Storage, driver: str, rounds: int) -> Log:
    log = Log.claim(storage, "orders", driver, now_ms=now_ms, nonce=lambda: secrets.token_hex(8))
    finish_collection(log, storage)
    newest = log.find_checkpoint()
    epoch = newest.epoch + 1 if newest is not None else 0
    in_use = [run.stored.object for run in newest.runs if run.stored] if newest else []
    for _ in range(rounds):
        # A run lives through three checkpoints; one attempt in two leaves an object unnamed.
        storage.put(f"runs/{log.claim_number}-{secrets.token_hex(8)}", b"failed attempt")
        name = f"runs/{log.claim_number}-{secrets.token_hex(8)}"
        storage.put(name, name.encode())
        in_use = [*in_use[-2:], name]
        log.append_checkpoint(**checkpoint_fields(epoch, in_use))
        log.check_not_fenced()
        # Nothing else is running here, so all that is unnamed can go.
        plan = plan_collection(
            log.state(),
            RETENTION,
            read_pins(storage),
            live_objects=in_use,
            now_ms=now_ms(),
            unnamed=list_collectable(storage),
        )
        if plan:
            collect(log, storage, plan)
        epoch += 1
    return log


class Nursery:
    """A process that has all modules loaded and forks a driver when it is told to.

    A driver's life is a few milliseconds; loading the modules would take a hundred times as long.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.checkpoint.log_driver"],
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, **order: Any) -> tuple[int, int]:
        """Start a driver (see :func:`obey`): its process id, and its status as ``os.waitpid`` has it.

        That is when it has ended, or when it was stopped; then :meth:`end` waits for its end.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self.end()

    def end(self) -> tuple[int, int]:
        assert self._process.stdout is not None
        pid, status = self._process.stdout.readline().split()
        return int(pid), int(status)

    def close(self) -> None:
        self._process.communicate(timeout=60)


def obey(
    root: str, driver: str, rounds: int, point: str, action: str, at: int, errors: str
) -> None:
    """What a driver of a :class:`Nursery` does."""
    failpoints.arm(point, action, at)
    try:
        run(open_storage(root), driver, rounds)
    except FencedError as error:
        Path(errors).write_text(f"{error}\n")
        raise


def main() -> None:
    """Fork a driver for each line, and print its id and its status, once it stops and once it ends."""
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            obey(**json.loads(line))
            return
        stopped = True
        while stopped:
            _, status = os.waitpid(pid, os.WUNTRACED)
            print(pid, status, flush=True)
            stopped = os.WIFSTOPPED(status)


if __name__ == "__main__":
    main()
