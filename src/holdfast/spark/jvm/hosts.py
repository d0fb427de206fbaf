"""The hosts that can run tasks right now, as Spark names them."""

from __future__ import annotations

from collections import Counter

from pyspark import SparkContext

from holdfast.placement.planner import Host
from holdfast.spark.jvm.gateway import java_context
from holdfast.spark.jvm.probing import Capability

__all__ = ["HOSTS", "LiveHosts", "is_cluster", "is_local"]

HOSTS = Capability(
    "which executors live",
    {
        "org.apache.spark.SparkContext": [
            *("getExecutorMemoryStatus/0", "statusStore/0", "taskScheduler/0"),
        ],
        "org.apache.spark.status.AppStatusStore": ["executorList/1"],
        "org.apache.spark.status.api.v1.ExecutorSummary": [
            *("hostPort/0", "id/0", "removeReason/0", "totalCores/0"),
        ],
        "org.apache.spark.scheduler.TaskSchedulerImpl": ["getRackForHost/1"],
    },
)


def is_local(master: str) -> bool:
    """Whether a master means that tasks run in the driver's own process.

    >>> is_local("local[2]"), is_local("local-cluster[2,1,512]"), is_local("spark://nn:7077")
    (True, False, False)
    """
    return master == "local" or master.startswith("local[")


def is_cluster(context: SparkContext) -> bool:
    """Whether tasks run in other processes than the driver's, perhaps on other hosts."""
    return not is_local(str(context.master))


class LiveHosts:
    """Asks Spark which executors it has; a few milliseconds per question."""

    def __init__(self, context: SparkContext) -> None:
        self._spark = java_context(context)
        self._slots: dict[str, int] = {}
        self._racks: dict[str, str | None] = {}
        self._drivers: frozenset[str] = frozenset()
        self._learn()

    def executors(self) -> frozenset[str]:
        """``host:port`` of every executor that is alive."""
        # From the block managers' master, which learns of a loss before the status pages do.
        words = str(self._spark.getExecutorMemoryStatus().keySet().mkString(" "))
        return frozenset(words.split()) - self._drivers

    def hosts(self, executors: frozenset[str] | None = None) -> tuple[Host, ...]:
        """The hosts of these executors (by default of all that are alive), by name."""
        alive = self.executors() if executors is None else executors
        if any(executor not in self._slots for executor in alive):
            self._learn()
        slots: Counter[str] = Counter()
        for executor in alive:
            slots[executor.rpartition(":")[0]] += self._slots.get(executor, 1)
        return tuple(Host(name, count, self._rack(name)) for name, count in sorted(slots.items()))

    def neighbours(self) -> dict[str, list[str]]:
        """The executors' ids of each host that has more than one."""
        found: dict[str, list[str]] = {}
        summaries = self._spark.statusStore().executorList(True)
        for index in range(summaries.size()):
            summary = summaries.apply(index)
            if str(summary.id()) != "driver":
                host = str(summary.hostPort()).rpartition(":")[0]
                found.setdefault(host, []).append(str(summary.id()))
        return {host: ids for host, ids in found.items() if len(ids) > 1}

    def why_gone(self, host: str) -> str:
        """What Spark says of the executor that this host lost last."""
        gone = ""
        summaries = self._spark.statusStore().executorList(False)
        for index in range(summaries.size()):
            summary = summaries.apply(index)
            removed = summary.removeReason()
            if str(summary.hostPort()).rpartition(":")[0] == host and removed.isDefined():
                gone = str(removed.get())
        return gone

    def _learn(self) -> None:
        summaries = self._spark.statusStore().executorList(True)
        for index in range(summaries.size()):
            summary = summaries.apply(index)
            if str(summary.id()) == "driver":
                self._drivers = frozenset({str(summary.hostPort())})
            else:
                self._slots[str(summary.hostPort())] = max(1, int(summary.totalCores()))

    def _rack(self, host: str) -> str | None:
        if host not in self._racks:
            found = self._spark.taskScheduler().getRackForHost(host)
            self._racks[host] = str(found.get()) if found.isDefined() else None
        return self._racks[host]
