"""Seeds and what they show: one in this process, or many in processes of their own.

A process that crashes, or hangs, takes nothing with it but the seed that it had in hand.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import itertools
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType

from holdfast.testing.simulation.simulation import Simulation

__all__ = ["Failure", "Shown", "run_seed", "run_seeds", "show_seed"]

# Of processor time, for machines are busy: no seed takes a tenth of it.
_MOST_CPU_S = 60.0
# Somebody waits for what never comes: no machine is as busy as that.
_HANGS_S = 900.0
_ENDS_S = 10.0
_COLLECTED_EVERY = 10


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


@dataclass(frozen=True)
class Shown:
    """All that happened in a seed."""

    failure: Failure | None
    course: str
    """Stands for the order in which everything happened."""
    trace: tuple[str, ...]
    struck: Counter[str]
    """What went wrong in its world, and how often."""


_Answer = tuple[Failure | None, Counter[str]]


class _TooLong(BaseException):
    """Nothing in a world catches this."""


def run_seed(
    seed: int, program: str | None = None, struck: Counter[str] | None = None
) -> Failure | None:
    """Run one seed; what is wrong, if anything. ``struck`` counts what went wrong in its world."""
    with _in_memory() as folder:
        shown = _run(seed, program, folder, always=False)
    if struck is not None:
        struck.update(shown.struck)
    return shown.failure


def show_seed(seed: int, program: str | None = None) -> Shown:
    """Run one seed; what happened, whether or not anything is wrong."""
    with _in_memory() as folder:
        return _run(seed, program, folder, always=True)


def _in_memory() -> tempfile.TemporaryDirectory[str]:
    """Where disks of simulated hosts are: in memory, if files can be there."""
    memory = Path("/dev/shm")  # noqa: S108
    within = str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="holdfast-simulation-", dir=within)


def _run(seed: int, program: str | None, folder: str, *, always: bool) -> Shown:
    simulation = Simulation(seed, Path(folder) / "world", program)
    error = None
    try:
        with _limited(), _uncollected():
            simulation.run()
    except (Exception, _TooLong) as caught:  # noqa: BLE001 - whatever it is, the seed has found it
        error = f"{type(caught).__name__.lstrip('_')}: {caught}".replace(folder, "")
    # Disks are in another place every time: of that nothing is told.
    told = simulation.world.trace() if always or error is not None else ()
    trace = tuple(line.replace(folder, "") for line in told)
    failure = None if error is None else Failure(seed, program, error, trace)
    return Shown(failure, simulation.world.course(), trace, Counter(simulation.struck()))


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Not longer than any seed takes."""
    previous = signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, _MOST_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, previous)


def _too_long(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise _TooLong(f"the seed has taken {_MOST_CPU_S:.0f} s of processor time, too much for any")


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """A world is small, and is gone soon: looking for garbage meanwhile takes a tenth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# Many


def run_seeds(
    seeds: Iterable[int],
    program: str | None = None,
    processes: int = 1,
    struck: Counter[str] | None = None,
) -> Iterator[Failure | None]:
    """Run seeds, some at once, in processes of their own; what each has shown, as they end.

    ``struck``: see :func:`run_seed`.
    """
    with _in_memory() as folder:
        for failure, of_seed in _run_beside(iter(seeds), program, folder, processes):
            if struck is not None:
                struck.update(of_seed)
            yield failure


def _run_beside(
    seeds: Iterator[int], program: str | None, folder: str, processes: int
) -> Iterator[_Answer]:
    workers = [_Worker(program, folder) for _ in range(processes)]
    busy: dict[Connection, _Worker] = {}
    try:
        while True:
            for worker in workers:
                if worker.pipe not in busy and (seed := next(seeds, None)) is not None:
                    worker.begin(seed)
                    busy[worker.pipe] = worker
            if not busy:
                return
            for pipe in wait(list(busy), timeout=_ENDS_S) or _hanging(busy):
                assert isinstance(pipe, Connection)
                worker = busy.pop(pipe)
                answer = worker.answer()
                if not worker.lives:
                    workers[workers.index(worker)] = _Worker(program, folder)
                yield answer
    finally:
        for worker in workers:
            worker.end()


def _hanging(busy: dict[Connection, _Worker]) -> list[Connection]:
    """Those of which nothing was heard for too long; from now on there will be."""
    late = [pipe for pipe, worker in busy.items() if worker.hangs]
    for pipe in late:
        # Tells where it stands while it goes.
        busy[pipe].abort()
    return late


class _Worker:
    """A process, and the seed that it has in hand."""

    def __init__(self, program: str | None, folder: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self._program = program
        self._seed = 0
        self._since = time.monotonic()
        self._was_aborted = False
        self.lives = True
        # Spawned, for a fork has threads of libraries that don't run.
        self._process = context.Process(target=_work, args=(other, program, folder), daemon=True)
        self._process.start()
        other.close()

    def begin(self, seed: int) -> None:
        """Run this one."""
        self._seed, self._since = seed, time.monotonic()
        with contextlib.suppress(OSError):  # it has gone meanwhile: its answer tells
            self.pipe.send(seed)

    @property
    def hangs(self) -> bool:
        """Whether nothing was heard of it for too long."""
        return time.monotonic() > self._since + _HANGS_S

    def abort(self) -> None:
        """End it, so that it says where it was."""
        self._was_aborted = True
        if self._process.pid is not None:
            os.kill(self._process.pid, signal.SIGABRT)
        self._process.join(_ENDS_S)
        self._process.kill()

    def answer(self) -> _Answer:
        """What the seed has shown; also if that was its process' end."""
        try:
            answer: _Answer = self.pipe.recv()
        except (EOFError, OSError):
            self.lives = False
            self.end()
            code = self._process.exitcode
            why = f"it took {_HANGS_S:.0f} s" if self._was_aborted else f"exit code {code}"
            failure = Failure(self._seed, self._program, f"its process ended: {why}", ())
            answer = failure, Counter()
        return answer

    def end(self) -> None:
        """It isn't needed any more."""
        self.pipe.close()
        self._process.join(0.0 if self.lives else _ENDS_S)
        self._process.kill()
        self._process.join()


def _work(pipe: Connection, program: str | None, within: str) -> None:
    """What a worker does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(sys.stderr)
    # What was imported stays: nobody needs to look through it again.
    gc.collect()
    gc.freeze()
    with tempfile.TemporaryDirectory(dir=within) as folder:
        for number in itertools.count(1):
            try:
                seed = pipe.recv()
            except EOFError:
                return
            shown = _run(seed, program, folder, always=False)
            pipe.send((shown.failure, shown.struck))
            if number % _COLLECTED_EVERY == 0:
                gc.collect()
