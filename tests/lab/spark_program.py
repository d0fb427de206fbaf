"""``spark_program.py FOLDER``: run a job on every host, say where, and stay until killed.

Each task leaves a file named after its host in FOLDER, the path of every host's own disk.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

HOSTS = 2


def main(folder: str) -> None:
    context = SparkSession.builder.getOrCreate().sparkContext
    deadline = time.monotonic() + 60
    # The driver's own block manager counts as one.
    while context._jsc.sc().getExecutorMemoryStatus().size() <= HOSTS:
        assert time.monotonic() < deadline, "not every host has an executor"
        time.sleep(0.1)

    def visit(_: Iterable[int]) -> Iterator[str]:
        import socket

        host = socket.gethostname()
        (Path(folder) / f"visited-{host}").touch()
        yield host

    print(json.dumps(sorted(context.parallelize(range(8), 8).mapPartitions(visit).collect())))
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
