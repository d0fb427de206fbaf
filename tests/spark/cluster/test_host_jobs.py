"""Jobs that need several hosts end when one of them goes, whoever notices it first.

Spark is stood in for: it keeps the tasks of a host that is gone waiting while other hosts of the job live.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from holdfast.checkpoint.ledger import Ledger
from holdfast.driver.background import BackgroundJobs
from holdfast.driver.cluster import ClusterSite
from holdfast.driver.engine import HostGoneError, JobFailedError, PassingFailure
from holdfast.placement.health import HostHealth
from holdfast.spark.cluster.fleet import SparkFleet
from holdfast.spark.cluster.host_jobs import HostJobs
from holdfast.spark.engine import SparkEngine
from holdfast.spark.jvm.placed import Placer
from holdfast.state.hashing import HashRange, partition_range
from holdfast.state.run import LocalForm, Run
from holdfast.state.version import Change, Version
from holdfast.tasks.disk import DiskReport

LONG_S = 60.0
TABLE = "op.groups"


class Context:
    """A job waits until it is cancelled by one of its tags."""

    def __init__(self) -> None:
        self.tags: set[str] = set()
        self.job: set[str] = set()
        self.cancelled = threading.Event()
        self._jsc = SimpleNamespace(sc=lambda: self)

    def getLocalProperties(self) -> Any:
        return SimpleNamespace(clone=lambda: set(self.tags))

    def setLocalProperties(self, tags: set[str]) -> None:
        self.tags = tags

    def addJobTag(self, tag: str) -> None:
        self.tags.add(tag)

    def removeJobTag(self, tag: str) -> None:
        self.tags.discard(tag)

    def cancelJobsWithTag(self, tag: str) -> None:
        if tag in self.job:
            self.cancelled.set()

    def setLocalProperty(self, name: str, value: str) -> None:
        pass

    def setJobDescription(self, words: str) -> None:
        pass

    def run_job(self) -> None:
        self.job = set(self.tags)
        assert self.cancelled.wait(LONG_S), "the job waits for a host that is gone"
        raise Py4JError("[SPARK_JOB_CANCELLED]")


class Fleet(SparkFleet):
    """Two hosts; which of them live, Spark isn't asked."""

    def __init__(self, context: Any, alive: list[str]) -> None:
        live = SimpleNamespace(
            hosts=lambda _=None: [SimpleNamespace(name=name) for name in alive],
            neighbours=lambda: {name: ["0", "1"] for name in alive},
        )
        spark = SimpleNamespace(sparkContext=context)
        self._context, self._live = context, cast(Any, live)
        self._jobs = HostJobs(cast(Any, spark), cast(Any, live), cast(Any, None))


class Engine(SparkEngine):
    """Has nothing but such hosts."""

    def __init__(self, context: Any, fleet: Fleet) -> None:
        self.host, self._fleet, self._tag = "driver", fleet, "holdfast-background-p-0"
        self.spark = cast(Any, SimpleNamespace(sparkContext=context, range=lambda *_: None))


class Site(ClusterSite):
    """Each host has half of the state."""

    def __init__(self, fleet: Fleet) -> None:
        storage = cast(Any, SimpleNamespace(packages={}))
        super().__init__(fleet, storage, Path("/nowhere"), HostHealth())

    @property
    def folder(self) -> Any:
        return SimpleNamespace(parent=SimpleNamespace(name="p"))

    def host_for(self, runs: Any, within: HashRange) -> str:
        return "h1" if within.first == 0 else "h2"


def test_a_store_job_ends_when_a_host_goes_that_an_epoch_was_the_first_to_miss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context, alive = Context(), ["h1", "h2"]

    def answers(*_: Any) -> list[bytes]:
        alive.remove("h2")
        context.run_job()
        return []

    placer = SimpleNamespace(frame=lambda numbers, hosts: numbers)
    monkeypatch.setattr("holdfast.spark.engine.Placer", lambda _: placer)
    monkeypatch.setattr("holdfast.spark.engine.answers", answers)
    halves = [partition_range(p, 2) for p in range(2)]
    runs = [Run(f"0-0-{h.first}", TABLE, h, 0, 0, 1, local=LocalForm(1, "00")) for h in halves]
    changes = [Change(TABLE, run.range, (), run) for run in runs]
    version = Version(-1).apply(changes, 0)
    fleet = Fleet(context, alive)
    engine, site = Engine(context, fleet), Site(fleet)
    jobs = BackgroundJobs(
        engine=engine,
        ledger=Ledger(version),
        storage=cast(Any, None),
        schemas={},
        claim=0,
        site=site,
        partitions=2,
    )
    result = jobs.store(version, None)
    assert result.error is not None
    assert "h2 is gone" in str(result.error)
    assert not context.tags


