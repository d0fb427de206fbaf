"""``./run lab``: a lab by hand."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.lab.lab import Lab
from bench.lab.network import check_allowed
from bench.services.daemon import ServiceError
from holdfast.errors import HoldfastError

__all__ = ["main"]

_FOLDERS = Path(__file__).resolve().parent.parent.parent / "out" / "lab"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    options = _parser().parse_args(arguments)
    try:
        check_allowed()
        done: int | None = options.do(options)
    except (HoldfastError, ServiceError) as error:
        print(f"./run lab: {error}", file=sys.stderr)
        return 1
    return done or 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./run lab", description="Many hosts on this machine, with Spark and HDFS. Needs root."
    )
    parser.add_argument("--name", default="lab", help="which lab, if there are several (lab)")
    parser.add_argument("--folder", type=Path, help="where it keeps its files (out/lab/NAME)")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_up(commands.add_parser("up", help="make a lab and start everything"))
    for name, do, words in (
        ("kill", Lab.kill, "a host dies: SIGKILL to everything on it"),
        ("start", Lab.start, "start again what was killed on a host"),
        ("cut", Lab.cut, "pull a host's cable out"),
        ("heal", Lab.heal, "put it back"),
        ("kill-executors", Lab.kill_executors, "executors die, their host lives"),
        ("kill-datanode", Lab.kill_datanode, "HDFS loses a host, Spark doesn't"),
    ):
        command = commands.add_parser(name, help=words)
        command.add_argument("host")
        command.set_defaults(do=_to_host(do))
    command = commands.add_parser("rate", help="limit every cable, e.g. to 50mbit; none lifts it")
    command.add_argument("rate")
    command.set_defaults(do=lambda o: _lab(o).rate(_rate(o.rate)))
    command = commands.add_parser("add-host", help="one more host")
    command.set_defaults(do=lambda o: print(_lab(o).add_host()))
    command = commands.add_parser("exec", help="run a command on a host: exec drv pyspark")
    command.add_argument("host")
    command.add_argument("command", nargs=argparse.REMAINDER)
    command.set_defaults(do=_exec)
    command = commands.add_parser("status", help="what runs where, and bytes over the wire")
    command.set_defaults(do=_status)
    command = commands.add_parser("down", help="end everything and remove the lab; logs stay")
    command.set_defaults(do=_down)
    return parser


def _add_up(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, default=3, help="h1, h2, … beside nn and drv (3)")
    parser.add_argument("--hdfs", action="store_true", help="a NameNode and a DataNode per host")
    parser.add_argument("--rate", help="limit every cable, e.g. 200mbit")
    parser.add_argument("--cores", type=int, default=2, help="of a host (2)")
    parser.add_argument("--memory", default="1g", help="of a host's executors together (1g)")
    parser.add_argument("--executors-per-host", type=int, default=1, help="(1)")
    parser.add_argument("--disk-size", help="make each host's disk a tmpfs of this size, e.g. 64m")
    parser.add_argument("--replication", type=int, help="of HDFS (3, or the number of hosts)")
    parser.add_argument("--rack", action="append", default=[], metavar="h1=/r1", type=_rack)
    parser.set_defaults(do=_up)


def _up(options: argparse.Namespace) -> None:
    lab = Lab(
        _folder(options),
        hosts=options.hosts,
        hdfs=options.hdfs,
        rate=_rate(options.rate),
        cores=options.cores,
        memory=options.memory,
        executors_per_host=options.executors_per_host,
        disk_size=options.disk_size,
        replication=options.replication,
        racks=dict(options.rack),
        name=options.name,
    ).up()
    print(f"up in {lab.up_seconds:.1f} s: {', '.join(lab.hosts)}")
    print(f"Spark        {lab.master_url}")
    if options.hdfs:
        print(f"HDFS         {lab.hdfs_url}")
    print(f"each disk at {lab.local_disk}")
    print(f"logs in      {lab.logs}")


def _exec(options: argparse.Namespace) -> None:
    line, variables = _lab(options).command(options.host, options.command or ["bash"])
    sys.stdout.flush()
    os.execvpe(line[0], line, os.environ | variables)  # signals and exit code are the program's


def _status(options: argparse.Namespace) -> None:
    lab = _lab(options)
    alive, live = lab.alive_workers(), lab.live_datanodes()
    print(f"{'host':6} {'cable':6} {'received':>12} {'sent':>12}  runs")
    for host in lab.hosts:
        received, sent = lab.bytes(host)
        cable = "cut" if lab.is_cut(host) else "ok"
        programs = ", ".join(sorted(_program(c) for c in lab.commands(host).values()))
        known = [s for s, up in (("Spark", alive), ("HDFS", live)) if host in up]
        words = f"  (known to {' and '.join(known)})" if known else ""
        print(f"{host:6} {cable:6} {received:12,} {sent:12,}  {programs or '-'}{words}")


def _down(options: argparse.Namespace) -> None:
    # Without a state file too: a crash may have come before it was written.
    Lab(_folder(options), hosts=1, name=options.name).down()


def _program(command: str) -> str:
    """What to call a process: a JVM by its main class, others by their program.

    >>> _program("java -Xmx1g org.apache.spark.deploy.worker.Worker --host h1")
    'Worker'
    """
    words = command.split() or ["?"]
    mains = [w for w in words if w.startswith("org.apache.") and "/" not in w]
    return mains[0].rpartition(".")[2] if mains else Path(words[0]).name


def _to_host(do: Callable[[Lab, str], object]) -> Callable[[argparse.Namespace], None]:
    def call(options: argparse.Namespace) -> None:
        do(_lab(options), options.host)

    return call


def _lab(options: argparse.Namespace) -> Lab:
    return Lab.attach(_folder(options))


def _folder(options: argparse.Namespace) -> Path:
    folder: Path | None = options.folder
    return _FOLDERS / options.name if folder is None else folder


def _rate(text: str | None) -> str | None:
    return None if text in (None, "none") else text


def _rack(text: str) -> tuple[str, str]:
    host, _, rack = text.partition("=")
    if not rack.startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!r} isn't of the form h1=/r1")
    return host, rack


if __name__ == "__main__":
    sys.exit(main())
