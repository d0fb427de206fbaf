"""Faults that the driver doesn't have, put in one at a time: what the simulator has to find.

A *mutant* is a function of the package in a wrong form; many are what the function was before a fault
was mended (``mended.py``), others break a rule that was always kept (``invented.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from holdfast.testing.simulation.simulation import Simulation

__all__ = ["MUTANTS", "Mutant", "mutant"]

MUTANTS: dict[str, Mutant] = {}
"""All there are, by name."""


@dataclass(frozen=True)
class Mutant:
    """A fault that can be put in."""

    name: str
    owner: Any
    attribute: str
    make: Callable[[Any], Any]
    where: Callable[[Simulation], bool] = lambda simulation: True
    """Whether a seed's course is one in which it could show, as far as that is known beforehand."""

    @property
    def says(self) -> str:
        """What it breaks."""
        return (self.make.__doc__ or "").strip()

    @contextmanager
    def put_in(self) -> Iterator[None]:
        """The package has the fault until the block ends."""
        real = vars(self.owner)[self.attribute]
        setattr(self.owner, self.attribute, self.make(real))
        try:
            yield
        finally:
            setattr(self.owner, self.attribute, real)


Make = Callable[[Any], Any]


def mutant(
    owner: Any, attribute: str, where: Callable[[Simulation], bool] = lambda simulation: True
) -> Callable[[Make], Make]:
    """Put what the function makes of a real one in its place, as a mutant of the function's name."""

    def noted(make: Make) -> Make:
        MUTANTS[make.__name__] = Mutant(make.__name__, owner, attribute, make, where)
        return make

    return noted
