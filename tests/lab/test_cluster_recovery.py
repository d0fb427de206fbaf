"""Hosts, executors and drivers of a real cluster die, are cut off, come and go: results stay right.

One lab and one pipeline for all tests: each begins with every host up and leaves results behind
that are checked against batch. The order of the tests doesn't matter.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.lab import Lab
from bench.services.daemon import wait_until
from holdfast.errors import FencedError
from tests.lab.cluster_faults import check_nothing_is_left
from tests.lab.cluster_support import Cluster, Driver, DriverEndedError, hosts_of, load_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("lab_parts")]

ROWS = 6_000
KEYS = 3_000
# Enough that state over the wire can't be taken for control traffic.
MANY_KEYS = 300_000


class Pipeline:
    """The pipeline that all tests share, with a driver whenever one is asked for."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.lab = cluster.lab
        self._driver: Driver | None = None

    def ready(self) -> Driver:
        """A driver, every host with partitions, and a checkpoint with all that has come in."""
        self.cluster.everyone_is_back()
        if self._driver is None or not self._driver.alive:
            self._driver = self.cluster.start()
        driver = self._driver
        self.settled(driver)
        self.process(driver)
        wait_until(lambda: not driver.look()["moving"], "the end of handovers", 90)
        return driver

    def settled(self, driver: Driver) -> None:
        """Wait until Spark has an executor on every host."""
        workers = list(self.lab.workers)
        wait_until(lambda: driver.look()["hosts"] == workers, "executors on every host", 90)

    def process(self, driver: Driver) -> None:
        """One more epoch, into a checkpoint."""
        self.cluster.add(ROWS, KEYS)
        driver.ask("run")

    def unsaved(self, driver: Driver) -> None:
        """One more epoch, into no checkpoint: its runs are on their hosts' disks alone."""
        self.cluster.add(ROWS, KEYS)
        driver.ask("epochs")

    def replaced(self, driver: Driver) -> None:
        """Another driver runs the pipeline from now on."""
        self._driver = driver

    def close(self) -> None:
        """The lab goes down: the driver needs no goodbye."""
        if self._driver is not None:
            self._driver.kill()

    def busy_host(self, driver: Driver) -> str:
        """A host that has partitions."""
        return hosts_of(driver.look()["placement"])[0]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    folder = tmp_path_factory.mktemp("cluster")
    with Lab(folder / "lab", hosts=3, hdfs=True, cores=1, memory="512m") as lab:
        cluster = Cluster(lab, folder / "work")
        cluster.add(MANY_KEYS, MANY_KEYS, first=KEYS)
        pipeline = Pipeline(cluster)
        yield pipeline
        pipeline.close()


def rollbacks(seen: dict[str, Any]) -> list[str]:
    """Why the pipeline went back to its last checkpoint, each time."""
    return [r["reason"] for r in seen["recoveries"] if "stop" in r["seconds"]]


def test_an_executor_dies_in_mid_stream_and_its_host_opens_its_runs_again(
    pipeline: Pipeline,
) -> None:
    driver = pipeline.ready()
    pipeline.unsaved(driver)
    before = driver.look()
    driver.ask("patience 60")
    driver.ask("announce epoch.start")
    for _ in range(3):
        pipeline.cluster.add(ROWS, KEYS)
    driver.send("run")
    driver.await_event("epoch.start")
    assert pipeline.lab.kill_executors(hosts_of(before["placement"])[0]) == 1
    driver.answer()
    driver.ask("patience 8")
    after = driver.look()
    assert after["claim"] == before["claim"], "it went back to a checkpoint"
    assert hosts_of(after["placement"]) == hosts_of(before["placement"])
    assert sum(after["fetched_bytes"]) == sum(before["fetched_bytes"])
    pipeline.cluster.check()


def test_a_host_dies_with_runs_that_no_checkpoint_holds(pipeline: Pipeline) -> None:
    driver = pipeline.ready()
    pipeline.unsaved(driver)
    before = driver.look()
    pipeline.lab.kill(dead := hosts_of(before["placement"])[0])
    pipeline.process(driver)
    after = driver.look()
    assert after["claim"] > before["claim"]
    assert len(rollbacks(after)) == len(rollbacks(before)) + 1
    assert dead not in hosts_of(after["placement"])
    pipeline.cluster.check()


