"""Where partitions of a cluster run, and who has to be told when that changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.driver.cluster import ClusterSite
from holdfast.errors import ConfigurationError
from holdfast.placement.health import HostHealth
from holdfast.placement.planner import Host
from holdfast.spark.cluster.host_jobs import HostGoneError, HostJobs
from holdfast.spark.query import Query
from holdfast.state.hashing import partition_range
from holdfast.state.run import LocalForm, Run
from holdfast.state.version import Change, Version
from holdfast.tasks.disk import Found
from tests.spark.running_support import Pipeline


def drained(site: ClusterSite, version: Version, host: str) -> None:
    pipeline = Pipeline(every_epoch=False)
    pipeline.running.parts.cluster = site
    pipeline.running.ledger = cast("Any", SimpleNamespace(version=version))
    query = cast("Any", object.__new__(Query))
    query._running = pipeline.running
    query.drain(host)


class Site(ClusterSite):
    """A cluster of which only the names of its hosts are known, and which of them are alive."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
        self.alive = frozenset(hosts)
        live = SimpleNamespace(
            executors=lambda: self.alive,
            hosts=lambda _=None: tuple(Host(name, 2) for name in sorted(self.alive)),
            why_gone=lambda host: "worker lost",
        )
        monkeypatch.setattr("holdfast.driver.cluster.LiveHosts", lambda _: live)
        monkeypatch.setattr("holdfast.driver.cluster.Placer", lambda _: None)
        storage = SimpleNamespace(expect_faults=lambda _: None)
        spark = SimpleNamespace(sparkContext=None)
        super().__init__(cast(Any, spark), cast(Any, storage), Path("/nowhere"), HostHealth())
        self._present = self.alive


def test_an_epoch_has_asked_too_early_until_it_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    site, version = Site(monkeypatch, "h1", "h2"), Version(0)
    site.place(version, 2)
    assert not site.follow(version)
    assert not site.outdated
    site.alive = frozenset({"h1"})
    assert site.follow(version)
    assert not site.follow(version)
    assert site.outdated
    assert site.place(version, 2).hosts == ["h1", "h1"]
    assert not site.outdated


@pytest.mark.parametrize("stays_away", [True, False])
def test_a_claimed_pipeline_opens_on_those_left_when_a_host_goes_while_disks_are_looked_at(
    stays_away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, asked = Site(monkeypatch, "h1", "h2"), []
    site._present = frozenset()

    def run(_: HostJobs, hosts: Sequence[str], task: object, what: str) -> list[Found]:
        asked.append(tuple(hosts))
        if "h2" in hosts:
            site.alive = frozenset({"h1"} if stays_away else {"h1", "h2"})
            raise HostGoneError(f"{what}: h2 is gone")
        return [Found(host) for host in hosts]

    monkeypatch.setattr(HostJobs, "run", run)
    if stays_away:
        site.open(3, Version(0))
        assert asked == [("h1", "h2"), ("h1",)]
        assert site.place(Version(0), 2).hosts == ["h1", "h1"]
    else:
        with pytest.raises(HostGoneError, match="h2 is gone"):
            site.open(3, Version(0))
        assert len(asked) == 5


def test_a_host_is_not_drained_because_another_went_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site(monkeypatch, "h1", "h2", "h3")
    ranges = [partition_range(p, 3) for p in range(3)]
    forms = [LocalForm(1 << 20, "00", hosts=(host,)) for host in ("h1", "h2", "h2")]
    runs = [
        Run(f"0-0-{p}", "op.t", within, 0, 0, 1, local=form)
        for p, (within, form) in enumerate(zip(ranges, forms, strict=True))
    ]
    changes = [Change("op.t", run.range, (), run) for run in runs]
    version = Version(-1).apply(changes, 0)
    site.learn(changes, {})
    assert site.place(version, 3).hosts == ["h1", "h2", "h2"]
    site.health.drain("h1")
    site.plan_moves(version)
    assert site.must_move
    site.alive = frozenset({"h1", "h2"})
    site.follow(version)
    assert site.must_move
    site.follow(version)
    assert site.moving


def test_the_last_host_is_not_said_to_be_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    site, version = Site(monkeypatch, "h1"), Version(0)
    assert site.place(version, 2).hosts == ["h1", "h1"]
    with pytest.raises(ConfigurationError, match="h1 still has partitions: no other host"):
        drained(site, version, "h1")
    # Who has none is drained at once, for what comes later.
    drained(site, version, "h2")
    site.alive = frozenset({"h1", "h2"})
    site._present = site.alive
    site.health.undrain("h2")
    assert site.follow(version)
    drained(site, version, "h1")
