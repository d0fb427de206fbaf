"""Where partitions of a cluster run, and who has to be told when that changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from holdfast.checkpoint.entry import EpochRecord
from holdfast.checkpoint.ledger import Ledger
from holdfast.driver.engine import GoneHost, HostGoneError, JobFailedError, PassingFailure
from holdfast.driver.epoch import EpochLoop
from holdfast.state.hashing import FULL_RANGE, partition_range
from holdfast.state.run import LocalForm, Run, StoredForm
from holdfast.state.version import Change, Version
from holdfast.storage import MemoryStorage
from holdfast.tasks.disk import DiskReport
from holdfast.tasks.here import Here
from tests.driver.site_support import Site

# Less than a host is given.
SOON_S = 10.0


def test_an_epoch_has_asked_too_early_until_it_asks_again() -> None:
    site, version = Site("h1", "h2"), Version(0)
    site.place(version, 2)
    assert not site.follow(Ledger(version))
    assert not site.outdated
    site.fleet.alive = frozenset({"h1"})
    assert site.follow(Ledger(version))
    assert not site.follow(Ledger(version))
    assert site.outdated
    assert site.place(version, 2).hosts == ["h1", "h1"]
    assert not site.outdated


@pytest.mark.parametrize("stays_away", [True, False])
def test_a_claimed_pipeline_opens_on_those_left_when_a_host_goes_while_disks_are_looked_at(
    stays_away: bool,
) -> None:
    site, asked = Site("h1", "h2"), []
    site._present = frozenset()

    def run(hosts: Sequence[str], task: object, what: str) -> list[DiskReport]:
        asked.append(tuple(hosts))
        if "h2" in hosts:
            site.fleet.alive = frozenset({"h1"} if stays_away else {"h1", "h2"})
            raise HostGoneError(f"{what}: h2 is gone")
        return [DiskReport(host) for host in hosts]

    site.fleet.run = run  # type: ignore[method-assign]
    if stays_away:
        site.open(3, Version(0))
        assert asked == [("h1", "h2"), ("h1",)]
        assert site.place(Version(0), 2).hosts == ["h1", "h1"]
    else:
        with pytest.raises(HostGoneError, match="h2 is gone"):
            site.open(3, Version(0))
        assert len(asked) == 5


def test_a_start_says_in_the_engines_words_why_disks_could_not_be_looked_at() -> None:
    site, said = Site("h1"), ValueError("no room for a task")

    def run(hosts: Sequence[str], task: object, what: str) -> list[DiskReport]:
        raise JobFailedError(said)

    site.fleet.run = run  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="no room") as raised:
        site.open(3, Version(0))
    assert raised.value is said


def test_an_epoch_is_run_again_whose_look_at_a_host_that_joins_was_ended() -> None:
    """Who sees a host go ends the epoch's job, whatever that is just then."""
    site, looks = Site("h1"), []
    site.fleet.alive = frozenset({"h1", "h2"})

    def look(hosts: Sequence[str], task: object, what: str) -> list[DiskReport]:
        looks.append(tuple(hosts))
        if len(looks) == 1:
            raise JobFailedError(ValueError("cancelled"), PassingFailure.CANCELLED)
        return [DiskReport(host) for host in hosts]

    class ComputingError(Exception):
        """The epoch has got so far."""

    def compute(given: object) -> None:
        raise ComputingError

    site.fleet.run = look  # type: ignore[method-assign]
    engine = SimpleNamespace(input_partitions=lambda batch: 1)
    computer = SimpleNamespace(
        site=site, engine=engine, graph=SimpleNamespace(nodes=[]), compute=compute
    )
    loop = EpochLoop(
        computer=cast(Any, computer),
        ledger=Ledger(Version(-1)),
        partitions=2,
        pacing={},
        time=cast(Any, SimpleNamespace(previous_processing_ms=None)),
    )
    with pytest.raises(ComputingError):
        loop.run(None, EpochRecord(0, 0, 1_000), {})
    assert looks == [("h2",), ("h2",)]


def test_a_host_is_not_drained_because_another_went_meanwhile() -> None:
    site = Site("h1", "h2", "h3")
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
    site.fleet.alive = frozenset({"h1", "h2"})
    site.follow(Ledger(version))
    assert site.must_move
    site.follow(Ledger(version))
    assert site.moving


def test_a_task_to_fetch_runs_that_is_given_to_another_host_fetches_none_there(
    tmp_path: Path,
) -> None:
    site = Site("h1")
    site._storage, site._folder = MemoryStorage("cluster-fetch"), tmp_path
    stored = StoredForm("runs/0-0-0", 1, "00", 1)
    within = partition_range(0, 1)
    run = Run("0-0-0", "op.t", within, 0, 0, 1, local=LocalForm(1, "00"), stored=stored)
    version = Version(-1).apply([Change("op.t", within, (), run)], 0)
    assert site.place(version, 1).hosts == ["h1"]
    assert site.missing(version) == {"h1": [run]}

    def elsewhere(
        hosts: Sequence[str], task: Callable[[Here], DiskReport], what: str
    ) -> list[DiskReport]:
        assert (tuple(hosts), what) == (("h1",), "fetch runs")
        return [msgspec.structs.replace(task(Here("h2")), host="h2")]

    site.fleet.run = elsewhere  # type: ignore[method-assign]
    assert site.fetch_missing(version) == 0
    assert site.missing(version) == {"h1": [run]}