def test_partitions_of_a_dead_host_move_to_replicas_of_their_state_and_nothing_goes_over_the_wire(
    pipeline: Pipeline,
) -> None:
    driver = pipeline.ready()
    driver.ask("checkpoint")
    before = driver.look()
    dead = hosts_of(before["placement"])[0]
    left = [host for host in pipeline.lab.workers if host != dead]
    received = {host: pipeline.lab.bytes(host)[0] for host in left}
    pipeline.lab.kill(dead)
    # Nothing comes in: hosts are followed between epochs too.
    known = len(before["recoveries"])
    wait_until(lambda: _fetched_since(driver, known), "all state is on the hosts left", 90)
    wire = {host: pipeline.lab.bytes(host)[0] - received[host] for host in left}
    moved = _stored_bytes_of(before, dead)
    assert moved > 1_000_000
    assert max(wire.values()) < moved / 4, f"{wire} over the wire for {moved} bytes of state"
    assert driver.look()["claim"] == before["claim"], "it went back to a checkpoint"

    pipeline.process(driver)
    after = driver.look()
    assert set(hosts_of(after["placement"])) == set(left)
    assert all(placed["remote_bytes"] == 0 for placed in after["placement"]), after["placement"]
    found = pipeline.cluster.check()
    for host in left:
        assert host in found["placement"][1]


def _fetched_since(driver: Driver, known: int) -> bool:
    return any("fetch" in r["seconds"] for r in driver.look()["recoveries"][known:])


def _stored_bytes_of(seen: dict[str, Any], host: str) -> int:
    share = load_of(seen["placement"])[host] / len(seen["placement"])
    return int(share * sum(size or 0 for size in seen["runs"].values()))


def test_jobs_on_several_hosts_end_when_one_of_them_dies(pipeline: Pipeline) -> None:
    driver = pipeline.ready()
    dead = pipeline.busy_host(driver)
    begun = pipeline.cluster.work / f"waits-on-{dead}"
    driver.send(f"wait_on {dead}")
    wait_until(begun.exists, "the task that never ends", 90)
    pipeline.lab.kill(dead)
    words = driver.answer()
    assert words.startswith(f"wait: {dead} is gone. What to do: ")
    assert "repeat a start" in words
    before = driver.look()
    driver.ask("gone_once")
    pipeline.process(driver)
    after = driver.look()
    assert after["claim"] == before["claim"]
    assert dead not in hosts_of(after["placement"])
    pipeline.cluster.check()


def test_a_restarted_driver_finds_local_runs_by_name_and_checksum(pipeline: Pipeline) -> None:
    driver = pipeline.ready()
    placement = driver.look()["placement"]
    driver.kill()
    driver = pipeline.cluster.start()
    pipeline.replaced(driver)
    pipeline.process(driver)
    seen = driver.look()
    assert seen["fetched_bytes"] == [0]
    assert hosts_of(seen["placement"]) == hosts_of(placement)
    for placed in seen["placement"]:
        assert placed["local_bytes"] > 0
        assert placed["remote_bytes"] == 0
        assert "on its disk" in placed["why"]
    pipeline.cluster.check()


@pytest.mark.soak
def test_an_executor_and_another_host_die_at_once(pipeline: Pipeline) -> None:
    driver = pipeline.ready()
    pipeline.unsaved(driver)
    hosts = sorted(set(hosts_of(driver.look()["placement"])))
    driver.ask("announce epoch.start")
    pipeline.cluster.add(ROWS, KEYS)
    driver.send("run")
    driver.await_event("epoch.start")
    pipeline.lab.kill_executors(hosts[0])
    pipeline.lab.kill(hosts[1])
    driver.answer()
    seen = driver.look()
    assert hosts[1] not in hosts_of(seen["placement"])
    pipeline.cluster.check()


@pytest.mark.soak
def test_another_host_dies_during_recovery(pipeline: Pipeline) -> None:
    driver = pipeline.ready()
    # What was written soon after a loss has a copy less at first, and two hosts are about to go.
    wait_until(lambda: pipeline.lab.copies_to_make() == 0, "all copies in HDFS", 90)
    pipeline.unsaved(driver)
    before = driver.look()
    go = pipeline.cluster.work / "go"
    go.unlink(missing_ok=True)
    driver.ask("pause start.claimed")
    first, second = sorted(set(hosts_of(before["placement"])))[:2]
    pipeline.cluster.add(ROWS, KEYS)
    driver.send("run")
    pipeline.lab.kill(first)
    driver.await_event("start.claimed")
    pipeline.lab.kill(second)
    go.touch()
    driver.answer()
    after = driver.look()
    assert after["claim"] > before["claim"]
    assert not {first, second} & set(hosts_of(after["placement"]))
    # With two of three DataNodes down, what was written meanwhile may have no copy that is up.
    pipeline.cluster.everyone_is_back()
    pipeline.cluster.check()


