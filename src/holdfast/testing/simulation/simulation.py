"""One seed: a pipeline, its drivers and hosts, what befalls them, and whether all is well in the end.

A seed decides the program, how it is run, and a course of faults. Meanwhile every change of the
checkpoint directory is checked (:mod:`~holdfast.testing.simulation.checks`). Then nothing goes wrong
any more, and within a bounded time all input must have been processed, published once, and be in a
checkpoint; and nothing may be left that nobody names.
"""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.checkpoint.retention import Retention
from holdfast.driver.options import Options
from holdfast.errors import ConfigurationError, CorruptionError
from holdfast.tasks.here import Here
from holdfast.testing.simulation import simulating
from holdfast.testing.simulation.checks import History
from holdfast.testing.simulation.course import Course
from holdfast.testing.simulation.disks import left_behind
from holdfast.testing.simulation.driver import SimulatedDriver
from holdfast.testing.simulation.errors import WorldError
from holdfast.testing.simulation.happenings import Happenings
from holdfast.testing.simulation.inputs import Inputs
from holdfast.testing.simulation.knobs import Knobs
from holdfast.testing.simulation.machines import Machines
from holdfast.testing.simulation.mishaps import Mishaps
from holdfast.testing.simulation.outcomes import Outcomes
from holdfast.testing.simulation.outlets import Outlets
from holdfast.testing.simulation.outside import Outside
from holdfast.testing.simulation.platform import SimulatedPlatform
from holdfast.testing.simulation.program import Program
from holdfast.testing.simulation.programs import PROGRAMS
from holdfast.testing.simulation.stacks import standing
from holdfast.testing.simulation.store import SimulatedStore
from holdfast.testing.simulation.world import World

__all__ = ["Simulation"]

_QUIET_S = 1500.0
_UNFIT = 0.02
_MOST_STEPS = 400_000
_MOST_LATE = 8


