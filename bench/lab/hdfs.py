"""HDFS on the lab's hosts."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.lab.names import MASTER, Place
from bench.lab.spark import TRUSTING
from bench.lab.web import ask
from bench.services.daemon import cache_folder, locked
from bench.services.hadoop import VERSION, DataNode, HadoopConfig, NameNode

__all__ = ["Hdfs", "LabDataNode", "LabNameNode", "heard_from", "rack_settings", "trusting"]

Nodes = Mapping[str, Mapping[str, object]]


class LabNameNode(NameNode):
    """A NameNode whose empty file system comes from the cache: making one takes a JVM seconds.

    All labs share its ids, but they never meet.
    """

    def __init__(self, folder: Path, config: HadoopConfig, prefix: Sequence[str]) -> None:
        super().__init__(folder, config, MASTER, prefix, dies_with_parent=False)
        self.name = f"namenode-{MASTER}"

    def command(self, *arguments: str) -> list[str]:
        """The JVM's command line."""
        return trusting(super().command(*arguments))

    def format(self) -> None:
        """Make the folder an empty file system."""
        cache = cache_folder(f"hdfs-empty-{VERSION}")
        with locked(cache):
            made = cache / "name"
            if made.exists():
                shutil.copytree(made, self.data / "name")
                return
            super().format()
            copy = shutil.copytree(self.data / "name", cache / f"copy-{os.getpid()}")
            copy.rename(made)


class LabDataNode(DataNode):
    """A DataNode that starts a little faster."""

    def __init__(
        self, folder: Path, config: HadoopConfig, host: str, prefix: Sequence[str]
    ) -> None:
        super().__init__(folder, config, host, prefix, dies_with_parent=False)
        self.name = f"datanode-{host}"

    def command(self, *arguments: str) -> list[str]:
        """The JVM's command line."""
        return trusting(super().command(*arguments))


class Hdfs:
    """The daemons of one lab, made but not started."""

    def __init__(self, lab: str, place: Place, replication: int, racks: Mapping[str, str]) -> None:
        self._lab = lab
        self._folder = place.folder
        topology = rack_settings(place.racks) if racks else {}
        self.config = HadoopConfig(namenode=MASTER, replication=replication, settings=topology)

    def namenode(self, prefix: Sequence[str]) -> NameNode:
        """The NameNode."""
        return LabNameNode(self._folder, self.config, prefix)

    def datanode(self, host: str, prefix: Sequence[str]) -> DataNode:
        """A host's DataNode."""
        return LabDataNode(self._folder, self.config, host, prefix)

    def live_datanodes(self) -> list[str]:
        """The hosts that the NameNode hears from; none while there is no NameNode."""
        return heard_from(self._nodes())

    def racks(self) -> dict[str, str]:
        """Where the NameNode believes its hosts to stand."""
        return {_host(name): str(node["location"]) for name, node in self._nodes().items()}

    def copies_to_make(self) -> int:
        """How many blocks have fewer copies than they should; 0 while there is no NameNode."""
        # Not the bean FSNamesystem: its figures are up to ten seconds old.
        bean = self._bean("FSNamesystemState")
        waiting = (
            "LowRedundancyBlocks",
            "PendingReconstructionBlocks",
            "ScheduledReplicationBlocks",
        )
        return sum(int(bean[name]) for name in waiting) if bean else 0

    def _nodes(self) -> Nodes:
        nodes: Nodes = json.loads(self._bean("NameNodeInfo").get("LiveNodes", "{}"))
        return nodes

    def _bean(self, name: str) -> dict[str, Any]:
        """What the NameNode says of itself; nothing while there is none."""
        query = f"/jmx?qry=Hadoop:service=NameNode,name={name}"
        answer = ask(self._lab, MASTER, self.config.web_port, query)
        beans: list[dict[str, Any]] = [] if answer is None else answer["beans"]
        return beans[0] if beans else {}


def heard_from(nodes: Nodes) -> list[str]:
    """The hosts that have sent a heartbeat lately. A node counts as live for long after its last.

    >>> heard_from({"h1:9866": {"lastContact": 0}, "h2:9866": {"lastContact": 9}})
    ['h1']
    """
    return sorted(_host(name) for name, node in nodes.items() if int(str(node["lastContact"])) <= 3)


def _host(node: str) -> str:
    return node.partition(":")[0]


def trusting(command: Sequence[str]) -> list[str]:
    """A JVM's command line, with what makes it start faster.

    >>> trusting(["java", "Main"])[0::3]
    ['java', 'Main']
    """
    return [command[0], *TRUSTING, *command[1:]]


def rack_settings(table: Path) -> dict[str, str]:
    """How Hadoop is told which host stands in which rack."""
    return {
        "net.topology.node.switch.mapping.impl": "org.apache.hadoop.net.TableMapping",
        "net.topology.table.file.name": str(table),
    }