def test_a_host_that_went_before_the_first_epoch_is_not_asked_to_decode_runs() -> None:
    site, asked = Site("h1", "h2"), []

    def run(hosts: Sequence[str], task: object, what: str) -> list[DiskReport]:
        asked.append(list(hosts))
        return [DiskReport(host) for host in hosts]

    site.fleet.run = run  # type: ignore[method-assign]
    site._copying, site._folder = {"h1", "h2"}, Path("claim")
    site.fleet.alive = frozenset({"h1"})
    site.decode_some(Version(0))
    assert asked == [["h1"]]
    assert not site.decode_some(Version(0))


def test_what_an_epoch_wrote_to_a_host_that_has_come_back_since_does_not_count() -> None:
    """Its tasks that had ended are not run again: their runs went with the disk, and nobody would know."""
    site = Site("h1")
    within = partition_range(0, 1)

    def looked(hosts: Sequence[str], task: object, what: str) -> list[DiskReport]:
        return [DiskReport(host) for host in hosts]

    def written(epoch: int) -> tuple[Change, ...]:
        local = LocalForm(1, "00", hosts=("h1",))
        return (
            Change(
                "op.t",
                within,
                (),
                Run(f"0-{epoch}-0", "op.t", within, epoch, epoch, 1, local=local),
            ),
        )

    site.fleet.run = looked  # type: ignore[method-assign]
    version = Version(-1)
    assert site.place(version, 1).hosts == ["h1"]
    site.fleet.executors = lambda: frozenset({"h1:2"})  # type: ignore[method-assign]
    assert not site.follow(Ledger(version)), "the plan is what it was"
    with pytest.raises(HostGoneError, match="h1 has come back"):
        site.accept(written(0), {})
    assert site.place(version, 1).hosts == ["h1"]
    site.accept(written(1), {})
    assert site.lost(Ledger(Version(-1).apply(written(1), 1))) is None


def test_a_host_that_comes_back_is_asked_for_what_an_epoch_has_just_written_there() -> None:
    """Between its reports and the version that names them."""
    site, version, within = Site("h1"), Version(-1), partition_range(0, 1)
    local = LocalForm(1, "00", hosts=("h1",))
    change = Change("op.t", within, (), Run("0-0-0", "op.t", within, 0, 0, 1, local=local))
    assert site.place(version, 1).hosts == ["h1"]
    site.accept((change,), {})
    site.fleet.run = lambda hosts, task, what: [DiskReport(host) for host in hosts]  # type: ignore[method-assign]
    site.fleet.executors = lambda: frozenset({"h1:2"})  # type: ignore[method-assign]
    site.follow(Ledger(version))
    assert site.lost(Ledger(version.apply((change,), 0))) is not None


def test_nobody_else_waits_while_a_host_is_given_time_to_return() -> None:
    site, version = Site("h1", "h2"), Version(0)
    site.place(version, 2)
    asked = threading.Event()

    def gone(host: str) -> GoneHost:
        asked.set()
        return GoneHost("its executor died", for_good=False)

    site.fleet.gone = gone  # type: ignore[method-assign]
    alive, site.fleet.alive = site.fleet.alive, frozenset({"h1"})
    placing = threading.Thread(target=site.place, args=(version, 2), daemon=True)
    placing.start()
    assert asked.wait(SOON_S)
    others = threading.Thread(target=lambda: (site.explain(), site.host_for((), FULL_RANGE)))
    others.start()
    others.join(SOON_S)
    assert not others.is_alive()
    assert placing.is_alive()
    site.fleet.alive = alive
    placing.join(SOON_S)
    assert not placing.is_alive()


class WaitingLock:
    """Whoever asks for it has to wait, while something goes on."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.meanwhile: Callable[[], None] | None = None

    def __enter__(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def test_whoever_waited_for_a_site_asks_for_the_newest_version() -> None:
    """Of an older one a site has forgotten who has its runs: they would seem to be lost."""
    site, within = Site("h1"), partition_range(0, 1)
    ledger = Ledger(Version(-1))

    def written(epoch: int, *inputs: str) -> Change:
        local = LocalForm(1, "00", hosts=("h1",))
        name = f"0-{epoch}-0"
        return Change("op.t", within, inputs, Run(name, "op.t", within, 0, epoch, 1, local=local))

    def run_epoch(epoch: int, *inputs: str) -> None:
        change = written(epoch, *inputs)
        with ledger.epoch() as (version, _):
            site.place(version, 1)
            site.accept((change,), {})
            ledger.record_epoch(EpochRecord(epoch, 1, 1_000), [change], {}, {}, 1)
        site.retire(ledger)

    lock = WaitingLock()
    site._lock = cast(Any, lock)
    run_epoch(0)
    lock.meanwhile = lambda: run_epoch(1, "0-0-0")
    assert site.lost(ledger) is None

    def goes_on() -> None:
        run_epoch(2, "0-1-0")
        site.fleet.alive = frozenset({"h1", "h2"})

    site.fleet.run = lambda hosts, task, what: [DiskReport(host) for host in hosts]  # type: ignore[method-assign]
    lock.meanwhile = goes_on
    site.follow(ledger)
    assert ledger.version.epoch == 2
    assert site.lost(ledger) is None
