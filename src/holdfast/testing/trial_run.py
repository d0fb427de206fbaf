"""One seed of a trial: the simulator's course, and what came of it."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from holdfast.checkpoint.entry import Checkpoint, EpochRecord
from holdfast.checkpoint.reader import stored_tables
from holdfast.errors import ProcessingError
from holdfast.testing.simulation.course import Course
from holdfast.testing.simulation.errors import WorldError
from holdfast.testing.simulation.happenings import HAPPENINGS
from holdfast.testing.simulation.inputs import Inputs
from holdfast.testing.simulation.mishaps import MISHAPS
from holdfast.testing.simulation.outlets import Outlets
from holdfast.testing.simulation.program import Outcome, Row
from holdfast.testing.simulation.simulation import Simulation
from holdfast.testing.trial_program import Trial, TrialProgram, in_peace

__all__ = ["Ran", "Result", "peace_of", "run_seed"]

Result = tuple[Outcome, Mapping[str, list[Row]]]
"""What was put out, and the state in the end."""
_OF_USERS = ("InputError", "ProcessingError", "UnknownNameError")
# What happens all the time.
_DULL = (
    *(
        "Course(",
        "faults: ",
        "knobs: ",
        "sinks: ",
        "epochs of ",
        "placement: ",
        "checkpoint ",
        "passes ",
        "sweep ",
    ),
    *("list ", "get ", "get_range ", "put ", "put_if_absent ", "delete ", "size ", "exists "),
)


@dataclass
class Ran:
    """What came of a seed."""

    seed: int
    records: list[EpochRecord] = field(default_factory=list)
    pieces: int = 1
    result: Result = ({}, {})
    faults: dict[str, int] = field(default_factory=dict)
    drivers: int = 0
    checkpoints: int = 0
    raised: str | None = None
    """What user code raised."""
    wrong: str | None = None
    """What else went wrong."""
    trace: list[str] = field(default_factory=list)


class UserCodeError(Exception):
    """User code has raised, and the pipeline has failed of it."""


@dataclass
class _TrialSimulation(Simulation):
    ran: Ran = field(default_factory=lambda: Ran(0))

    def __post_init__(self) -> None:
        super().__post_init__()
        # One timeline, of which all can be read; and what user code raises, users want to know.
        self.course = replace(self.course, goes_back=False, damages=False)
        self.mishaps.rates["user_code"] = 0.0
        # What sinks do is for the tests of sinks.
        names = sorted(self.inputs.program.sinks)
        self.outlets = Outlets(self.world, self.outside, self.folder, names, ["simulated"])

    def _is_unfit(self) -> bool:
        return False

    def _run(self, within_s: float, until: Callable[[], object]) -> None:
        super()._run(within_s, until)
        for driver in self.drivers:
            said = _users(driver.failure)
            if said is not None:
                raise UserCodeError(said)

    def check_outcomes(self) -> None:
        """Only keep what came of it: that is compared with what comes in peace."""
        last = self.history.last
        assert last is not None
        self.ran.records = self.history.chain(last)
        program = self.inputs.program
        views = stored_tables(last, self.store.client())
        state = program.state(
            {
                name: pa.concat_tables([view.schema.arrow.empty_table(), *view.scan()])
                for name, view in views.items()
            }
        )
        assert state is not None
        tabled = {sink: sorted(of.items()) for sink, of in self.outside.tables.items()}
        self.ran.result = program.outcome(tabled), dict(state)


def run_seed(trial: Trial, seed: int) -> Ran:
    """Run a seed."""
    ran = Ran(seed)

    def make(course: Course) -> TrialProgram:
        ran.pieces = course.pieces
        return TrialProgram(trial, str(seed), course.pieces)

    memory = Path("/dev/shm")  # noqa: S108 - disks of simulated hosts are in memory, if there is any
    within = str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="holdfast-simulate-", dir=within) as folder:
        simulation = _TrialSimulation(seed, Path(folder) / "world", "yours", make, ran=ran)
        if not trial.keyed:
            # What comes of rows without keys depends on which rows they are among.
            simulation.most_partitions = 1
        try:
            simulation.run()
        except UserCodeError as error:
            ran.raised = str(error)
        except WorldError as error:
            ran.wrong = str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the seed has found it
            ran.wrong = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
    _count(simulation, ran)
    ran.trace = list(_story(simulation.world.trace()))
    return ran


def peace_of(
    trial: Trial, seed: int, pieces: int, records: Sequence[EpochRecord], apart: bool = True
) -> Result:
    """What these epochs come to in peace; see :func:`in_peace`."""
    program = TrialProgram(trial, str(seed), pieces)
    epochs = Inputs(program, str(seed)).epochs(list(records))
    return in_peace(trial, program, epochs, apart=apart)


def _users(failure: BaseException | None) -> str | None:
    """What user code raised, if a driver has failed of that: no fault comes to such an error."""
    while failure is not None:
        if isinstance(failure, ProcessingError):
            kind, _, said = failure.message.partition(": ")
            if kind in _OF_USERS:
                return said
        failure = failure.__cause__
    return None


def _count(simulation: Simulation, ran: Ran) -> None:
    """What befell the seed."""
    for kind, times in simulation.struck().items():
        if times and (kind in HAPPENINGS or kind in MISHAPS or kind.startswith("storage_")):
            ran.faults[kind.replace("_", " ")] = times
    ran.drivers = len(simulation.drivers)
    ran.checkpoints = sum(isinstance(e, Checkpoint) for e in simulation.history.entries.values())


def _story(trace: Sequence[str]) -> Iterator[str]:
    began: float | None = None
    for line in trace:
        when, who, text = _parted(line)
        began = when if began is None else began
        if not text.startswith(_DULL) and not text.endswith(" again"):
            yield f"{when - began:8.1f} s  {who}: {text.splitlines()[0][:160]}"


def _parted(line: str) -> tuple[float, str, str]:
    when, _, rest = line.partition(" ")
    who, _, text = rest.partition(": ")
    return float(when), who, text
