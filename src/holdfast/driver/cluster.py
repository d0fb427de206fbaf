"""A pipeline on many hosts: who is alive, who has which run on disk, and where partitions run.

The decisions are :mod:`holdfast.placement`'s; this module feeds them with facts and makes the engine obey.
Which host has which run is known here and nowhere else: it is learnt from the tasks' reports, and
from a look at the disk of every host that joins.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from holdfast import runtime
from holdfast.checkpoint.ledger import Ledger
from holdfast.driver.engine import Fleet, HostGoneError, JobFailedError
from holdfast.driver.site import Placement
from holdfast.errors import ConfigurationError, HoldfastError, StateLostError
from holdfast.placement.handover import plan_handover
from holdfast.placement.health import HostHealth
from holdfast.placement.holdings import Holdings, by_urgency
from holdfast.placement.planner import Copy, Host, PartitionPlan, place
from holdfast.state.hashing import HashRange, partition_range
from holdfast.state.run import Run
from holdfast.state.version import Change, Version
from holdfast.storage import Storage
from holdfast.tasks.disk import (
    DiskReport,
    decode_runs,
    fetch_runs,
    first_bytes,
    probe,
    survey,
    tidy,
)
from holdfast.tasks.here import Here

__all__ = ["ClusterSite"]

logger = logging.getLogger("holdfast.cluster")

_ATTEMPTS = 6
_NO_HOST_S = 120.0
_TRIES = 5
_POLL_S = 0.1
# An executor that died is started again on its host within seconds, if the host lives.
_RETURN_S = 30.0
_FETCH_BYTES = 256 << 20
_LITTLE_BYTES = 4 << 20  # a fifth of a second at 200 Mbit/s
# A fraction of a second: epochs need the cores too.
_DECODE_BYTES = 32 << 20
_KEEP_RETIRED = 3
_FAULTS_S = 60.0
# How far above its share of partitions a host may be.
_BALANCE = 1.2


class ClusterSite:
    """Many hosts. Safe to use from the epochs' thread and from background jobs."""

    one_host = False

    def __init__(
        self,
        fleet: Fleet,
        storage: Storage,
        root: Path,
        health: HostHealth,
        *,
        limit_bytes: int | None = None,
        priorities: Mapping[str, int] | None = None,
    ) -> None:
        self._fleet = fleet
        self._storage = storage
        self._root = root
        self.health = health
        self.limit_bytes = limit_bytes
        self._priorities = priorities or {}
        self._over = runtime.event()
        self._folder: Path | None = None
        self._claim = 0
        self._lock = runtime.rlock()
        self._holdings = Holdings()
        self._known: dict[str, Run] = {}
        """Runs of the newest version: what a host that joins is asked for."""
        self._present: frozenset[str] = frozenset()
        """Hosts whose disk has been looked at and that were alive when last asked."""
        self._seen: frozenset[str] = frozenset()
        """The executors when disks were last looked at: a host on which others have been started since
        may have another disk."""
        self._looked_at: set[str] = set()
        """Hosts whose disks have been looked at since an epoch last asked where it runs."""
        self._new: dict[str, Run] = {}
        """Runs of epochs that aren't in a version yet."""
        self._executors: frozenset[str] = frozenset()
        self._plan: PartitionPlan | None = None
        self._retired: list[tuple[tuple[str, str], ...]] = []
        self._copying: set[str] = set()
        """Hosts that may have runs in their stored form only."""
        self._asked, self._asked_before_move = 0, -1
        """How often epochs have asked where partitions run: by now, and when hosts last went."""
        self._moved = False
        """Whether partitions were placed elsewhere and nobody has asked since."""
        self._moves: dict[int, str] = {}
        """Partitions that are to be handed over, and to which host."""
        self._unbalanced = False
        """Whether hosts have come since handovers were last planned, or plans were dropped."""
        self.wants_runs = runtime.event()
        """Set when hosts lack runs of their partitions."""

    @property
    def folder(self) -> Path:
        """The folder of this driver's claim, on each host."""
        if self._folder is None:
            raise ConfigurationError("the pipeline has not been claimed yet")
        return self._folder

    def wait_for_hosts(self) -> tuple[Host, ...]:
        """The hosts that are alive: at least one, which may take a while."""
        deadline = runtime.monotonic() + _NO_HOST_S
        while not (found := self._fleet.hosts()):
            if self._over.is_set():
                raise HoldfastError("the pipeline has no executors, and is about to end")
            if runtime.monotonic() > deadline:
                raise ConfigurationError(
                    f"Spark has no executor after {_NO_HOST_S:.0f} s",
                    hint="look at the cluster manager: are workers registered, and have they room?",
                )
            runtime.sleep(_POLL_S)
        return found

    def open(self, claim: int, version: Version) -> None:
        """Take over what the hosts have of a version, for a claim."""
        self._claim, self._folder = claim, self._root / str(claim)
        self._known = dict(version.runs())

        def look(names: list[str]) -> None:
            self._seen = self._fleet.executors()
            _raise_bad(self._look_at(names))

        self._of_those_left(look)

    def check(self) -> None:
        """Raise ``ConfigurationError`` unless every host has the packages and a disk to write to."""
        self._of_those_left(self._check_hosts)

    def _of_those_left(self, ask: Callable[[list[str]], None]) -> None:
        """Ask all hosts; if some go meanwhile, or the driver is cut off from them, those that are there."""
        try:
            for _ in range(_TRIES - 1):
                try:
                    return ask([host.name for host in self.wait_for_hosts()])
                except HostGoneError as error:
                    logger.info("hosts are asked again: %s", error)
            return ask([host.name for host in self.wait_for_hosts()])
        except JobFailedError as error:
            # For whoever starts the pipeline, in the engine's own words.
            raise error.cause from None

    def _check_hosts(self, names: list[str]) -> None:
        root = self._root

        def tried(here: Here) -> DiskReport:
            return probe(here.path(root))

        self._fleet.check(names, self._storage.packages, root)
        _raise_bad(self._fleet.run(names, tried, "try local disks"))

    # ---- epochs

    def place(self, version: Version, partitions: int) -> Placement:
        """The plan of the epoch before, unless something has changed."""
        with self._hosts_awaited(version):
            self._asked += 1
            placement = self._placement(version, partitions)
            self._looked_at.clear()
            return placement

    @property
    def outdated(self) -> bool:
        """Whether partitions were moved since an epoch last asked where they run."""
        with self._lock:
            return self._asked == self._asked_before_move

    def _placement(self, version: Version, partitions: int) -> Placement:
        with self._lock:
            executors = self._fleet.executors()
            same = self._plan is not None and len(self._plan.assignments) == partitions
            if not same or executors != self._executors:
                self._plan = self._planned(version, partitions)
            assert self._plan is not None
            # What has since been fetched again must stay.
            retired = tuple(
                (name, host)
                for some in self._retired
                for name, host in some
                if host not in self._holdings.hosts(name)
            )
            return Placement(self._plan.assignments, retired)

    def replan(self) -> None:
        """Plan anew before the next epoch."""
        with self._lock:
            self._executors = frozenset()

    def host_for(self, runs: Iterable[Run], within: HashRange) -> str | None:
        """The host of the range's partition, where the result is wanted; if that lacks a run that is
        not stored, one that has them all.
        """
        with self._lock:
            unsaved = [run.name for run in runs if not run.is_durable]
            candidates = self._holdings.holders(unsaved, self._present)
            home = self._home(within)
            if home in candidates:
                return home
            return min(candidates) if unsaved and candidates else None

    def _home(self, within: HashRange) -> str | None:
        """Where the partition runs that a range belongs to."""
        assignments = self._plan.assignments if self._plan is not None else ()
        for assignment in assignments:
            span = partition_range(assignment.partition, len(assignments))
            if span.first <= within.first <= span.last:
                return assignment.host
        return None

    def accept(self, changes: Sequence[Change], fetched: Mapping[str, Sequence[str]]) -> None:
        """What an epoch has written; ``HostGoneError`` if a host may have another disk since it began.

        The job of an epoch may outlive all executors of a host: tasks that had ended are not run again
        when others come, and what they wrote went with the disk.
        """
        with self._lock:
            runs = [change.output for change in changes if change.output is not None]
            wrote = {host for run in runs if run.local is not None for host in run.local.hosts}
            if doubtful := sorted(wrote & self._looked_at):
                raise HostGoneError(f"{doubtful[0]} has come back since the epoch began there")
            self.learn(changes, fetched)
            self._new.update((run.name, run) for run in runs)

    def learn(self, changes: Iterable[Change], fetched: Mapping[str, Sequence[str]]) -> None:
        """New runs are where they were written; hosts have fetched runs."""
        with self._lock:
            self._holdings.written(changes)
            for host, names in fetched.items():
                self._holdings.fetched(host, names)
                if names:
                    self._copying.add(host)

    def retire(self, ledger: Ledger) -> None:
        """Tell the tasks of the next epochs which files may go."""
        with self._lock:
            self._known = dict(ledger.version.runs())
            self._new.clear()
            gone = [(name, "") for name in self._holdings.forget(ledger.live_runs())]
            if self.limit_bytes is not None:
                for host in self._present:
                    dropped = self._holdings.evict(host, self._known.values(), self.limit_bytes)
                    gone += [(name, host) for name in dropped]
            # More than once: a host may have no task in the next epoch.
            self._retired = [*self._retired[-_KEEP_RETIRED:], tuple(gone)]

    def follow(self, ledger: Ledger) -> bool:
        """Between epochs: plan anew if hosts have come or gone; whether anything moved.

        Without it a pipeline without input would notice a lost host only with the next input.
        """
        if self._plan is None:
            return False
        with self._hosts_awaited(ledger.version):
            # In here: of an older version it may have been forgotten meanwhile who has its runs.
            version, before = ledger.version, self._plan
            if self._fleet.executors() == self._executors:
                if self._unbalanced:
                    self.plan_moves(version)
                return False
            after = self._placement(version, len(before.assignments))
            moved = [a.host for a in after.assignments] != [a.host for a in before.assignments]
            if moved:
                self._asked_before_move = self._asked
            return moved

    def take_moved(self) -> bool:
        """Whether partitions were placed elsewhere since this was last asked, for whichever thread."""
        with self._lock:
            moved, self._moved = self._moved, False
            return moved

    # ---- handing over between living hosts

    @property
    def moving(self) -> bool:
        """Whether partitions are being handed over."""
        with self._lock:
            return bool(self._moves)

    @property
    def must_move(self) -> bool:
        """The same, or it has yet to be planned what is handed over."""
        with self._lock:
            return bool(self._moves) or self._unbalanced

    def stays_on(self, host: str) -> bool:
        """Whether a host has partitions, and nothing is planned that would change that."""
        with self._lock:
            used = self._plan is not None and host in self._plan.hosts.values()
            return used and not self.must_move

    def plan_moves(self, version: Version) -> None:
        """Decide which partitions should move: off drained hosts, and to hosts that have joined."""
        with self._lock:
            self._unbalanced = False
            if self._plan is None:
                return
            count = len(self._plan.assignments)
            avoided = self.health.avoided(runtime.monotonic())
            moves = plan_handover(
                self._plan.assignments,
                self._needs(version, count),
                self._fleet.hosts(),
                avoid=avoided,
                balance=_BALANCE,
            )
            self._moves = {move.partition: move.target for move in moves}
            for move in moves:
                logger.info(
                    "handover: partition %d from %s to %s, %d bytes to copy ahead",
                    move.partition,
                    move.source,
                    move.target,
                    move.bytes,
                )
            self.wants_runs.set()

    def explain(self) -> list[str]:
        """Where partitions run and why, in words."""
        with self._lock:
            return self._plan.explain() if self._plan is not None else []

    def switch(self, version: Version) -> None:
        """All state is stored and copied: from the next epoch on partitions run where they moved."""
        with self._lock:
            if self._plan is None:
                return
            moved, self._moves = self._moves, {}
            count = len(self._plan.assignments)
            self._plan = place(
                self._needs(version, count),
                self._fleet.hosts(),
                previous={**self._plan.hosts, **moved},
                avoid=self.health.avoided(runtime.monotonic()),
                balance=_BALANCE,
            )

    def failed(self, error: JobFailedError | HostGoneError, attempt: int) -> None:
        """An epoch's job failed: return if a host was lost and it may do better now, else raise."""
        gone = isinstance(error, HostGoneError)
        changed = gone or self._fleet.executors() != self._executors
        passing = error.passing if isinstance(error, JobFailedError) else None
        reason = passing.value if passing else "an executor came or went" if changed else None
        if attempt >= _ATTEMPTS or reason is None or self._over.is_set():
            raise error.cause if isinstance(error, JobFailedError) else error
        logger.warning("the epoch is run again (attempt %d failed: %s)", attempt, reason)
        self.replan()
        runtime.sleep(min(2.0, 0.1 * 2**attempt))

    def lost(self, ledger: Ledger) -> str | None:
        """What of the newest version can't be had any more, in words; None if all is there."""
        with self._lock:
            return self._lost(ledger.version)

    def _lost(self, version: Version) -> str | None:
        with self._lock:
            alive = {host.name for host in self._fleet.hosts()}
            gone = self._holdings.out_of_reach(version, alive)
        if not gone:
            return None
        held = sorted({host for run in gone for host in self._holdings.hosts(run.name)})
        return f"{len(gone)} runs that no checkpoint holds were on {', '.join(held) or 'no host'}"

    # ---- background

    def missing(self, version: Version) -> dict[str, list[Run]]:
        """Per host the stored runs that it should have on disk and lacks, the most urgent first."""
        with self._lock:
            if self._plan is None:
                return {}
            wanted = [*self._plan.hosts.items(), *self._moves.items()]
            present = [(partition, host) for partition, host in wanted if host in self._present]
            lacking = self._holdings.lacking(version, present, len(self._plan.assignments))
            missing = {
                host: self._fitting(host, by_urgency(runs, self._priorities))
                for host, runs in lacking.items()
            }
            return {host: runs for host, runs in missing.items() if runs}

    def _fitting(self, host: str, runs: list[Run]) -> list[Run]:
        """The first of these runs, as many as its disk has room for."""
        if self.limit_bytes is None:
            return runs
        held = self._holdings.held(host, self._known.values())
        room = self.limit_bytes - sum(run.size_bytes for run in held)
        totals = itertools.accumulate(run.size_bytes for run in runs)
        return [run for run, total in zip(runs, totals, strict=True) if total <= room]

    @property
    def reads_remotely(self) -> bool:
        """Whether partitions have state, more than a little, that they can only get over the network."""
        with self._lock:
            assignments = self._plan.assignments if self._plan is not None else ()
            return any(assignment.remote_bytes > _LITTLE_BYTES for assignment in assignments)

    def fetch_missing(self, version: Version) -> int:
        """Have each host fetch some of what it lacks; the number of runs still to come."""
        missing = self.missing(version)
        if not missing:
            return 0
        folder, storage, claim = self.folder, self._storage, self._claim
        shares = [(host, first_bytes(runs, _FETCH_BYTES)) for host, runs in missing.items()]
        wanted = dict(shares)

        def task(here: Here) -> DiskReport:
            # A task alone is given to another host if its own goes: that one wants none of these.
            runs = wanted.get(here.host, ())
            return fetch_runs(here.path(folder), here.reach(storage), runs, claim)

        began = runtime.monotonic()
        found = self._fleet.run([host for host, _ in shares], task, "fetch runs")
        self.learn((), {result.host: result.runs for result in found})
        took = runtime.monotonic() - began
        for result in found:
            logger.info(
                "host %s fetched %d runs in %.2f s (%.2f s in its task)",
                result.host,
                len(result.runs),
                took,
                result.seconds,
            )
            if result.error:
                logger.warning("host %s could not fetch runs: %s", result.host, result.error)
                raise HoldfastError(result.error)
        return sum(map(len, missing.values())) - sum(len(runs) for _, runs in shares)

    def decode_some(self, version: Version) -> bool:
        """Have hosts decode some of what they have in its stored form; whether there may be more."""
        with self._lock:
            runs = tuple(by_urgency(version.runs().values(), self._priorities))
            # Before the first epoch there is no plan, and nobody else finds out that a host has gone.
            alive = {host.name for host in self._fleet.hosts()}
            hosts = sorted(self._copying & self._present & alive)
        if not hosts:
            return False
        folder, storage, claim = self.folder, self._storage, self._claim

        def task(here: Here) -> DiskReport:
            return decode_runs(here.path(folder), here.reach(storage), runs, claim, _DECODE_BYTES)

        for result in self._fleet.run(hosts, task, "decode runs"):
            if result.error:
                raise HoldfastError(f"host {result.host} could not decode runs: {result.error}")
            if not result.runs:
                with self._lock:
                    self._copying.discard(result.host)
        return bool(self._copying)

    def give_up(self) -> None:
        """Nobody needs this site any more: end what runs on hosts, and wait for none."""
        self._over.set()
        self._fleet.cancel()

    def tidy(self, live: set[str]) -> None:
        """Have every host delete what failed attempts left."""
        folder, kept = self.folder, frozenset(live)
        self._fleet.run(sorted(self._present), lambda here: tidy(here.path(folder), kept), "tidy")

    # ---- inside

    def _planned(self, version: Version, partitions: int) -> PartitionPlan:
        self._known = {**self._new, **version.runs()}
        hosts = self._fleet.hosts(executors := self._fleet.executors())
        if not hosts:
            raise HostGoneError("all hosts went while it was planned where partitions run")
        alive = {host.name for host in hosts}
        now = runtime.monotonic()
        for gone in self._present - alive:
            logger.warning("host %s is gone: %s", gone, self._fleet.gone(gone).why or "no word")
            self.health.failed(gone, now)
            # Storage may have lost the host as well, and learn of it later than Spark.
            self._storage.expect_faults(_FAULTS_S)
        still = {executor.rpartition(":")[0] for executor in executors & self._seen}
        self._present = self._present & alive & still
        joined = sorted(alive - self._present)
        if joined:
            bad = {result.host: result.error for result in self._look_at(joined) if result.error}
            for host, problem in bad.items():
                logger.warning("host %s has joined but can't be used: %s", host, problem)
            hosts = tuple(host for host in hosts if host.name not in bad)
            self._unbalanced = self._plan is not None
        self._seen = executors
        self._moves = {}
        previous = self._plan.hosts if self._plan is not None else {}
        if self._plan is not None and len(self._plan.assignments) != partitions:
            previous = {}
        needs = self._needs(version, partitions)
        avoided = self.health.avoided(now)
        plan = place(needs, hosts, previous=previous, avoid=avoided, balance=_BALANCE)
        # What was to leave a drained host was dropped above, and state that isn't stored binds it there.
        self._unbalanced |= not self.health.drained.isdisjoint(plan.hosts.values())
        self._executors = executors
        self._moved |= any(plan.hosts.get(number) != host for number, host in previous.items())
        for line in plan.explain():
            logger.info("placement: %s", line)
        if plan.lost or plan.stranded:
            raise StateLostError(
                f"partitions {sorted({*plan.lost, *plan.stranded})} need runs that no checkpoint "
                f"holds and that are out of reach: {self._lost(version)}",
                hint="the pipeline goes back to its last checkpoint",
            )
        if any(a.remote_bytes or a.replica_bytes for a in plan.assignments):
            self.wants_runs.set()
        return plan

    @contextlib.contextmanager
    def _hosts_awaited(self, version: Version) -> Iterator[None]:
        """The lock, when every host that matters is there, or has had its time."""
        while True:
            seen = self._await_hosts(version)
            with self._lock:
                # Another may have gone before the lock could be had, and has its time too.
                if seen <= self._fleet.executors():
                    yield
                    return

    def _await_hosts(self, version: Version) -> frozenset[str]:
        """Wait until there are hosts; and give one time to start its executor again, if it matters and
        the host may live. Nobody else is kept waiting meanwhile. The executors that were there then.
        """
        with self._lock:
            if self._plan is not None and self._fleet.executors() == self._executors:
                return self._executors
            assigned = set(self._plan.hosts.values()) if self._plan is not None else set()
            holding = {host for name in version.unsaved() for host in self._holdings.hosts(name)}
            needed = self._present & (assigned | holding)
        deadline = runtime.monotonic() + _RETURN_S
        while True:
            executors = self._fleet.executors()
            alive = {host.name for host in self._fleet.hosts(executors)}
            waiting = {h for h in needed - alive if not self._fleet.gone(h).for_good}
            if not waiting or runtime.monotonic() > deadline or self._over.is_set():
                break
            runtime.sleep(_POLL_S)
        self.wait_for_hosts()
        return executors

    def _needs(self, version: Version, partitions: int) -> list[list[Copy]]:
        return self._holdings.needs(version, partitions, self._replicas(version), self._priorities)

    def _replicas(self, version: Version) -> dict[str, frozenset[str]]:
        """Where storage keeps the runs that no live host has."""
        wanted = {
            run.name: run.stored.object
            for run in version.runs().values()
            if run.stored and not self._holdings.hosts(run.name) & self._present
        }
        if not wanted:
            return {}
        found = runtime.each(self._storage.locations, wanted.values(), at_once=8)
        return {name: frozenset(hosts) for name, hosts in zip(wanted, found, strict=True)}

    def _look_at(self, hosts: Sequence[str]) -> list[DiskReport]:
        """Take over what hosts have on their disks; those that can't be used are told by an error."""
        root, claim, runs = self._root, self._claim, dict(self._known)

        def look(here: Here) -> DiskReport:
            return survey(here.path(root), claim, runs)

        found = self._fleet.run(hosts, look, "look at local disks")
        for result in found:
            if result.error:
                continue
            logger.info("host %s has %d of %d runs", result.host, len(result.runs), len(runs))
            self._holdings.looked(result.host, runs, frozenset(result.runs))
            self._present |= {result.host}
            self._looked_at.add(result.host)
            self._copying.add(result.host)
        return found


def _raise_bad(found: Iterable[DiskReport]) -> None:
    bad = [f"{result.host}: {result.error}" for result in found if result.error]
    if bad:
        raise ConfigurationError(
            f"local_dir can't be used on every host: {'; '.join(bad)}",
            hint="local_dir must be a folder on each host's own disk that executors can write",
        )
