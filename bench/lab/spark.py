"""Spark standalone on the lab's hosts, from the pyspark package that is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from bench.lab.names import DRIVER, MASTER, Place
from bench.lab.web import ask
from bench.services.daemon import Daemon
from bench.services.hadoop import java
from holdfast.errors import ConfigurationError

__all__ = [
    "EXECUTOR",
    "MASTER_URL",
    "TRUSTING",
    "SparkMaster",
    "SparkWorker",
    "alive_workers",
    "daemon_conf",
    "driver_conf",
    "environment_of",
    "spark_home",
    "start_line",
    "write_conf",
]

MASTER_PORT = 7077
_PAGE_PORT = 8080
MASTER_URL = f"spark://{MASTER}:{MASTER_PORT}"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"

# The daemons' classes are what they were the last time: not checking them saves a fifth of a start.
TRUSTING = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
_DAEMON_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", *TRUSTING)

# By default a cut host is noticed after 90 to 130 seconds; with these after 9 to 13.
_NOTICE_CUT_HOSTS = {
    "spark.worker.timeout": "6",
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "2s",
    "spark.executor.heartbeatInterval": "2s",
    "spark.shuffle.io.connectionTimeout": "4s",
    "spark.shuffle.io.connectionCreationTimeout": "2s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
}

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""
# What tells that a daemon is ready.
_DAEMON_LOGGING = """\
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
"""


def spark_home() -> Path:
    """The pyspark package's folder, which is a whole Spark."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ConfigurationError("pyspark isn't installed", hint="./run setup")
    return Path(found.origin).parent


def scala_version(home: Path) -> str:
    """What Spark's scripts look for in the names of folders; without it no executor starts."""
    library = next((home / "jars").glob("spark-launcher_*.jar")).name
    return library.split("_")[1].split("-")[0]


@cache
def start_line(home: Path, conf: Path) -> tuple[str, ...]:
    """The command line of Spark's daemons up to the class that runs.

    ``bin/spark-class`` asks Spark's launcher for it, in a JVM of its own, each time; the lab
    asks once.
    """
    variables = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": scala_version(home),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join(_DAEMON_JAVA),
    }
    quick = ("-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Xmx64m")
    asked = [java(), *quick, "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main"]
    main = SparkWorker.main
    done = subprocess.run(
        [*asked, main], env=variables, capture_output=True, text=True, check=False
    )
    parts = [part.strip() for part in done.stdout.split("\0") if part.strip()]
    if done.returncode != 0 or main not in parts:
        raise ConfigurationError(
            f"Spark's launcher in {home} failed: {done.stderr.strip()[-500:]}",
            hint="check that this Java runs this Spark: ./run setup",
        )
    return tuple(parts[: parts.index(main)])


class _SparkDaemon(Daemon):
    main = ""

    def __init__(self, place: Place, host: str, address: str, prefix: Sequence[str]) -> None:
        super().__init__(place.folder, prefix=prefix, dies_with_parent=False)
        self.name = f"{type(self).__name__.lower()}-{host}"
        self.place = place
        self.host = host
        self.address = address

    def arguments(self) -> list[str]:
        """What the daemon is told."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """The JVM's command line."""
        return [*start_line(spark_home(), self.place.daemon_conf), self.main, *self.arguments()]

    def variables(self) -> Mapping[str, str]:
        """Its host's environment."""
        own = {"SPARK_CONF_DIR": str(self.place.daemon_conf)}
        return environment_of(self.host, self.address, self.place) | own


class SparkMaster(_SparkDaemon):
    """Spark's standalone master."""

    main = "org.apache.spark.deploy.master.Master"
    ready_text = "I have been elected leader"

    def arguments(self) -> list[str]:
        """Its ports."""
        ports = ("--port", str(MASTER_PORT), "--webui-port", str(_PAGE_PORT))
        return ["--host", self.host, *ports]


class SparkWorker(_SparkDaemon):
    """A worker, which starts executors on its host. Without a master it tries again, but seconds later."""

    main = "org.apache.spark.deploy.worker.Worker"
    ready_text = "Successfully registered with master"

    def __init__(
        self, place: Place, host: str, address: str, prefix: Sequence[str], cores: int, memory: str
    ) -> None:
        super().__init__(place, host, address, prefix)
        self.cores = cores
        self.memory = memory

    def arguments(self) -> list[str]:
        """How much of the host its executors may use."""
        room = ("--cores", str(self.cores), "--memory", self.memory)
        work = ("--work-dir", str(self.place.work(self.host)))
        return ["--host", self.host, *room, *work, MASTER_URL]


def daemon_conf() -> dict[str, str]:
    """Settings of master and workers."""
    return {"spark.worker.timeout": _NOTICE_CUT_HOSTS["spark.worker.timeout"]}


def driver_conf(cores: int, memory_mib: int) -> dict[str, str]:
    """Settings of a driver program whose executors have this many cores and this much memory.

    >>> driver_conf(2, 512)["spark.executor.memory"]
    '512m'
    """
    return {
        "spark.master": MASTER_URL,
        "spark.driver.host": DRIVER,
        "spark.driver.bindAddress": "0.0.0.0",
        # Paths without a scheme mean the machine's files, as they do without a lab.
        "spark.hadoop.fs.defaultFS": "file:///",
        "spark.executor.cores": str(cores),
        "spark.executor.memory": f"{memory_mib}m",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    } | _NOTICE_CUT_HOSTS


def write_conf(folder: Path, settings: Mapping[str, str], *, daemons: bool = False) -> None:
    """Settings as Spark reads them by itself: a program in the lab needs to set none."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = (f"{name} {value}\n" for name, value in sorted(settings.items()))
    (folder / "spark-defaults.conf").write_text("".join(lines))
    (folder / "log4j2.properties").write_text(_LOGGING + _DAEMON_LOGGING * daemons)


def environment_of(host: str, address: str, place: Place) -> dict[str, str]:
    """What is added to the environment of a host's processes."""
    home = spark_home()
    return {
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": scala_version(home),
        "SPARK_CONF_DIR": str(place.conf),
        "SPARK_LOCAL_DIRS": str(place.spark(host)),
        "SPARK_LOCAL_HOSTNAME": host,
        "SPARK_LOCAL_IP": address,
        "PYSPARK_PYTHON": sys.executable,
        "HADOOP_CONF_DIR": str(place.conf),
    }


def alive_workers(lab: str) -> list[str]:
    """The hosts whose workers the master counts as alive; none while there is no master."""
    answer = ask(lab, MASTER, _PAGE_PORT, "/json/")
    workers = [] if answer is None else answer["workers"]
    return sorted(worker["host"] for worker in workers if worker["state"] == "ALIVE")
