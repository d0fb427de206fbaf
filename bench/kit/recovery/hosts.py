"""The lab of the experiment: two hosts that compute, one that only stores."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.lab.lab import AnyDaemon, Lab
from bench.lab.spark import SparkWorker
from bench.services.hadoop import DataNode

__all__ = ["CANDIDATES", "STORE", "SplitLab", "wait_for"]

CANDIDATES = ("h1", "h2")
STORE = "h3"
_NOTICE_S = 90.0
_POLL_S = 0.02


def wait_for(condition: Callable[[], bool], what: str, within_s: float) -> None:
    """Poll until it is so."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {within_s:.0f} s for {what}")
        time.sleep(_POLL_S)


class SplitLab(Lab):
    """``h1`` and ``h2`` run Spark, ``h3`` doesn't; who runs a DataNode can be changed.

    *local*: all three have one, and as many replicas are written, so both candidates have all state.
    *remote*: only ``h3`` has one; what its replicas hold reaches a candidate over its cable.
    """

    arrangement = "local"

    def __enter__(self) -> SplitLab:
        super().__enter__()
        return self

    def _daemons_of(self, host: str) -> list[AnyDaemon]:
        daemons = super()._daemons_of(host)
        if host == STORE:
            return [d for d in daemons if not isinstance(d, SparkWorker)]
        if host in CANDIDATES and self.arrangement == "remote":
            return [d for d in daemons if not isinstance(d, DataNode)]
        return daemons

    def arrange(self, arrangement: str) -> None:
        """Change who has replicas, and wait until the NameNode sees it so."""
        self.arrangement = arrangement
        for host in CANDIDATES:
            if arrangement == "remote":
                self.kill_datanode(host)
            else:
                self.start(host)
        wanted = {STORE} if arrangement == "remote" else {*CANDIDATES, STORE}
        wait_for(lambda: self._known_datanodes() == wanted, f"DataNodes {wanted}", _NOTICE_S)

    def _known_datanodes(self) -> set[str]:
        """Whom the NameNode would name as a holder: not only those it has just heard from."""
        assert self._hdfs is not None
        return {name.partition(":")[0] for name in self._hdfs._nodes()}

    def local_files(self, host: str, pipeline: str) -> dict[str, int]:
        """A pipeline's runs on a host's disk, in either form, with their sizes."""
        found = {}
        # os.walk passes over folders that vanish: those of older claims do.
        for folder, _, names in os.walk(self.disk(host) / pipeline):
            for name in names:
                if name.endswith((".run", ".parquet")):
                    with contextlib.suppress(FileNotFoundError):
                        size = (Path(folder) / name).stat().st_size
                        found[name.rpartition(".")[0]] = size
        return found

    def has_runs(self, host: str, pipeline: str, names: Iterable[str]) -> bool:
        """Whether all of these runs are on a host's disk."""
        here = self.local_files(host, pipeline)
        return all(name in here for name in names)

    def wipe(self, host: str, pipeline: str) -> None:
        """The host has lost what its disk had of a pipeline; HDFS's replicas are left."""
        shutil.rmtree(self.disk(host) / pipeline, ignore_errors=True)

    def spark_folder(self, host: str) -> Path:
        """Where Spark on this host keeps what it needs, RocksDB's files too."""
        return self._place.spark(host)
