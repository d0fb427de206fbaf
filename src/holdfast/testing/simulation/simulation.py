"""One seed: a pipeline, its drivers and hosts, what befalls them, and whether all is well in the end.

A seed decides the program, how it is run, and a course of faults. Meanwhile every change of the
checkpoint directory is checked (:mod:`~holdfast.testing.simulation.checks`). Then nothing goes wrong
any more, and within a bounded time all input must have been processed, published once, and be in a
checkpoint; and nothing may be left that nobody names.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa

from holdfast.checkpoint.entry import Checkpoint
from holdfast.checkpoint.reader import stored_tables
from holdfast.checkpoint.retention import Retention
from holdfast.driver.options import Options
from holdfast.errors import ConfigurationError
from holdfast.tasks.here import Here
from holdfast.testing.simulation import simulating
from holdfast.testing.simulation.checks import History
from holdfast.testing.simulation.disks import left_behind
from holdfast.testing.simulation.driver import SimulatedDriver
from holdfast.testing.simulation.errors import WorldError
from holdfast.testing.simulation.inputs import Inputs
from holdfast.testing.simulation.knobs import Knobs
from holdfast.testing.simulation.machines import Machines
from holdfast.testing.simulation.mishaps import Mishaps
from holdfast.testing.simulation.outlets import Outlets
from holdfast.testing.simulation.outside import Outside
from holdfast.testing.simulation.platform import SimulatedPlatform
from holdfast.testing.simulation.program import Outcome
from holdfast.testing.simulation.programs import PROGRAMS
from holdfast.testing.simulation.stacks import standing
from holdfast.testing.simulation.store import SimulatedStore
from holdfast.testing.simulation.world import World

__all__ = ["Course", "Outcome", "Simulation"]

_QUIET_S = 1500.0
_UNFIT = 0.02
_MOST_STEPS = 400_000
_MOST_LATE = 8


@dataclass(frozen=True)
class Course:
    """What a seed decides before anything happens."""

    program: str
    is_cluster: bool
    hosts: int
    pieces: int
    lasts_s: float
    """How long things go wrong."""
    every_epoch: bool
    interval_s: float | None
    keep_last: int
    max_ahead_bytes: int
    trigger_s: float
    retires: bool
    """Whether hosts' disks have a limit."""

    @classmethod
    def drawn(cls, draw: Random, program: str | None = None) -> Course:
        """Draw one."""
        return cls(
            program=program or draw.choice(sorted(PROGRAMS)),
            is_cluster=draw.random() < 0.5,
            hosts=draw.randint(1, 3),
            pieces=draw.randint(3, 12),
            lasts_s=draw.choice((0.0, 20.0, 60.0, 120.0)),
            every_epoch=draw.random() < 0.25,
            interval_s=draw.choice((None, 0.2, 1.0, 5.0)),
            keep_last=draw.choice((1, 1, 2, 5)),
            max_ahead_bytes=draw.choice((1 << 31, 1 << 14)),
            trigger_s=draw.choice((0.0, 0.5, 2.0)),
            retires=draw.random() < 0.1,
        )


