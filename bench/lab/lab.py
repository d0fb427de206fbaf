"""The lab: hosts with Spark and HDFS on one machine, and everything that can happen to them."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO

from bench.lab import spark
from bench.lab.guard import Guard
from bench.lab.hdfs import Hdfs, rack_settings
from bench.lab.names import (
    DRIVER,
    MASTER,
    Place,
    address_of,
    enter_command,
    hosts_file,
    namespace_of,
    rack_table,
    worker_names,
)
from bench.lab.network import Network, check_allowed
from bench.lab.processes import commands_in, descendants, kill, kill_all
from bench.lab.state import Setup
from bench.lab.teardown import tear_down
from bench.services.hadoop import DataNode, NameNode
from holdfast.errors import InputError

__all__ = ["Lab"]

_numbers = itertools.count(1)
AnyDaemon = spark.SparkMaster | spark.SparkWorker | NameNode | DataNode
File = IO[str] | int | None


def _own_name() -> str:
    number = next(_numbers)
    return f"t-{os.getpid()}" + (f"-{number}" if number > 1 else "")


class Lab:
    """Hosts ``nn`` (NameNode, Spark's master), ``drv`` (drivers) and ``h1``, ``h2``, … (workers).

    As a context manager it is gone at the end, also if this process is killed. With :meth:`up` and
    :meth:`down` it stays until somebody takes it down: :meth:`attach` finds it again.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        hosts: int = 3,
        hdfs: bool = False,
        rate: str | None = None,
        cores: int = 2,
        memory: str = "1g",
        executors_per_host: int = 1,
        racks: Mapping[str, str] | None = None,
        disk_size: str | None = None,
        replication: int | None = None,
        name: str | None = None,
    ) -> None:
        self._take(
            Path(folder),
            Setup(
                name=name or _own_name(),
                workers=worker_names(hosts),
                hdfs=hdfs,
                rate=rate,
                cores=cores,
                memory=memory,
                executors_per_host=executors_per_host,
                racks=dict(racks or {}),
                disk_size=disk_size,
                replication=replication or min(3, hosts),
            ),
        )

    def _take(self, folder: Path, setup: Setup) -> None:
        self._place = Place(folder.resolve())
        self._setup = setup
        self._network = Network(setup.name)
        self._hdfs = (
            Hdfs(setup.name, self._place, setup.replication, setup.racks) if setup.hdfs else None
        )
        self._daemons: dict[str, list[AnyDaemon]] = {}
        self._programs: list[tuple[str, subprocess.Popen[str]]] = []
        self._guard: Guard | None = None
        self.up_seconds = 0.0

    @classmethod
    def attach(cls, folder: str | os.PathLike[str]) -> Lab:
        """The lab that was left up in this folder."""
        check_allowed()
        lab = cls.__new__(cls)
        lab._take(Path(folder), Setup.load(Place(Path(folder).resolve()).state))
        return lab

    # What it is

    @property
    def name(self) -> str:
        """The lab's name: its namespaces begin with it."""
        return self._setup.name

    @property
    def folder(self) -> Path:
        """Everything the lab writes."""
        return self._place.folder

    @property
    def workers(self) -> tuple[str, ...]:
        """The hosts that compute and store."""
        return self._setup.workers

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts."""
        return (MASTER, DRIVER, *self._setup.workers)

    @property
    def master_url(self) -> str:
        """Spark's master."""
        return spark.MASTER_URL

    @property
    def hdfs_url(self) -> str:
        """The root of HDFS."""
        if self._hdfs is None:
            raise InputError("this lab has no HDFS", hint="open it with hdfs=True, or --hdfs")
        return self._hdfs.config.url

    @property
    def local_disk(self) -> Path:
        """The path at which each host sees its own disk: put ``local_dir`` under it."""
        return self._place.common

    def disk(self, host: str) -> Path:
        """A host's own disk, seen from outside the lab."""
        return self._place.disk(self._known(host))

    @property
    def logs(self) -> Path:
        """The folder of all logs: a file per daemon, executors' in ``work-HOST``."""
        return self.folder / "logs"

    def spark_conf(self) -> dict[str, str]:
        """Settings of driver programs, which ``SPARK_CONF_DIR`` gives them anyway."""
        racks = rack_settings(self._place.racks) if self._setup.racks else {}
        executors = spark.driver_conf(self._setup.executor_cores, self._setup.executor_mib)
        return executors | {f"spark.hadoop.{name}": value for name, value in racks.items()}

    # Up and down

    def __enter__(self) -> Lab:
        check_allowed()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._guard = Guard(self.name, self.folder)
        try:
            return self.up()
        except BaseException:
            self._dismiss_guard()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()
        self._dismiss_guard()

    def _dismiss_guard(self) -> None:
        if self._guard is not None:
            self._guard.dismiss()
            self._guard = None

    def up(self) -> Lab:
        """Make the hosts and start everything. What an earlier lab left behind goes first."""
        check_allowed()
        began = time.monotonic()
        if self._place.state.exists():
            tear_down(Setup.load(self._place.state).name, self.folder)
        tear_down(self.name, self.folder)
        try:
            self._make()
            self._start(self.hosts)
        except BaseException:
            self.down()
            raise
        self.up_seconds = time.monotonic() - began
        return self

    def down(self) -> None:
        """End everything that runs in the lab and remove it; the logs stay."""
        check_allowed()
        self._end_programs(self.hosts)
        tear_down(self.name, self.folder)
        for daemon in itertools.chain(*self._daemons.values()):
            daemon.stop()
        self._daemons.clear()

    def _make(self) -> None:
        self._place.common.mkdir(parents=True, exist_ok=True)
        for old in (self._place.conf.parent, self.logs):
            if old.exists():
                shutil.rmtree(old)
        self._place.conf.mkdir(parents=True)
        # From here on, whoever finds the folder can clean up.
        self._setup.save(self._place.state)
        self._place.hosts.write_text(hosts_file(self.name, self.hosts))
        self._place.racks.write_text(rack_table(self.name, self._setup.racks))
        if self._hdfs is not None:
            self._hdfs.config.write(self._place.conf)
        spark.write_conf(self._place.conf, self.spark_conf())
        spark.write_conf(self._place.daemon_conf, spark.daemon_conf(), daemons=True)
        self._network.make_switch()
        for host in self.hosts:
            self._make_host(host)

    def _make_host(self, host: str) -> None:
        for folder in (self.disk(host), self._place.spark(host)):
            folder.mkdir(parents=True, exist_ok=True)
        if self._setup.disk_size is not None:
            options = ("-o", f"size={self._setup.disk_size}", "holdfast-lab")
            subprocess.run(["mount", "-t", "tmpfs", *options, str(self.disk(host))], check=True)
        self._network.add(host)
        self._network.rate(host, self._setup.rate)

    # The hosts

    def start(self, host: str) -> None:
        """Start what doesn't run on a host, e.g. after :meth:`kill`; its disk is as it was."""
        if self.is_cut(host):
            raise InputError(f"{host} is cut off and can't register", hint="heal it first")
        self._start([host])

    def add_host(self) -> str:
        """One more host, up and registered; its name."""
        host = worker_names(len(self.workers) + 1)[-1]
        self._setup = self._setup.with_worker(host)
        self._setup.save(self._place.state)
        # Appended, not replaced: the hosts have mounted this very file.
        with self._place.hosts.open("a") as file:
            file.write(f"{address_of(self.name, host)} {host}\n")
        self._make_host(host)
        self.start(host)
        return host

    def kill(self, host: str) -> None:
        """The host dies: SIGKILL to everything on it. Its disk stays, for :meth:`start`."""
        self._end_programs([self._known(host)])
        kill_all(namespace_of(self.name, host))
        for daemon in self._daemons.pop(host, []):
            daemon.stop()

    def kill_executors(self, host: str) -> int:
        """Executors and their Python workers die, the host lives; how many executors there were."""
        executors = self._running(host, spark.EXECUTOR)
        kill(descendants(executors))
        return len(executors)

    def kill_datanode(self, host: str) -> None:
        """HDFS loses a host, Spark doesn't."""
        kill(self._running(host, DataNode.main))

    def cut(self, host: str) -> None:
        """Pull the host's cable: it lives, but nobody hears from it."""
        self._network.cut(self._known(host))

    def heal(self, host: str) -> None:
        """Put the cable back."""
        self._network.heal(self._known(host))

    def is_cut(self, host: str) -> bool:
        """Whether the cable is out."""
        return self._network.is_cut(self._known(host))

    def rate(self, rate: str | None) -> None:
        """Limit every cable in both directions, e.g. to "200mbit"; None lifts the limit."""
        self._setup = self._setup.with_rate(rate)
        self._setup.save(self._place.state)
        for host in self.hosts:
            self._network.rate(host, rate)

    def bytes(self, host: str) -> tuple[int, int]:
        """Bytes that a host has received and sent over its cable."""
        return self._network.bytes(self._known(host))

    def commands(self, host: str) -> dict[int, str]:
        """What runs on a host: process ids and command lines."""
        return commands_in(namespace_of(self.name, self._known(host)))

    def alive_workers(self) -> list[str]:
        """The hosts that Spark's master can use."""
        return spark.alive_workers(self.name)

    def live_datanodes(self) -> list[str]:
        """The hosts whose DataNodes the NameNode hears from."""
        return self._hdfs.live_datanodes() if self._hdfs is not None else []

    def copies_to_make(self) -> int:
        """How many blocks of HDFS have fewer copies than they should."""
        return self._hdfs.copies_to_make() if self._hdfs is not None else 0

    def racks(self) -> dict[str, str]:
        """Where the NameNode believes its hosts to stand."""
        return self._hdfs.racks() if self._hdfs is not None else {}

    # Programs

    def command(self, host: str, command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """The command line and environment that run a command on a host."""
        line = enter_command(self.name, self._known(host), self._place, command)
        return line, spark.environment_of(host, address_of(self.name, host), self._place)

    def run(
        self,
        host: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdout: File = None,
        stderr: File = None,
    ) -> subprocess.Popen[str]:
        """Start a program on a host, e.g. a driver: ``lab.run("drv", [sys.executable, "p.py"])``.

        Its process id is the program's own. What it leaves running ends with the lab.
        """
        line, variables = self.command(host, command)
        program = subprocess.Popen(
            line, env=os.environ | variables | dict(env or {}), cwd=cwd, stdout=stdout, stderr=stderr,
            stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._programs = [(h, p) for h, p in self._programs if p.poll() is None]
        self._programs.append((host, program))
        return program

    def _end_programs(self, hosts: Sequence[str]) -> None:
        """By their ids: one that was started just now may not have entered its host yet."""
        for host, program in self._programs:
            if host in hosts and program.poll() is None:
                program.kill()

    def _daemons_of(self, host: str) -> list[AnyDaemon]:
        """What should run on a host, not started."""
        prefix = enter_command(self.name, host, self._place, [])
        address = address_of(self.name, host)
        if host == MASTER:
            named: list[AnyDaemon] = [spark.SparkMaster(self._place, host, address, prefix)]
            return named + ([self._hdfs.namenode(prefix)] if self._hdfs else [])
        if host == DRIVER:
            return []
        room = (self._setup.cores, self._setup.memory)
        placed: list[AnyDaemon] = [spark.SparkWorker(self._place, host, address, prefix, *room)]
        return placed + ([self._hdfs.datanode(host, prefix)] if self._hdfs else [])

    def _start(self, hosts: Sequence[str]) -> None:
        """Start what doesn't run on these hosts, all at once; wait until all of it serves.

        Workers wait for a master: one that doesn't find it tries again many seconds later.
        """
        missing = [daemon for host in hosts for daemon in self._missing(host)]
        workers = [daemon for daemon in missing if isinstance(daemon, spark.SparkWorker)]
        with ThreadPoolExecutor(max(1, len(missing))) as pool:  # a new NameNode formats its disk
            others = [daemon for daemon in missing if daemon not in workers]
            starts = [pool.submit(daemon.start) for daemon in others]
            for daemon, start in zip(others, starts, strict=True):
                if isinstance(daemon, spark.SparkMaster):
                    start.result()
                    daemon.wait_ready()
            for worker in workers:
                worker.start()
            for start in starts:
                start.result()
        for daemon in missing:
            daemon.wait_ready()

    def _missing(self, host: str) -> list[AnyDaemon]:
        running = self.commands(host).values()
        alive = [daemon for daemon in self._daemons.get(host, []) if daemon.alive]
        missing = [
            daemon
            for daemon in self._daemons_of(host)
            if not any(daemon.main in command for command in running)
        ]
        self._daemons[host] = alive + missing
        return missing

    def _running(self, host: str, text: str) -> list[int]:
        return [pid for pid, command in self.commands(host).items() if text in command]

    def _known(self, host: str) -> str:
        if host not in self.hosts:
            raise InputError(f"this lab has no host {host!r}", hint=f"{', '.join(self.hosts)}")
        return host
