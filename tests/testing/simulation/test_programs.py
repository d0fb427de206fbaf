"""Programs without faults: what real tasks make of them is what their oracles say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.testing.simulation.programs import PROGRAMS
from tests.testing.simulation.running import Run, simulate

# Of the 60 seeds, so many run every time. ``./run simulate`` asks the same oracles, under faults too.
FEW, MANY = range(4), range(4, 60)


def assert_right(run: Run) -> None:
    program, answer = run.program, run.program.answer(run.inputs)
    assert run.outcome == answer.rows
    assert program.fold(run.outcome) == program.fold(answer.rows)
    assert program.state(run.state()) == answer.state


def run_all(name: str, folder: Path, seeds: range) -> None:
    published = 0
    for seed in seeds:
        run = simulate(PROGRAMS[name](), folder / str(seed), seed)
        assert_right(run)
        published += sum(len(rows) for epochs in run.outcome.values() for rows in epochs.values())
        shutil.rmtree(run.folder)
    assert published > len(seeds)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_tasks_come_to_what_the_oracle_says(name: str, tmp_path: Path) -> None:
    run_all(name, tmp_path, FEW)


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_tasks_come_to_what_the_oracle_says_for_many_seeds(name: str, tmp_path: Path) -> None:
    run_all(name, tmp_path, MANY)


@pytest.mark.slow
# What lots decide no oracle knows row by row.
@pytest.mark.parametrize("name", sorted({*PROGRAMS} - {"draw"}))
def test_a_row_that_is_lost_shows(name: str, tmp_path: Path) -> None:
    """The oracle is told of a row that the tasks never got."""
    shown = folded = 0
    for seed in range(10):
        run = simulate(PROGRAMS[name](), tmp_path / str(seed), seed, lose=True)
        answer = run.program.answer(run.inputs)
        shown += run.outcome != answer.rows
        folded += run.program.fold(run.outcome) != run.program.fold(answer.rows)
    # Of the best rows of a key few are lost for good.
    assert shown > 7
    assert folded > (0 if name == "top" else 7)