@dataclass
class Simulation:
    """A world that runs one course."""

    seed: int | str
    folder: Path
    program: str | None = None
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
        self.inputs = Inputs(PROGRAMS[self.course.program](), str(self.seed))
        self.outside = Outside(self.mishaps)
        self.outlets = Outlets(
            world, self.outside, self.folder / "out", sorted(self.inputs.program.sinks)
        )
        self.expected: dict[str, dict[int, list[tuple[object, ...]]]] = {}
        """What epochs that were gone back behind have published."""
        self._hosts = names
        self._late = 0

    def run(self) -> None:
        """Run it; ``WorldError`` or another error if anything is wrong."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        try:
            with self.knobs.turned(), simulating(self.world), _logs_told(self.world):
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
        world.tell(f"{self.mishaps}; storage: {self.store.faults.rates}")
        self.machines = Machines(
            world,
            self.folder / "disks",
            self.store.client(),
            world.random("machines"),
        )
        self.outlets.open()
        for name in self._hosts if course.is_cluster else ():
            self.machines.add(name)
        for number in range(course.pieces):
            when = self.draw.uniform(0.0, course.lasts_s) if number else 0.0
            world.later(when, self._add_piece)
        self._start()

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

    def _start(self, *, from_entry: int | None = None) -> SimulatedDriver:
        """A driver, as the one before or otherwise."""
        draw, course, world = self.draw, self.course, self.world
        process = world.process("driver")
        host = Path(self.folder / f"disks/driver-{draw.randint(1, 2)}")
        (host / "tmp").mkdir(parents=True, exist_ok=True)
        platform = SimulatedPlatform(
            make=PROGRAMS[course.program],
            sinks=self.outlets.sinks(process),
            storage=self.store.client(),
            inputs=self.inputs,
            machines=self.machines,
            host=Here(f"driver-host-{host.name}"),
            scratch_root=host / "tmp",
            is_cluster=course.is_cluster,
            can_end=False,
            mishaps=self.mishaps,
            draw=world.random("engine"),
        )
        options = Options(
            name="p",
            checkpoint_dir=self.store.url,
            checkpoint_interval_s=course.interval_s,
            trigger_s=course.trigger_s,
            available_now=False,
            manual=False,
            partitions=draw.randint(1, 3),
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
        )
        world.tell(f"{process.label} starts, partitions={options.partitions}")
        driver = SimulatedDriver(process, platform, options, host)
        self.drivers.append(driver)
        return driver

    def _go_wrong(self) -> None:
        """Things happen until the time is over."""
        end = self.world.now + self.course.lasts_s
        while self.world.now < end:
            self._pass(self.draw.expovariate(1 / 4.0))
            self._happen()

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

    def _happen(self) -> None:
        """One thing."""
        things = [
            (3, self._nothing),
            (2, self._kill_driver),
            (2, self._pause_driver),
            (1, self._second_driver),
            (1, self._stop_driver),
            (2, self._checkpoint),
            (1, self._jump_clock),
            (1, self._cut_driver_off),
        ]
        if self.course.is_cluster:
            things += [(3, self._kill_executor), (1, self._kill_host), (2, self._cut_host_off)]
        (happens,) = self.draw.choices([t for _, t in things], [w for w, _ in things])
        if not self.alive:
            happens = self._nothing if self.draw.random() < 0.3 else self._restart
        happens()

    def _nothing(self) -> None:
        pass

    def _restart(self) -> None:
        self._start()

    def _kill_driver(self) -> None:
        self.draw.choice(self.alive).process.kill()

    def _pause_driver(self) -> None:
        process = self.draw.choice(self.alive).process
        process.pause()
        self.world.later(10 ** self.draw.uniform(-1.0, 2.3), process.resume)

    def _second_driver(self) -> None:
        if len(self.alive) < 3:
            self._start()

    def _stop_driver(self) -> None:
        self.draw.choice(self.alive).stop()

    def _checkpoint(self) -> None:
        self.draw.choice(self.alive).checkpoint(self.draw.choice((0.05, 60.0)))

    def _jump_clock(self) -> None:
        self.draw.choice(self.alive).process.jump(self.draw.choice((-3_600_000, -500, 500, 60_000)))

    def _cut_driver_off(self) -> None:
        process = self.draw.choice(self.alive).process
        self.store.cut_off(process)
        self.world.later(10 ** self.draw.uniform(0.0, 2.0), lambda: self.store.heal(process))

    def _kill_executor(self) -> None:
        machine = self.machines.all[self.draw.choice(self._hosts)]
        self.machines.kill_executor(machine, again_s=self.draw.uniform(0.5, 20.0))

    def _kill_host(self) -> None:
        name = self.draw.choice(self._hosts)
        self.machines.kill_host(self.machines.all[name])
        self.world.later(self.draw.uniform(5.0, 60.0), lambda: self.machines.add(name))

    def _cut_host_off(self) -> None:
        machine = self.machines.all[self.draw.choice(self._hosts)]
        self.machines.cut_off(machine)
        self.world.later(self.draw.uniform(1.0, 60.0), lambda: self.machines.rejoin(machine))

    # ---- the end

    def _calm_down(self) -> None:
        """Nothing goes wrong any more: all must be well, and soon."""
        world = self.world
        world.tell("from here on nothing goes wrong")
        self.mishaps.off()
        self.store.faults.off()
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
        self.inputs.available = [self.course.pieces] * self.inputs.count
        until = world.now + _QUIET_S
        while world.now < until:
            living = self.alive
            if not living:
                living = [self._start_in_the_end()]
            # Of several only the newest goes on, once the others have noticed.
            if len(living) == 1 and living[0].running is not None:
                if self._is_done():
                    break
                if self.course.interval_s is None:
                    living[0].checkpoint()
            self._run(5.0, lambda: self._is_done() or not self.alive)
        if not self._is_done():
            raise WorldError(f"not done {_QUIET_S:.0f} s after the last fault: {self._where()}")
        self._stop_last()
        if any(fault.kind == "later" for fault in self.store.faults.struck):
            # What comes after the end is for whoever starts next.
            self._pass(1000.0)
            last = self._start()
            self._run(300.0, lambda: last.running is not None)
            self._pass(2.0)
            self._stop_last()
        for driver in self.drivers:
            driver.check()

    def _start_in_the_end(self) -> SimulatedDriver:
        """One more driver, now that it should take the last one."""
        for driver in self.drivers:
            driver.check()
        self._late += 1
        if self._late > _MOST_LATE:
            raise WorldError(f"driver after driver ends though nothing goes wrong: {self._where()}")
        return self._start()

    def _stop_last(self) -> None:
        self._run(60.0, lambda: len(self.alive) == 1)
        if len(self.alive) != 1:
            others = standing([d.process for d in self.alive[:-1]])
            raise WorldError(f"another driver has taken over, and the ones before go on:\n{others}")
        (driver,) = self.alive
        driver.stop()
        self._run(300.0, lambda: not driver.alive)
        if driver.alive or driver.failure is not None:
            raise WorldError(
                f"{driver.process.label} did not stop well: "
                + str(driver.failure or f"it goes on:\n{standing([driver.process])}")
            )

    def _is_done(self) -> bool:
        last = self.history.last
        if last is None or not last.epochs:
            return False
        read = self.inputs.read_by(last.epochs[-1].offsets)
        return all(end >= self.course.pieces for end in read)

    def _where(self) -> str:
        last = self.history.last
        known = "no checkpoint" if last is None else f"checkpoint {last.number}"
        return f"{known}, {[(d.process.label, d.alive, str(d.failure)) for d in self.drivers[-3:]]}"

    def _check_end(self) -> None:
        """What was published, the state, and what is left."""
        storage = self.store.client()
        self.history.advance()
        self.history.verify(storage)
        self.outlets.read()
        self.outside.check()
        last = self.history.last
        assert isinstance(last, Checkpoint)
        program = PROGRAMS[self.course.program]()
        records = self.history.chain(last)
        answer = program.answer(self.inputs.epochs(records))
        published = program.outcome(
            {sink: sorted(epochs.items()) for sink, epochs in self.outside.tables.items()}
        )
        for sink in program.sinks:
            _same(published.get(sink, {}), answer.rows.get(sink, {}), f"rows of {sink}")
        views = stored_tables(last, storage)
        tables = {
            name: pa.concat_tables([view.schema.arrow.empty_table(), *view.scan()])
            for name, view in views.items()
        }
        if answer.state is not None:
            _same(program.state(tables), answer.state, "state")
        driver = self.drivers[-1]
        has_run = driver.running is not None and driver.running.epochs_done > 0
        if on_disk := left_behind(driver.host, has_run=has_run):
            raise WorldError(on_disk)
        if left := self.history.nobodys():
            raise WorldError(f"nobody names {left[0]} (and {len(left) - 1} more), and it is there")


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


def _same(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise WorldError(f"{what}: {_difference(found, expected)}")


def _difference(found: object, expected: object) -> str:
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in [*expected, *found]:
            if found.get(key) != expected.get(key):
                return f"{key!r}: {_difference(found.get(key), expected.get(key))}"
    return f"found {found!r}, expected {expected!r}"
