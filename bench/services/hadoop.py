"""Real HDFS daemons, each a JVM of its own.

On loopback, for tests::

    with LocalHdfs(folder, datanodes=2) as hdfs:
        storage = open_storage(f"{hdfs.url}/ck?web={hdfs.web}")

On named hosts, each daemon started by a command prefix::

    config = HadoopConfig(namenode="nn", replication=3)
    namenode = NameNode(folder, config, host="nn", prefix=["ip", "netns", "exec", "lab-nn"])
    namenode.start()
    datanode = DataNode(folder, config, host="h1", prefix=["ip", "netns", "exec", "lab-h1"])
    datanode.start()
    namenode.wait_ready()
    datanode.wait_ready()
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from bench.services.daemon import (
    Daemon,
    ServiceError,
    cache_folder,
    free_ports,
    locked,
    wait_until,
)

__all__ = ["DataNode", "HadoopConfig", "LocalHdfs", "NameNode", "classpath", "fetch_jars"]

VERSION = "3.5.0"
_SERVER_JAR = f"org.apache.hadoop:hadoop-client-minicluster:{VERSION}"
# The rest comes with PySpark.
_SPARK_JARS = (
    "hadoop-client-api-*", "hadoop-client-runtime-*", "slf4j-api-*", "jcl-over-slf4j-*", "log4j-*",
)  # fmt: skip
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k", "-Xshare:auto")
_LOGGING = """\
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1}: %m%n
logger.namenode.name = org.apache.hadoop.hdfs.server.namenode.NameNode
logger.namenode.level = INFO
logger.datanode.name = org.apache.hadoop.hdfs.server.datanode.DataNode
logger.datanode.level = INFO
"""

# What makes a lost host known within seconds rather than minutes, and a daemon small.
_SETTINGS = {
    "dfs.heartbeat.interval": "1",
    "dfs.namenode.stale.datanode.interval": "3000",
    "dfs.namenode.avoid.read.stale.datanode": "true",
    "dfs.namenode.avoid.write.stale.datanode": "true",
    "dfs.namenode.write.stale.datanode.ratio": "0.9",
    "dfs.namenode.heartbeat.recheck-interval": "5000",
    # A copy that was ordered from a host which is gone is ordered again soon.
    "dfs.namenode.reconstruction.pending.timeout-sec": "5",
    "dfs.namenode.redundancy.interval.seconds": "1s",
    # A DataNode with twice the connections of the average takes no blocks: with nearly none on
    # average that is whoever is read from, and what is left is the host that has just died.
    "dfs.namenode.redundancy.considerLoad": "false",
    "dfs.client.socket-timeout": "3000",
    "dfs.datanode.socket.write.timeout": "3000",
    "dfs.namenode.safemode.extension": "0",
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    "dfs.namenode.handler.count": "6",
    "dfs.datanode.handler.count": "4",
    "dfs.datanode.du.reserved": "0",
    "dfs.namenode.resource.du.reserved": "1048576",
    "dfs.namenode.fs-limits.min-block-size": "1024",
    "hadoop.http.max.threads": "16",
}


@dataclass(frozen=True, slots=True)
class HadoopConfig:
    """What all daemons and clients of one HDFS agree on."""

    namenode: str = "127.0.0.1"
    """The NameNode's host, as everybody else resolves it."""
    port: int = 9000
    web_port: int = 9870
    replication: int = 1
    permissions: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further Hadoop settings; they win."""

    @property
    def url(self) -> str:
        """What clients are given: ``hdfs://nn:9000``."""
        return f"hdfs://{self.namenode}:{self.port}"

    @property
    def web(self) -> str:
        """The NameNode's HTTP address, for WebHDFS."""
        return f"http://{self.namenode}:{self.web_port}"

    def write(self, folder: Path, more: Mapping[str, str] | None = None) -> Path:
        """Write a configuration folder (HADOOP_CONF_DIR); ``more`` is one daemon's own."""
        folder.mkdir(parents=True, exist_ok=True)
        site = {
            **_SETTINGS,
            "dfs.replication": str(self.replication),
            "dfs.permissions.enabled": str(self.permissions).lower(),
            "dfs.namenode.rpc-address": f"{self.namenode}:{self.port}",
            "dfs.namenode.http-address": f"{self.namenode}:{self.web_port}",
            **(more or {}),
            **self.settings,
        }
        _write_xml(folder / "core-site.xml", {"fs.defaultFS": self.url})
        _write_xml(folder / "hdfs-site.xml", site)
        (folder / "log4j2.properties").write_text(_LOGGING)
        return folder


