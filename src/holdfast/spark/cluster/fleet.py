"""The hosts of a cluster, asked of Spark: who lives, and short jobs on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.driver.engine import GoneHost
from holdfast.placement.planner import Host
from holdfast.spark.cluster.executors import check_executors, check_shared
from holdfast.spark.cluster.host_jobs import HostJobs
from holdfast.spark.jvm.hosts import LiveHosts
from holdfast.spark.jvm.losses import host_is_lost
from holdfast.spark.jvm.placed import Placer
from holdfast.tasks.disk import DiskReport
from holdfast.tasks.here import Here

__all__ = ["SparkFleet"]


class SparkFleet:
    """The executors of one Spark application."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._live = LiveHosts(self._context)
        self._jobs = HostJobs(spark, self._live, Placer(self._context))

    def executors(self) -> frozenset[str]:
        """``host:port`` of every executor that is alive."""
        return self._live.executors()

    def hosts(self, executors: frozenset[str] | None = None) -> tuple[Host, ...]:
        """The hosts of these executors (by default of all that are alive), by name."""
        return self._live.hosts(executors)

    def gone(self, host: str) -> GoneHost:
        """What Spark says of the executor that this host lost last."""
        why = self._live.why_gone(host)
        return GoneHost(why, host_is_lost(why))

    def run(
        self, hosts: Sequence[str], task: Callable[[Here], DiskReport], what: str
    ) -> list[DiskReport]:
        """Do something on each host; ``JobFailedError``, ``HostGoneError`` if one of several goes."""
        return self._jobs.run(hosts, task, what)

    def ended_without(self, hosts: Iterable[str | None], what: str) -> AbstractContextManager[None]:
        """Jobs of this thread end in here, with ``HostGoneError``, when one of several hosts goes."""
        return self._jobs.ended_without(hosts, what)

    def check(
        self, hosts: Sequence[str], packages: Mapping[str, tuple[int, ...]], root: Path
    ) -> None:
        """Raise ``ConfigurationError`` unless every host's Python has what tasks import.

        And unless executors of one host see each other's files below ``root``.
        """
        with self.ended_without(hosts, "look for packages"):
            check_executors(self._context, hosts, packages)
        neighbours = self._live.neighbours()
        with self.ended_without(neighbours, "try shared disks"):
            check_shared(self._context, neighbours, root)

    def cancel(self) -> None:
        """End all jobs of :meth:`run`."""
        self._jobs.cancel()
