"""The simulator finds faults: each mutant by a seed that is known to."""

from __future__ import annotations

import pytest

from holdfast.testing.simulation.seeds import run_seed
from tests.testing.simulation.mutants import MUTANTS
from tests.testing.simulation.searching import found

_RENEW = (
    "the simulator has changed, maybe: ./run simulate --mutants --search 2000 looks for other seeds"
)


def test_every_mutant_was_found_by_some_seed() -> None:
    assert set(found()) == set(MUTANTS), _RENEW


@pytest.mark.parametrize("name", sorted(found()))
def test_a_mutant_is_found(name: str) -> None:
    failure = MUTANTS[name].found_by(found()[name].seed)
    assert failure is not None, f"{MUTANTS[name].says} Nobody notices; {_RENEW}"


@pytest.mark.parametrize(
    ("seed", "program"),
    sorted({(said.seed, MUTANTS[name].program) for name, said in found().items()}, key=str),
)
def test_without_it_nothing_is_found(seed: int, program: str | None) -> None:
    failure = run_seed(seed, program)
    assert failure is None, failure.error