class _HadoopDaemon(Daemon):
    main = ""
    heap_mb = 192

    def __init__(
        self,
        folder: Path,
        config: HadoopConfig,
        host: str,
        prefix: Sequence[str] = (),
        *,
        dies_with_parent: bool = True,
    ) -> None:
        super().__init__(folder, prefix=prefix, dies_with_parent=dies_with_parent)
        self.config = config
        self.host = host
        self.name = f"{type(self).__name__.lower()}-{host}"

    @property
    def data(self) -> Path:
        """Where the daemon keeps what it must not lose."""
        return self.folder / "data" / self.name

    def settings(self) -> dict[str, str]:
        """This daemon's own part of the configuration."""
        return {}

    def command(self, *arguments: str) -> list[str]:
        """The JVM's command line; the configuration is written anew each time."""
        conf = self.config.write(self.folder / "conf" / self.name, self.settings())
        return [
            java(), *_JVM, f"-Xmx{self.heap_mb}m",
            f"-Dlog4j2.configurationFile={conf / 'log4j2.properties'}",
            "-cp", os.pathsep.join([str(conf), classpath()]), self.main, *arguments,
        ]  # fmt: skip


class NameNode(_HadoopDaemon):
    """The NameNode. Its folder is formatted at the first start."""

    main = "org.apache.hadoop.hdfs.server.namenode.NameNode"
    ready_text = "RPC up at"

    def settings(self) -> dict[str, str]:
        """Its folder, and that it listens on every address of its host."""
        bind = "127.0.0.1" if self.config.namenode == "127.0.0.1" else "0.0.0.0"
        return {
            "dfs.namenode.name.dir": (self.data / "name").as_uri(),
            "dfs.namenode.rpc-bind-host": bind,
            "dfs.namenode.http-bind-host": bind,
        }

    def start(self) -> None:
        """Format the folder if it is new, then start."""
        if not (self.data / "name" / "current" / "VERSION").exists():
            self.format()
        super().start()

    def format(self) -> None:
        """Make the folder an empty file system."""
        self.data.mkdir(parents=True, exist_ok=True)
        command = self.command("-format", "-force", "-nonInteractive")
        done = subprocess.run([*self.prefix, *command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServiceError(f"can't format {self.data}:\n{done.stdout}{done.stderr}")


class DataNode(_HadoopDaemon):
    """A DataNode that calls itself ``host``.

    It uses Hadoop's usual ports (9866, 9864, 9867), for hosts with an address of their own, or
    with ``any_port`` free ones on loopback, so that several can share one machine.
    """

    main = "org.apache.hadoop.hdfs.server.datanode.DataNode"
    ready_text = "Successfully sent block report"

    def __init__(
        self,
        folder: Path,
        config: HadoopConfig,
        host: str,
        prefix: Sequence[str] = (),
        *,
        any_port: bool = False,
        dies_with_parent: bool = True,
    ) -> None:
        super().__init__(folder, config, host, prefix, dies_with_parent=dies_with_parent)
        self.any_port = any_port

    def settings(self) -> dict[str, str]:
        """Its folder, name and ports."""
        ports = {"address": 9866, "http.address": 9864, "ipc.address": 9867}
        bind = "127.0.0.1" if self.any_port else "0.0.0.0"
        return {
            "dfs.datanode.data.dir": self.data.as_uri(),
            "dfs.datanode.hostname": self.host,
            **{
                f"dfs.datanode.{name}": f"{bind}:{0 if self.any_port else port}"
                for name, port in ports.items()
            },
        }

    def start(self) -> None:
        """Start; the NameNode need not be up yet."""
        self.data.mkdir(parents=True, exist_ok=True)
        self.data.chmod(0o700)
        super().start()


class LocalHdfs:
    """An HDFS on loopback: a NameNode and DataNodes named h1, h2, … with free ports."""

    def __init__(
        self,
        folder: Path,
        *,
        datanodes: int = 1,
        replication: int = 1,
        permissions: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        port, web_port = free_ports(2)
        self.folder = Path(folder)
        self.config = HadoopConfig(
            port=port, web_port=web_port, replication=replication,
            permissions=permissions, settings=settings or {},
        )  # fmt: skip
        self.namenode = NameNode(self.folder, self.config, "nn")
        self.datanodes = [
            DataNode(self.folder, self.config, f"h{i + 1}", any_port=True) for i in range(datanodes)
        ]

    @property
    def url(self) -> str:
        """``hdfs://127.0.0.1:PORT``."""
        return self.config.url

    @property
    def web(self) -> str:
        """The NameNode's HTTP address."""
        return self.config.web

    def start(self) -> None:
        """Start all daemons; return when every DataNode can be written to."""
        daemons = [self.namenode, *self.datanodes]
        for daemon in daemons:
            daemon.start()
        for daemon in daemons:
            daemon.wait_ready()

    def stop(self) -> None:
        """End all daemons."""
        for daemon in (*self.datanodes, self.namenode):
            daemon.stop()

    def __enter__(self) -> LocalHdfs:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def safe_mode(self, *, on: bool) -> None:
        """Put the NameNode into safe mode (read only), or end it."""
        self.admin("-safemode", "enter" if on else "leave")

    def admin(self, *arguments: str) -> str:
        """What ``hdfs dfsadmin`` says."""
        conf = self.config.write(self.folder / "conf" / "client")
        done = subprocess.run(
            [java(), *_JVM, "-cp", os.pathsep.join([str(conf), classpath()]),
             "org.apache.hadoop.hdfs.tools.DFSAdmin", *arguments],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise ServiceError(f"dfsadmin {' '.join(arguments)} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def live_datanodes(self) -> int:
        """How many DataNodes the NameNode believes to be alive."""
        return int(self._bean("FSNamesystemState")["NumLiveDataNodes"])

    def wait_live(self, count: int, within_s: float = 60) -> None:
        """Wait until the NameNode counts that many live DataNodes."""
        wait_until(lambda: self.live_datanodes() == count, f"{count} live DataNodes", within_s)

    def _bean(self, name: str) -> dict[str, Any]:
        query = f"{self.web}/jmx?qry=Hadoop:service=NameNode,name={name}"
        with urllib.request.urlopen(query, timeout=10) as answer:
            (bean,) = json.load(answer)["beans"]
        return dict(bean)


def java() -> str:
    """The Java to run: JAVA_HOME's, else the one on PATH."""
    if (home := os.environ.get("JAVA_HOME")) and (found := Path(home) / "bin" / "java").exists():
        return str(found)
    if (program := shutil.which("java")) is None:
        raise ServiceError("HDFS needs Java. What to do: ./run setup, or install Java 17 or newer")
    return program


def classpath() -> str:
    """The jars of a daemon, fetched if need be."""
    jars = [fetch_jars()]
    folder = _spark_jars_folder()
    for pattern in _SPARK_JARS:
        found = sorted(folder.glob(f"{pattern}.jar"))
        if not found:
            raise ServiceError(f"PySpark in {folder} has no {pattern}.jar")
        jars += found
    return os.pathsep.join(map(str, jars))


def fetch_jars() -> Path:
    """The jar with the daemons: from the cache, else through Maven."""
    folder = cache_folder(f"hadoop-{VERSION}")
    jar = folder / f"hadoop-client-minicluster-{VERSION}.jar"
    with locked(folder):
        if not jar.exists():
            _fetch(jar)
    return jar


def _fetch(jar: Path) -> None:
    if (maven := shutil.which("mvn")) is None:
        raise ServiceError("Hadoop's jars come through Maven. What to do: install maven (mvn)")
    parts = jar.parent / "fetching"
    command = [
        maven, "-q", "-B", "dependency:copy", f"-Dartifact={_SERVER_JAR}",
        f"-DoutputDirectory={parts}",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=jar.parent, capture_output=True, text=True, check=False, timeout=900
    )
    if done.returncode != 0:
        raise ServiceError(f"Maven could not fetch {_SERVER_JAR}:\n{done.stdout[-2000:]}")
    (parts / jar.name).replace(jar)
    parts.rmdir()


def _spark_jars_folder() -> Path:
    from importlib.util import find_spec

    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServiceError("Hadoop's client jars come with PySpark. What to do: ./run setup")
    return Path(spec.origin).parent / "jars"


def _write_xml(path: Path, properties: Mapping[str, str]) -> None:
    items = "".join(
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in properties.items()
    )
    path.write_text(f'<?xml version="1.0"?>\n<configuration>\n{items}</configuration>\n')
