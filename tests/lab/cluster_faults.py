"""Faults at random on a lab while a pipeline runs, for as long as one likes: the short test and the soak.

Everything that happens is printed; the choice of faults follows from the seed, their effects don't.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.lab import Lab
from bench.services.daemon import wait_until
from tests.lab.cluster_support import Cluster, Driver, DriverEndedError

DISK = "48m"
_POLL_S = 0.2
_LEAST = 2
_MORE_S = 120.0
_EPOCH_S = 0.7
# What a supervised driver may end with when its surroundings fail; it is started again then.
_EXCUSED = {"processing", "storage", "configuration", "state-lost"}


@dataclass
class Outcome:
    """What a time of faults came to."""

    faults: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """What drivers that nobody killed ended with."""
    epochs: int = 0
    starts: int = 0


class Supervisor:
    """Keeps a driver running: one that was killed or has failed is started again."""

    def __init__(self, cluster: Cluster, outcome: Outcome, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._outcome = outcome
        self._say = say
        self._driver: Driver | None = None
        self._killed = False
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._supervise)

    def start(self) -> None:
        self._thread.start()

    def kill(self) -> None:
        """SIGKILL to the driver, wherever it is."""
        driver = self._driver
        if driver is not None and driver.alive:
            self._killed = True
            driver.kill()

    def check(self) -> None:
        """Raise what ended the supervision, if anything has."""
        if self._error is not None:
            raise self._error

    def finish(self, within_s: float) -> Driver:
        """A driver that runs, left to the caller from now on."""
        self._over.set()
        self._thread.join(within_s)
        self.check()
        driver = self._driver
        assert driver is not None
        assert not self._thread.is_alive(), f"the driver doesn't answer; see {driver.log}"
        return driver

    def _supervise(self) -> None:
        try:
            while not self._attend():
                pass
        except BaseException as error:  # raised where it is waited for
            self._error = error

    def _attend(self) -> bool:
        """Run one driver to its end; True if it still runs when all is over."""
        self._killed = False
        self._outcome.starts += 1
        self._driver = driver = self._cluster.begin()
        began = time.monotonic()
        try:
            claim = driver.answer(600)
            self._say(f"driver started with claim {claim} in {time.monotonic() - began:.1f} s")
            while not self._over.is_set():
                driver.ask("await 0.5", 600)
        except DriverEndedError as ended:
            driver.kill()
            if self._killed:
                return False
            self._say(f"driver failed ({ended.kind}): {ended}")
            self._outcome.failures.append(f"{ended.kind}: {ended}")
            if ended.kind not in _EXCUSED:
                raise
            time.sleep(1.0)
            return False
        return True


@dataclass
class Fault:
    """Something that has happened and is to be mended."""

    words: str
    what: str
    until: float
    end: Callable[[], object]


class Faults:
    """Breaks things and mends them."""

    def __init__(
        self, cluster: Cluster, supervisor: Supervisor, seed: int, say: Callable[[str], None],
        *, hosts_down: int = 1,
    ) -> None:  # fmt: skip
        self._lab: Lab = cluster.lab
        self._supervisor = supervisor
        self._chance = random.Random(seed)
        self._say = say
        self._hosts_down = hosts_down
        self._deck: list[str] = []
        self._active: list[Fault] = []
        self.done: list[str] = []

    def step(self) -> None:
        """Mend what is due and break one more thing."""
        self.mend()
        if not self._deck:
            self._deck = [
                "kill executors", "kill host", "kill driver", "kill datanode", "cut host",
                "cut driver", "slow network", "fill disk",
            ]  # fmt: skip
            self._chance.shuffle(self._deck)
        kind = self._deck.pop()
        host = self._chance.choice(self._lab.workers)
        lasts = self._chance.uniform(2.0, 14.0)
        self._break(kind, host, lasts)

    def mend(self, *, everything: bool = False) -> None:
        """End what is due, or all."""
        now = time.monotonic()
        for fault in [f for f in self._active if everything or f.until <= now]:
            self._say(f"end of {fault.words}")
            fault.end()
            self._active.remove(fault)

    def _break(self, kind: str, host: str, lasts: float) -> None:
        lab = self._lab
        where = {"kill driver": "drv", "cut driver": "drv", "slow network": "network"}.get(
            kind, host
        )
        down = {f.what for f in self._active if f.what in lab.workers}
        if where in {f.what for f in self._active} or (
            where in lab.workers and len(down) >= self._hosts_down and kind != "kill executors"
        ):
            return
        words = f"{kind} {where}" if where == host else kind
        self._say(words)
        self.done.append(words)
        ends: dict[str, Callable[[], object]] = {
            "kill host": lambda: lab.start(host),
            "kill datanode": lambda: lab.start(host),
            "cut host": lambda: lab.heal(host),
            "cut driver": lambda: lab.heal("drv"),
            "slow network": lambda: lab.rate(None),
            "fill disk": lambda: ballast(lab, host).unlink(),
        }
        begins: dict[str, Callable[[], object]] = {
            "kill executors": lambda: lab.kill_executors(host),
            "kill driver": self._supervisor.kill,
            "kill host": lambda: lab.kill(host),
            "kill datanode": lambda: lab.kill_datanode(host),
            "cut host": lambda: lab.cut(host),
            "cut driver": lambda: lab.cut("drv"),
            "slow network": lambda: lab.rate("20mbit"),
            "fill disk": lambda: fill(ballast(lab, host)),
        }
        begins[kind]()
        if kind in ends:
            fault = Fault(words, where, time.monotonic() + lasts, ends[kind])
            self._active.append(fault)


def ballast(lab: Lab, host: str) -> Path:
    return lab.disk(host) / "ballast"


def fill(path: Path) -> None:
    """Take all that is left on a disk."""
    with path.open("wb", buffering=0) as file:
        try:
            for _ in range(10_000):
                file.write(bytes(1 << 16))
        except OSError:
            return
    raise AssertionError("the disk has no end")


def run_faults(
    cluster: Cluster, seconds: float, seed: int, *, hosts_down: int = 1, pause_s: float = 5.0
) -> Outcome:
    """Feed a pipeline and break things; then mend all, and check results, runs and objects."""
    began = time.monotonic()

    def say(words: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {words}", flush=True)

    say(f"HOLDFAST_SEED={seed}")
    outcome = Outcome()
    supervisor = Supervisor(cluster, outcome, say)
    faults = Faults(cluster, supervisor, seed, say, hosts_down=hosts_down)
    over = threading.Event()
    feeder = threading.Thread(target=_feed, args=(cluster, seed, over, outcome))
    cluster.add(500, 100)
    supervisor.start()
    feeder.start()
    try:
        wait_until(lambda: _has_begun(cluster, supervisor), "the first output", 300)
        until = time.monotonic() + seconds
        chance = random.Random(seed + 1)
        # On a busy machine a single fault may take all of the time.
        latest = until + _MORE_S
        while time.monotonic() < (until if len(faults.done) >= _LEAST else latest):
            supervisor.check()
            faults.step()
            next_s = time.monotonic() + chance.uniform(0.3, 1.7) * pause_s
            while time.monotonic() < min(next_s, until):
                faults.mend()
                time.sleep(_POLL_S)
    finally:
        over.set()
        faults.mend(everything=True)
        feeder.join()
    outcome.faults = faults.done
    cluster.everyone_is_back()
    driver = supervisor.finish(600)
    say("all is mended")
    driver.ask("run", 600)
    driver.stop()
    say("stopped")
    check_nothing_is_left(cluster)
    say(f"{len(outcome.faults)} faults, {outcome.starts} starts, {len(outcome.failures)} failures, "
        f"{outcome.epochs} epochs")  # fmt: skip
    return outcome


def check_nothing_is_left(cluster: Cluster) -> None:
    """Start once more: hosts have live runs alone, storage only what is named, results are right."""
    driver = cluster.start()
    seen = driver.look()
    for host in cluster.lab.workers:
        files = cluster.local_files(host)
        assert set(files) <= {str(seen["claim"])}, f"{host} has folders of old claims: {set(files)}"
        names = {name.partition(".")[0] for found in files.values() for name in found}
        assert names <= set(seen["live"]), f"{host} has runs that nobody needs"
    cluster.add(500, 100)
    driver.ask("run")
    driver.stop()
    found = cluster.check()
    assert found["unnamed"] == [], "storage has objects that nothing names"
    staged = list((cluster.work / "out" / "_holdfast" / "staged").iterdir())
    assert staged == [], "output was staged and never published"


def _feed(cluster: Cluster, seed: int, over: threading.Event, outcome: Outcome) -> None:
    chance = random.Random(seed + 2)
    while not over.wait(_EPOCH_S):
        # Input waits in files: more than a few epochs ahead would only take time at the end.
        if outcome.epochs < _published(cluster) + 10:
            cluster.add(chance.randrange(1, 3000), chance.randrange(1, 1500))
            outcome.epochs += 1


def _has_begun(cluster: Cluster, supervisor: Supervisor) -> bool:
    supervisor.check()
    return _published(cluster) > 0


def _published(cluster: Cluster) -> int:
    return len(list((cluster.work / "out").glob("epoch=*")))
