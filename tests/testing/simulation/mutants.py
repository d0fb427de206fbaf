"""Faults that the driver doesn't have, put in one at a time: what the simulator has to find.

A *mutant* is a function of the package in a wrong form; many are what the function was before a fault
was mended (``mended.py``), others break a rule that was always kept (``invented.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from holdfast.testing.simulation.seeds import Failure, run_seed
from holdfast.testing.simulation.simulation import Simulation

__all__ = ["MUTANTS", "Mutant", "mutant"]

Make = Callable[[Any], Any]
"""What makes a wrong function of a real one."""
MUTANTS: dict[str, Mutant] = {}
"""All there are, by name."""


@dataclass(frozen=True)
class Mutant:
    """A fault that can be put in."""

    name: str
    owner: Any
    attribute: str
    make: Make
    where: Callable[[Simulation], bool] = lambda simulation: True
    """Whether a seed's course is one in which it could show, as far as that is known beforehand."""
    program: str | None = None
    """The program that it takes, if it is one."""
    also: tuple[tuple[Any, str, Make], ...] = ()
    """What else was wrong then, without which nothing came of it."""

    @property
    def says(self) -> str:
        """What it breaks."""
        return (self.make.__doc__ or "").strip()

    def found_by(self, seed: int) -> Failure | None:
        """What a seed shows of it, if anything."""
        with self.put_in():
            return run_seed(seed, self.program)

    @contextmanager
    def put_in(self) -> Iterator[None]:
        """The package has the fault until the block ends."""
        with ExitStack() as put_in:
            for owner, attribute, make in ((self.owner, self.attribute, self.make), *self.also):
                wrong = make(vars(owner)[attribute])
                put_in.enter_context(patch.object(owner, attribute, wrong))
            yield


def mutant(
    owner: Any,
    attribute: str,
    where: Callable[[Simulation], bool] = lambda simulation: True,
    *also: tuple[Any, str, Make],
    program: str | None = None,
) -> Callable[[Make], Make]:
    """Put what the function makes of a real one in its place, as a mutant of the function's name."""

    def noted(make: Make) -> Make:
        MUTANTS[make.__name__] = Mutant(make.__name__, owner, attribute, make, where, program, also)
        return make

    return noted
