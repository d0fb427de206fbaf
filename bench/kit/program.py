"""What the benchmarks' command lines have in common."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console

from bench.kit.harness import Harness, Settings
from bench.kit.report import Report

__all__ = ["Context", "main"]

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Context:
    """What a benchmark is given."""

    quick: bool
    harness: Harness
    console: Console
    picture: Path


def main(
    name: str, benchmark: Callable[[Context], Report], arguments: Sequence[str] | None = None
) -> int:
    """Run a benchmark; 0 if every ratio was measured, whether or not it reaches its bar."""
    parser = argparse.ArgumentParser(prog=f"./run bench {name}", description=benchmark.__doc__)
    parser.add_argument("--quick", action="store_true", help="less data, the same method")
    parser.add_argument("--json", type=Path, help=f"default: out/bench/{name}.json")
    parser.add_argument("--partitions", type=int, default=2, help="of state, for everybody")
    parser.add_argument("--driver-memory", default="6g", help="for everybody")
    given = parser.parse_args(arguments)
    folder = _ROOT / "out" / "bench"
    file = (given.json or folder / f"{name}.json").resolve()
    harness = Harness(folder, Settings(given.partitions, given.driver_memory))
    console = Console(width=None if sys.stdout.isatty() else 140)
    # A benchmark that is told to end takes its children with it, as for Ctrl-C.
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        report = benchmark(Context(given.quick, harness, console, file.with_suffix(".png")))
    except KeyboardInterrupt:
        console.print("[yellow]interrupted; its processes are ended")
        return 130
    report.write(file)
    report.show(console)
    console.print(f"{_shown(file)} and {_shown(file.with_suffix('.png'))}")
    return 0 if report.complete else 1


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
