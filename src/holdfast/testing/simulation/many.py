"""``./run simulate``: many seeds, or one of them once more."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from holdfast.testing.simulation.kinds import told_of
from holdfast.testing.simulation.programs import PROGRAMS
from holdfast.testing.simulation.simulation import Simulation

__all__ = ["Failure", "main", "run_seed", "run_seeds"]

_MOST_S = 60.0
_TRACE_LINES = 60


@dataclass(frozen=True)
class Failure:
    """A seed that shows a fault."""

    seed: int
    program: str | None
    error: str
    trace: tuple[str, ...]

    @property
    def replay(self) -> str:
        """The line that runs it again."""
        program = f" --program {self.program}" if self.program else ""
        return f"./run simulate --seed {self.seed}{program}"


def run_seed(
    seed: int, program: str | None = None, struck: Counter[str] | None = None
) -> Failure | None:
    """Run one seed; what is wrong, if anything. ``struck`` counts what went wrong in its world."""
    memory = Path("/dev/shm")  # noqa: S108 - disks of simulated hosts are in memory, if there is any
    within = str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="holdfast-simulation-", dir=within) as folder:
        simulation = Simulation(seed, Path(folder) / "world", program)
        previous = signal.signal(signal.SIGALRM, _too_long)
        signal.setitimer(signal.ITIMER_REAL, _MOST_S)
        try:
            simulation.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the seed has found it
            said = f"{type(error).__name__}: {error}"
            return Failure(seed, program, said, tuple(simulation.world.trace()))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, previous)
            if struck is not None:
                struck.update(simulation.struck())
    return None


def _too_long(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise TimeoutError(f"the seed has taken more than {_MOST_S:.0f} s, which is too much for any")


def _run(job: tuple[int, str | None]) -> tuple[Failure | None, Counter[str]]:
    struck: Counter[str] = Counter()
    return run_seed(*job, struck), struck


def run_seeds(
    seeds: Iterable[int],
    program: str | None = None,
    processes: int = 1,
    struck: Counter[str] | None = None,
) -> Iterator[Failure | None]:
    """Run seeds, some at once; what each has shown, as they end. ``struck``: see :func:`run_seed`."""
    jobs = ((seed, program) for seed in seeds)
    found: Iterator[tuple[Failure | None, Counter[str]]]
    with ExitStack() as held:
        if processes == 1:
            found = map(_run, jobs)
        else:
            pool = held.enter_context(multiprocessing.get_context("spawn").Pool(processes))
            found = pool.imap_unordered(_run, jobs, chunksize=4)
        for failure, of_seed in found:
            if struck is not None:
                struck.update(of_seed)
            yield failure


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="./run simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="this one, with its trace")
    parser.add_argument("--seeds", type=int, default=2000, help="how many (default: 2000)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first of them")
    parser.add_argument("--minutes", type=float, help="for so long, instead of a number")
    parser.add_argument("--program", choices=sorted(PROGRAMS), help="only this one")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--faults", action="store_true", help="tell how often each kind struck")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        return _one(given.seed, given.program)
    began = time.monotonic()
    until = None if given.minutes is None else began + 60 * given.minutes
    seeds: Iterable[int] = range(given.first, given.first + given.seeds)
    if until is not None:
        seeds = itertools.takewhile(
            lambda _: time.monotonic() < until, itertools.count(given.first)
        )
    done, failures = 0, 0
    struck: Counter[str] = Counter()
    for failure in run_seeds(seeds, given.program, given.processes, struck):
        done += 1
        if failure is not None:
            failures += 1
            _say(f"\r{failure.replay}   # {failure.error.splitlines()[0][:200]}\n")
        if sys.stdout.isatty() or done % 100 == 0:
            spent = time.monotonic() - began
            _say(f"\r{done} seeds, {failures} failed, {spent:.0f} s, {done / spent:.1f} a second")
            _say("" if sys.stdout.isatty() else "\n")
    _say(f"\n{done} seeds in {time.monotonic() - began:.0f} s: {failures} have shown a fault\n")
    if given.faults and done:
        _say("".join(f"{line}\n" for line in told_of(struck, done)))
    return 1 if failures else 0


def _one(seed: int, program: str | None) -> int:
    failure = run_seed(seed, program)
    if failure is None:
        _say(f"seed {seed}: nothing is wrong\n")
        return 0
    file = Path(tempfile.gettempdir()) / f"holdfast-simulation-{seed}.txt"
    file.write_text("\n".join(failure.trace) + "\n")
    for line in failure.trace[-_TRACE_LINES:]:
        _say(f"{line}\n")
    _say(f"{failure.error}\nthe whole trace is in {file}\n")
    return 1


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
