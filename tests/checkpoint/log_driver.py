"""A driver without Spark: claims the log, then writes objects and checkpoints, publishes, collects.

Run as ``python -m tests.checkpoint.log_driver DIRECTORY NAME ROUNDS``; tests stop or kill it at
failpoints. They also run it in their own process, as the other driver.
"""

from __future__ import annotations

import secrets
import sys
import time

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


if __name__ == "__main__":
    try:
        run(open_storage(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    except FencedError as error:
        sys.stderr.write(f"{error}\n")
        raise