@dataclass
class Simulation:
    """A world that runs one course."""

    seed: int | str
    folder: Path
    program: str | None = None
    make: Callable[[Course], Program] | None = None
    """Makes the program for one run, if it is none of ``PROGRAMS``."""
    most_partitions: int = 3
    drivers: list[SimulatedDriver] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = world = World(self.seed)
        self.draw = world.random("course")
        self.course = Course.drawn(self.draw, self.program)
        self.mishaps = Mishaps.drawn(world.random("mishaps"))
        self.knobs = Knobs(world.random("knobs"))
        names = [f"h{i}" for i in range(1, self.course.hosts + 1)]
        self.store = SimulatedStore(world, "ck", names if self.course.is_cluster else ())
        self.history = History(self.store, WorldError)
        self.inputs = Inputs(self._made(), str(self.seed))
        self.outside = Outside(self.mishaps, self.history)
        self.outlets = Outlets(
            world, self.outside, self.folder / "out", sorted(self.inputs.program.sinks)
        )
        self.happenings = Happenings(self, world.random("happenings"))
        self._hosts = names
        self._says_end = False
        """Whether the next run is told that input ends with what there is."""
        self._late = 0

    def _made(self) -> Program:
        """The program, for one more run of it."""
        return self.make(self.course) if self.make else PROGRAMS[self.course.program]()

    def run(self) -> None:
        """Run it; ``WorldError`` or another error if anything is wrong."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        try:
            # Logs last longest: what threads say when the world is closed is of no interest.
            with _logs_told(self.world), self.knobs.turned(), simulating(self.world):
                self._prepare()
                if self._is_unfit():
                    return
                self._go_wrong()
                self._calm_down()
                self._check_end()
        finally:
            self.outlets.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    # ---- the course

    def _prepare(self) -> None:
        world, course = self.world, self.course
        world.tell(str(course))
        world.tell(f"knobs: {self.knobs}")
        world.tell(f"faults: {self.mishaps}; storage: {self.store.faults.rates}")
        self.machines = Machines(
            world,
            self.folder / "disks",
            self.store.client(),
            world.random("machines"),
        )
        self.outlets.open()
        for name in self._hosts if course.is_cluster else ():
            self.machines.add(name)
        world.points.by_chance = self.happenings.at_point
        for number in range(course.pieces):
            when = self.draw.uniform(0.0, course.lasts_s) if number else 0.0
            world.later(when, self._add_piece)
        if course.input == "ends" and self.draw.random() < 0.5:
            world.later(self.draw.uniform(0.0, course.lasts_s), self._end_input)
        self.start()

    def _end_input(self) -> None:
        """All that will ever come is there, and the sources say so."""
        self.inputs.available = [self.course.pieces] * self.inputs.count
        self.inputs.ended = self.course.input == "ends"
        self._says_end = self.course.input == "by runs, then ends"

    def _is_unfit(self) -> bool:
        """Now and then storage is one that no pipeline may be started on: whether that was so."""
        if self.world.random("storage").random() > _UNFIT:
            return False
        self.store.creates_once = False
        self.store.faults.off()
        self._run(600.0, lambda: not self.alive)
        (driver,) = self.drivers
        if not isinstance(driver.failure, ConfigurationError) or self.history.entries:
            raise WorldError(f"storage that creates objects twice was used: {driver.failure}")
        return True

    def _add_piece(self) -> None:
        most = self.course.pieces
        source = self.draw.randrange(self.inputs.count)
        self.inputs.available[source] = min(most, self.inputs.available[source] + 1)

    def start(self, *, from_entry: int | None = None) -> SimulatedDriver:
        """A driver, as the one before or otherwise."""
        draw, course, world = self.draw, self.course, self.world
        process = world.process("driver")
        host = Path(self.folder / f"disks/driver-{draw.randint(1, 2)}")
        (host / "tmp").mkdir(parents=True, exist_ok=True)
        platform = SimulatedPlatform(
            make=self._made,
            sinks=self.outlets.sinks(process),
            storage=self.store.client(),
            inputs=self.inputs,
            machines=self.machines,
            host=Here(f"driver-host-{host.name}"),
            scratch_root=host / "tmp",
            is_cluster=course.is_cluster,
            can_end=course.input == "ends",
            mishaps=self.mishaps,
            draw=world.random("engine"),
        )
        options = Options(
            name="p",
            checkpoint_dir=self.store.url,
            checkpoint_interval_s=course.interval_s,
            trigger_s=course.trigger_s,
            available_now=course.by_runs,
            manual=False,
            partitions=draw.randint(1, self.most_partitions),
            every_epoch=course.every_epoch,
            retention=Retention(course.keep_last),
            max_ahead_bytes=course.max_ahead_bytes,
            max_ahead_s=600.0,
            memory_bytes=self.knobs.memory_bytes,
            local_dir=Path("/local") if course.is_cluster else host / "local",
            local_limit_bytes=(1 << 14) if course.retires else None,
            from_entry=from_entry,
            drop_state=(),
            clock=None,
            on_checkpoint=(),
            end_of_input=self._says_end,
        )
        back = "" if from_entry is None else f", from_entry={from_entry}"
        world.tell(f"{process.label} starts, partitions={options.partitions}{back}")
        if from_entry is not None:
            self.history.from_entry[process.label] = from_entry
        driver = SimulatedDriver(process, platform, options, host, alone=not self.alive)
        self.drivers.append(driver)
        return driver

    def _go_wrong(self) -> None:
        """Things happen until the time is over."""
        end = self.world.now + self.course.lasts_s
        while self.world.now < end:
            self._pass(self.draw.expovariate(1 / 2.5))
            self.happenings.happen()

    def _pass(self, seconds: float) -> None:
        """Let time pass, and look at whatever changes."""
        self._run(seconds, lambda: False)

    def _run(self, within_s: float, until: Callable[[], object]) -> None:
        """Go on for a while, or until it is so: that is looked at when a checkpoint or a driver's end may
        have made it so.
        """
        advance = self.history.advance
        living = self.alive

        def changed() -> object:
            return (advance() or not all(d.alive for d in living)) and until()

        self.world.run(changed, within_s=within_s, most_steps=_MOST_STEPS)
        self.outside.check()

    @property
    def alive(self) -> list[SimulatedDriver]:
        """The drivers that do something."""
        return [driver for driver in self.drivers if driver.alive]

    def struck(self) -> Counter[str]:
        """How often each of :data:`~holdfast.testing.simulation.kinds.KINDS` has struck."""
        found = Counter(self.happenings.counts)
        found.update(self.mishaps.struck)
        for fault in self.store.faults.struck:
            found[f"storage_{fault.kind}"] += 1
        found.update(self.history.counts)
        found["timelines"] += max(0, len(self.history.ends()) - 1)
        last = self.history.last
        found["ended_input"] += last is not None and bool(last.epochs and last.epochs[-1].ended)
        for driver in self.drivers:
            found["fenced"] += driver.fenced
            found["corruption"] += isinstance(driver.failure, CorruptionError)
            if driver.running is not None:
                found["recovery"] += len(driver.running.recoveries)
        found["handover"] += sum("handed over" in line for line in self.world.trace())
        return found

    # ---- the end

    def _calm_down(self) -> None:
        """Nothing goes wrong any more: all must be well, and soon."""
        self.world.tell("from here on nothing goes wrong")
        self.mishaps.off()
        self.store.faults.off()
        for name in list(self.store.damaged):
            self.store.restore(name)
        for driver in self.drivers:
            driver.process.resume()
            self.store.heal(driver.process)
        if self.draw.random() < 0.5:
            for driver in self.alive:
                driver.process.kill()
            # Whatever was to be done later comes, and nobody is there to see it.
            self._pass(1000.0)
        else:
            # Hosts come back.
            self._pass(60.0)
        self._end_input()
        self._finish()
        self._stop_last()
        if any(fault.kind == "later" for fault in self.store.faults.struck):
            # What comes after the end is for whoever starts next.
            self._pass(1000.0)
            last = self.start()
            self._run(300.0, lambda: last.running is not None)
            self._pass(2.0)
            self._stop_last()
        for driver in self.drivers:
            driver.check()

    def _finish(self) -> None:
        """All input is processed, within a bounded time."""
        until = self.world.now + _QUIET_S
        while self.world.now < until:
            living = self.alive
            if not living:
                if self._late and self._is_done():
                    break
                living = [self._start_in_the_end()]
            # Of several only the newest goes on, once the others have noticed.
            if len(living) == 1 and living[0].running is not None:
                if self._is_done():
                    break
                if self.course.interval_s is None and not self.course.has_end:
                    living[0].checkpoint()
            self._run(5.0, lambda: self._is_done() or not self.alive)
        if not self._is_done():
            raise WorldError(f"not done {_QUIET_S:.0f} s after the last fault: {self._where()}")

    def _start_in_the_end(self) -> SimulatedDriver:
        """One more driver, now that it should take the last one."""
        for driver in self.drivers:
            driver.check()
        self._late += 1
        if self._late > _MOST_LATE:
            raise WorldError(f"driver after driver ends though nothing goes wrong: {self._where()}")
        return self.start()

    def _stop_last(self) -> None:
        """Have the last driver stop, if it doesn't end by itself."""
        self._run(60.0, lambda: len(self.alive) <= 1)
        # One that was started later may have failed before it had anything to stop.
        driver = (self.alive or [d for d in self.drivers if d.running is not None][-1:])[0]
        if len(self.alive) > 1:
            others = standing([d.process for d in self.alive[:-1]])
            raise WorldError(f"another driver has taken over, and the ones before go on:\n{others}")
        driver.stop()
        self._run(300.0, lambda: not driver.alive)
        if driver.alive or (driver.failure is not None and not driver.fenced):
            raise WorldError(
                f"{driver.process.label} did not stop well: "
                + str(driver.failure or f"it goes on:\n{standing([driver.process])}")
            )

        running = driver.running
        owed = {} if running is None else running.coordinator.log.state().pending
        if not driver.fenced and any(owed.values()):
            raise WorldError(
                f"{driver.process.label} has stopped well, and the log says it owes output"
            )

    def _check_fences(self) -> None:
        """Who is fenced was: with wrong bits nobody can tell by whom, and stops all the same."""
        if self.course.damages or self.store.faults.rates.flipped:
            return
        history = self.history
        for driver in self.drivers:
            who = driver.process.label
            if driver.fenced and history.has_claimed(who) and not history.is_fenced(who):
                raise WorldError(f"{who} took itself for fenced: {driver.failure}")

    def _is_done(self) -> bool:
        last = self.history.current()
        if last is None or not last.epochs:
            return False
        record = last.epochs[-1]
        if self.course.has_end and not record.ended:
            return False
        return all(end >= self.course.pieces for end in self.inputs.read_by(record.offsets))

    def _where(self) -> str:
        last = self.history.last
        known = "no checkpoint" if last is None else f"checkpoint {last.number}"
        return f"{known}, {[(d.process.label, d.alive, str(d.failure)) for d in self.drivers[-3:]]}"

    def _check_end(self) -> None:
        self.history.advance()
        self.history.verify(self.store.client())
        self.outlets.read()
        self.outside.check()
        self.check_outcomes()
        self._check_fences()
        driver = self.drivers[-1]
        has_run = driver.running is not None and driver.running.epochs_done > 0
        on_disk = left_behind(driver.host, has_run=has_run) if driver.alone else None
        if on_disk is not None:
            raise WorldError(on_disk)
        if left := self.history.nobodys():
            raise WorldError(f"nobody names {left[0]} (and {len(left) - 1} more), and it is there")

    def check_outcomes(self) -> None:
        """Raise unless what was published, and the state, are what they must be."""
        Outcomes(self.history, self.inputs, self._made).check(self.outside, self.store.client())


@contextmanager
def _logs_told(world: World) -> Iterator[None]:
    """What is logged is part of the trace, and of nothing else."""
    logger = logging.getLogger("holdfast")
    handler = _Told(world)
    before = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before[0]
        logger.setLevel(before[1])


class _Told(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        # A lock of its own would be a real one, held while others go on.
        self.lock = None

    def createLock(self) -> None:  # noqa: N802 - logging's name
        """None."""
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        """Tell it."""
        if not self._world.closed:
            self._world.tell(record.getMessage())