def test_a_look_at_hosts_that_is_ended_with_its_epoch_fails_as_jobs_of_epochs_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It runs on the epoch's thread, if that is the first to meet a host, and is of the epoch's group."""
    context = Context()

    def answers(*_: Any) -> list[bytes]:
        raise Py4JError("Job 7 cancelled part of cancelled job group 3f")

    monkeypatch.setattr("holdfast.spark.cluster.host_jobs.answers", answers)
    spark = SimpleNamespace(sparkContext=context, range=lambda *_: None)
    placer = SimpleNamespace(frame=lambda numbers, hosts: numbers)
    live = SimpleNamespace(hosts=lambda: [SimpleNamespace(name="h1")])
    jobs = HostJobs(cast(Any, spark), cast(Any, live), cast(Any, placer))
    with pytest.raises(JobFailedError, match="cancelled") as failed:
        jobs.run(["h1"], lambda _: DiskReport(), "look at local disks")
    assert failed.value.passing is PassingFailure.CANCELLED
    assert not context.tags


@pytest.mark.parametrize(("asked", "ran"), [(["h1", "h2"], ["h1", "h1"]), (["h2"], ["h1"])])
def test_a_task_of_several_hosts_that_ran_elsewhere_says_that_its_host_is_gone(
    asked: list[str], ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark may give it to another host before anybody has looked who lives; one alone wants any host."""

    def answers(*_: Any) -> list[bytes]:
        return [msgspec.json.encode(DiskReport(host)) for host in ran]

    monkeypatch.setattr("holdfast.spark.cluster.host_jobs.answers", answers)
    spark = SimpleNamespace(sparkContext=Context(), range=lambda *_: None)
    placer = SimpleNamespace(frame=lambda numbers, hosts: numbers)
    live = SimpleNamespace(hosts=lambda: [SimpleNamespace(name=name) for name in asked])
    jobs = HostJobs(cast(Any, spark), cast(Any, live), cast(Any, placer))
    if len(asked) > 1:
        with pytest.raises(HostGoneError, match="h2 is gone"):
            jobs.run(asked, lambda _: DiskReport(), "look at local disks")
    else:
        assert jobs.run(asked, lambda _: DiskReport(), "fetch runs") == [DiskReport("h1")]


@pytest.mark.parametrize("check", ["check_executors", "check_shared"])
@pytest.mark.parametrize("stays_away", [True, False])
def test_a_start_goes_on_with_those_left_when_a_host_goes_while_hosts_are_checked(
    check: str, stays_away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, alive, asked = Context(), ["h1", "h2"], []
    site = Site(Fleet(context, alive))

    def checked(*_: Any) -> None:
        asked.append(tuple(alive))
        if not stays_away or len(asked) == 1:
            alive.remove("h2")
            context.cancelled.clear()
            try:
                context.run_job()
            finally:
                alive.extend([] if stays_away else ["h2"])

    for name in ("check_executors", "check_shared"):
        does = checked if name == check else lambda *_: None
        monkeypatch.setattr(f"holdfast.spark.cluster.fleet.{name}", does)
    monkeypatch.setattr(HostJobs, "run", lambda *_: [])
    if stays_away:
        site.check()
        assert asked == [("h1", "h2"), ("h1",)]
    else:
        with pytest.raises(HostGoneError, match="h2 is gone"):
            site.check()
        assert len(asked) == 5


@pytest.mark.spark
def test_a_users_thread_has_its_own_jobs_to_itself_when_hosts_have_been_looked_at(
    spark: SparkSession,
) -> None:
    """A start looks at hosts from the user's thread, and Spark's for the epochs inherits what it has."""
    context, placer = spark.sparkContext, Placer(spark.sparkContext)
    host = SimpleNamespace(name=str(context.getConf().get("spark.driver.host")))
    hosts = SimpleNamespace(hosts=lambda: [host])
    context.addJobTag("mine")
    context.setJobDescription("what I do")
    try:
        before = dict(context._jsc.sc().getLocalProperties())
        jobs = HostJobs(spark, cast(Any, hosts), placer)
        assert jobs.run([host.name], lambda _: DiskReport(seconds=1.0), "look") == [
            DiskReport(host.name, seconds=1.0)
        ]
        assert dict(context._jsc.sc().getLocalProperties()) == before
    finally:
        context.clearJobTags()
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
