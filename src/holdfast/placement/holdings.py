"""Which host has which run on its disk, as far as is known. Pure bookkeeping; not thread-safe."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from holdfast.placement.eviction import evictions
from holdfast.placement.planner import Copy
from holdfast.state.hashing import HashRange, partition_range
from holdfast.state.run import Run, Safety
from holdfast.state.version import Change, Version

__all__ = ["Holdings", "by_urgency"]


class Holdings:
    """Learnt from the reports of tasks, and from looks at hosts' disks.

    >>> holdings = Holdings()
    >>> holdings.fetched("h1", ["7-a"])
    >>> sorted(holdings.hosts("7-a")), sorted(holdings.hosts("7-b"))
    (['h1'], [])
    """

    def __init__(self) -> None:
        self._hosts: dict[str, set[str]] = {}

    def hosts(self, run: str) -> frozenset[str]:
        """The hosts that have a run; dead ones may be among them."""
        return frozenset(self._hosts.get(run, ()))

    def written(self, changes: Iterable[Change]) -> None:
        """New runs are where they were written."""
        for change in changes:
            if change.output is not None and change.output.local is not None:
                known = self._hosts.setdefault(change.output.name, set())
                known.update(change.output.local.hosts)

    def fetched(self, host: str, names: Iterable[str]) -> None:
        """A host has brought runs to its disk."""
        for name in names:
            self._hosts.setdefault(name, set()).add(host)

    def looked(self, host: str, asked: Iterable[str], found: Collection[str]) -> None:
        """A host was asked for runs and has some; it may have lost its disk since it was last seen."""
        for name in asked:
            known = self._hosts.setdefault(name, set())
            (known.add if name in found else known.discard)(host)

    def forget(self, live: Collection[str]) -> list[str]:
        """The runs that nobody needs any more; they are not known from here on."""
        gone = [name for name in self._hosts if name not in live]
        for name in gone:
            del self._hosts[name]
        return gone

    def held(self, host: str, runs: Iterable[Run]) -> list[Run]:
        """Those of these runs that a host has."""
        return [run for run in runs if host in self.hosts(run.name)]

    def evict(self, host: str, runs: Iterable[Run], limit_bytes: int) -> list[str]:
        """The runs that have to go from a host's disk; it doesn't have them from here on."""
        gone = evictions(self.held(host, runs), limit_bytes)
        for name in gone:
            self._hosts[name].discard(host)
        return gone

    def holders(self, runs: Iterable[str], among: Collection[str]) -> set[str]:
        """The hosts that have all of these runs."""
        having = set(among)
        for name in runs:
            having &= self.hosts(name)
        return having

    def out_of_reach(self, version: Version, alive: Collection[str]) -> list[Run]:
        """The runs of a version that can't be had any more."""
        return [r for r in version.runs().values() if self.safety(r, alive) is Safety.LOST]

    def safety(self, run: Run, alive: Collection[str]) -> Safety:
        """How safe a run is, if these hosts live."""
        return run.safety(len(self.hosts(run.name).intersection(alive)))

    def needs(
        self,
        version: Version,
        partitions: int,
        replicas: Mapping[str, Collection[str]],
        priorities: Mapping[str, int],
    ) -> list[list[Copy]]:
        """Per partition what it has to read, for the planner."""
        return [
            [
                Copy(
                    segment.size_bytes,
                    self.hosts(segment.run.name),
                    frozenset(replicas.get(segment.run.name, ())),
                    segment.run.is_durable,
                    _priority(table, priorities),
                )
                for table in version.tables
                for segment in version.segments(table, partition_range(partition, partitions))
            ]
            for partition in range(partitions)
        ]

    def lacking(
        self, version: Version, wanted: Sequence[tuple[int, str]], partitions: int
    ) -> dict[str, list[Run]]:
        """Per host the stored runs of the partitions that it should have and doesn't."""
        lacking: dict[str, dict[str, Run]] = {}
        for partition, host in wanted:
            for run in _runs_within(version, partition_range(partition, partitions)):
                if run.is_durable and host not in self.hosts(run.name):
                    lacking.setdefault(host, {})[run.name] = run
        return {host: list(runs.values()) for host, runs in lacking.items()}


def by_urgency(runs: Iterable[Run], priorities: Mapping[str, int]) -> list[Run]:
    """Runs in the order in which a host should fetch them.

    Those of operators of higher priority come first, then the newest, then the smallest: they hold
    the keys that are touched most.
    """
    return sorted(
        runs, key=lambda run: (-_priority(run.table, priorities), -run.last_epoch, run.rows)
    )


def _priority(table: str, priorities: Mapping[str, int]) -> int:
    """That of the operator, after which its tables are named."""
    return priorities.get(table.partition(".")[0], 0)


def _runs_within(version: Version, within: HashRange) -> Iterator[Run]:
    for table in version.tables:
        for segment in version.segments(table, within):
            yield segment.run