@pytest.mark.soak
def test_a_host_joins_and_another_is_drained(pipeline: Pipeline) -> None:
    driver = pipeline.ready()
    gone = pipeline.lab.workers[-1]
    pipeline.lab.kill(gone)
    pipeline.process(driver)
    assert gone not in hosts_of(driver.look()["placement"])
    pipeline.ready()
    drained = pipeline.busy_host(driver)
    driver.ask(f"drain {drained}")
    pipeline.process(driver)
    seen = driver.look()
    assert drained not in hosts_of(seen["placement"])
    assert gone in hosts_of(seen["placement"])
    # It can go now: nothing is lost with it.
    claim = seen["claim"]
    pipeline.lab.kill(drained)
    pipeline.process(driver)
    assert driver.look()["claim"] == claim
    driver.ask(f"undrain {drained}")
    pipeline.cluster.check()


def test_tasks_of_a_cut_host_that_end_late_change_nothing(pipeline: Pipeline) -> None:
    """Its Python workers are stopped just before they report, and go on when all is over."""
    driver = pipeline.ready()
    driver.stop()
    points = {"spark.executorEnv.HOLDFAST_FAILPOINTS": "task.before_report=stop"}
    driver = pipeline.cluster.start(conf=points)
    pipeline.replaced(driver)
    lab = pipeline.lab
    with _Waker(lab) as waker:
        pipeline.process(driver)
        cut = pipeline.busy_host(driver)
        # New workers stop again: those of executors that were started again.
        lab.kill_executors(cut)
        waker.spare(cut)
        pipeline.cluster.add(ROWS, KEYS)
        driver.send("run")
        wait_until(lambda: bool(stopped(lab, cut)), "a task that is about to report", 90)
        late = stopped(lab, cut)
        lab.cut(cut)
        driver.answer()
        after = driver.look()
        assert cut not in hosts_of(after["placement"])
        pipeline.cluster.check()
        lab.heal(cut)
        for pid in late:
            resume(pid)
        waker.spare(None)
        wait_until(lambda: not late & stopped(lab, cut), "the end of late tasks")
        pipeline.process(driver)
    pipeline.cluster.check()


class _Waker:
    """Lets stopped workers of all hosts but one go on, all the time."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._spared: str | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._wake, daemon=True)

    def __enter__(self) -> _Waker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._spared = None
        self._over.set()
        self._thread.join()

    def spare(self, host: str | None) -> None:
        self._spared = host

    def _wake(self) -> None:
        while not self._over.wait(0.1):
            for host in self._lab.workers:
                if host != self._spared:
                    for pid in stopped(self._lab, host):
                        resume(pid)


def stopped(lab: Lab, host: str) -> set[int]:
    """Processes of a host that SIGSTOP has stopped."""
    found = set()
    for pid in lab.commands(host):
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        if status.rpartition(")")[2].split()[0] == "T":
            found.add(pid)
    return found


def resume(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return


def test_a_driver_that_was_cut_off_commits_nothing(pipeline: Pipeline) -> None:
    pipeline.ready().stop()
    # Spark's master keeps the cores of an application that it doesn't hear from: leave one.
    first = pipeline.cluster.start(conf={"spark.cores.max": "2"})
    pipeline.unsaved(first)
    pipeline.lab.cut("drv")
    second = pipeline.cluster.start("nn")
    pipeline.replaced(second)
    pipeline.process(second)
    published = sorted(path.name for path in (pipeline.cluster.work / "out").glob("epoch=*"))
    pipeline.lab.heal("drv")
    with pytest.raises(DriverEndedError) as ended:
        first.ask("run")
    assert ended.value.kind == "fenced"
    assert first.process.wait(60) == FencedError.EXIT_CODE
    first.kill()
    now = sorted(path.name for path in (pipeline.cluster.work / "out").glob("epoch=*"))
    assert now == published
    pipeline.process(second)
    pipeline.cluster.check()


def test_nothing_is_left_that_nobody_needs(pipeline: Pipeline) -> None:
    driver = pipeline.ready()
    pipeline.lab.kill_executors(pipeline.busy_host(driver))
    pipeline.process(driver)
    driver.stop()
    check_nothing_is_left(pipeline.cluster)
