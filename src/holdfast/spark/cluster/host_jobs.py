"""Jobs that do something once on each of some hosts, beside the epochs."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.driver.engine import HostGoneError
from holdfast.spark.cluster.host_watch import HostWatch
from holdfast.spark.jvm.hosts import LiveHosts
from holdfast.spark.jvm.losses import job_failed
from holdfast.spark.jvm.placed import Placer, answers, task_host
from holdfast.spark.session import in_background
from holdfast.tasks.disk import DiskReport
from holdfast.tasks.here import Here

__all__ = ["HostJobs"]


class HostJobs:
    """The jobs of one pipeline on the hosts that are alive."""

    def __init__(self, spark: SparkSession, hosts: LiveHosts, placer: Placer) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        self._watch = HostWatch(hosts)
        self._placer = placer
        self._tag = f"holdfast-hosts-{uuid.uuid4().hex}"

    def run(
        self, hosts: Sequence[str], task: Callable[[Here], DiskReport], what: str
    ) -> list[DiskReport]:
        """Do something on each host; ``JobFailedError``, ``HostGoneError`` if one of several goes."""

        def run(index: int) -> bytes:
            host = task_host() or hosts[index]
            return msgspec.json.encode(msgspec.structs.replace(task(Here(host)), host=host))

        described = f"{what} on {', '.join(hosts)}"
        try:
            numbers = self._placer.frame(self._spark.range(0, len(hosts), 1, len(hosts)), hosts)
            beside = in_background(self._context, described, self._tag)
            with beside, self.ended_without(hosts, what):
                said = answers(numbers, run)
        except (PySparkException, Py4JError) as error:
            raise job_failed(error) from error
        found = [msgspec.json.decode(each, type=DiskReport) for each in said]
        # A host may go and its task be given to another before anybody has looked who lives.
        away = {host for host, report in zip(hosts, found, strict=True) if report.host != host}
        if away and len(set(hosts)) > 1:
            raise _gone(away, what)
        return found

    def cancel(self) -> None:
        """End all that run."""
        self._context.cancelJobsWithTag(self._tag)

    @contextlib.contextmanager
    def ended_without(self, hosts: Iterable[str | None], what: str) -> Iterator[None]:
        """The jobs of this thread end, with ``HostGoneError``, when one of several hosts goes.

        While others of them live, Spark would keep the lost one's task waiting for it, as long as
        ``spark.locality.wait.node`` says. A task alone is given to another host, which does no harm.
        """
        tag = f"{self._tag}-{uuid.uuid4().hex}"
        named = {host for host in hosts if host is not None}
        gone: set[str] = set()

        def end_without(alive: frozenset[str]) -> None:
            gone.update(named - alive)
            if gone:  # Each time: the job may not have begun yet.
                self._context.cancelJobsWithTag(tag)

        self._context.addJobTag(tag)
        try:
            with self._watch.told(end_without) if len(named) > 1 else contextlib.nullcontext():
                yield
        except Exception as error:
            if gone:
                raise _gone(gone, what) from error
            raise
        finally:
            self._context.removeJobTag(tag)


def _gone(hosts: Iterable[str], what: str) -> HostGoneError:
    return HostGoneError(
        f"{what}: {', '.join(sorted(hosts))} is gone",
        hint="a pipeline that runs goes on with those left; repeat a start that met this",
    )
