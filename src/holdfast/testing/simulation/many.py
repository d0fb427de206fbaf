"""``./run simulate``: many seeds, or one of them once more."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.testing.simulation.kinds import told_of
from holdfast.testing.simulation.programs import PROGRAMS
from holdfast.testing.simulation.seeds import run_seeds, show_seed

__all__ = ["main", "readable"]

_TRACE_LINES = 60
_SAY_EVERY_S = 30.0


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; 1 if anything was found."""
    parser = argparse.ArgumentParser(
        prog="./run simulate",
        description="Many seeds, or one of them once more.",
        epilog="./run simulate --mutants -h: whether faults that are put in are found.",
    )
    parser.add_argument("--seed", type=int, help="only this one, with its trace")
    parser.add_argument("--seeds", type=int, default=2000, help="how many (default: 2000)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first of them")
    parser.add_argument("--minutes", type=float, help="for so long, instead of --seeds")
    parser.add_argument("--program", choices=sorted(PROGRAMS), help="only pipelines of this kind")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="at once (default: one per core)"
    )
    parser.add_argument("--faults", action="store_true", help="tell how often each kind struck")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        return _one(given.seed, given.program)
    count = None if given.minutes is not None else given.seeds
    progress = _Progress(count, None if given.minutes is None else 60 * given.minutes)
    numbers = (
        itertools.count(given.first)
        if count is None
        else iter(range(given.first, given.first + count))
    )
    struck: Counter[str] = Counter()
    try:
        wanted = progress.until_over(numbers)
        for failure in run_seeds(wanted, given.program, given.processes, struck):
            if failure is not None:
                progress.failed(f"{failure.replay}   # {failure.error.splitlines()[0][:200]}")
            progress.done_one()
    except KeyboardInterrupt:
        pass
    code = progress.end()
    if given.faults and progress.done:
        _say("".join(f"{line}\n" for line in told_of(struck, progress.done)))
    return code


class _Progress:
    """How far it is, for people."""

    def __init__(self, count: int | None, lasts_s: float | None) -> None:
        self._count, self._lasts_s = count, lasts_s
        self._began = self._said = time.monotonic()
        self.done = self._failures = 0
        self._on_screen = sys.stdout.isatty()

    def until_over(self, seeds: Iterator[int]) -> Iterator[int]:
        """The seeds, as long as there is time."""
        lasts_s = self._lasts_s
        return itertools.takewhile(lambda _: lasts_s is None or self._spent_s < lasts_s, seeds)

    @property
    def _spent_s(self) -> float:
        return time.monotonic() - self._began

    def failed(self, line: str) -> None:
        """Something is wrong with a seed."""
        self._failures += 1
        self._say(f"{line}\n")

    def done_one(self) -> None:
        """A seed has ended."""
        self.done += 1
        if time.monotonic() >= self._said + (1.0 if self._on_screen else _SAY_EVERY_S):
            self._said = time.monotonic()
            self._say(self._words() + ("" if self._on_screen else "\n"))

    def end(self) -> int:
        """Say what has come of it; 1 if anything was found, or nothing was looked at."""
        found = f"{self._failures} have shown a fault" if self._failures else "nothing is wrong"
        found = found if self.done else "none was run"
        self._say(f"{self.done} seeds in {self._spent_s:.0f} s: {found}\n")
        return 1 if self._failures or not self.done else 0

    def _words(self) -> str:
        spent_s = self._spent_s
        rate = self.done / spent_s
        left_s = self._lasts_s - spent_s if self._lasts_s is not None else 0.0
        if self._count is not None:
            left_s = (self._count - self.done) / rate
        left = f"{left_s / 60:.0f} min" if left_s > 90 else f"{max(0.0, left_s):.0f} s"
        return f"{self.done} seeds, {self._failures} failed, {rate:.1f} a second, {left} left"

    def _say(self, text: str) -> None:
        _say(f"\r\033[K{text}" if self._on_screen else text)


def _one(seed: int, program: str | None) -> int:
    shown = show_seed(seed, program)
    lines = readable(shown.trace)
    file = Path(tempfile.gettempdir()) / f"holdfast-simulation-{seed}.txt"
    file.write_text(
        "\n".join([*lines, shown.failure.error if shown.failure else "nothing is wrong", ""])
    )
    if len(lines) > _TRACE_LINES:
        _say(f"… {len(lines) - _TRACE_LINES} lines before these are in {file}\n")
    for line in lines[-_TRACE_LINES:]:
        _say(f"{line}\n")
    if shown.failure is None:
        _say(f"seed {seed}: nothing is wrong; all that happened is in {file}\n")
        return 0
    _say(f"\n{shown.failure.error}\nall that happened before is in {file}\n")
    return 1


def readable(trace: Sequence[str]) -> list[str]:
    """A trace for people: seconds from the beginning, and what is told again and again once.

    >>> readable(["1000.000000 a/main: up", "1001.500000 b/main: on", "1002.500000 b/main: on"])
    ['     0.000000  a/main  up', '     1.500000  b/main  on', '     2.500000  b/main  … once more']
    """
    split = [line.split(" ", 2) for line in trace]
    began = float(split[0][0]) if split else 0.0
    width = min(28, max((len(who) - 1 for _, who, _ in split), default=0))
    lines: list[str] = []
    for (_, who, text), told in itertools.groupby(split, key=lambda one: (0, *one[1:])):
        times = [float(one[0]) - began for one in told]
        name = who.removesuffix(":")
        lines.append(f"{times[0]:13.6f}  {name:<{width}}  {text}")
        if len(times) > 1:
            again = "once more" if len(times) == 2 else f"{len(times) - 1} times more"
            lines.append(f"{times[-1]:13.6f}  {name:<{width}}  … {again}")
    return lines


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
