"""All programs that are simulated, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.testing.simulation.aggregating import AggregateProgram
from holdfast.testing.simulation.drawing import DrawProgram
from holdfast.testing.simulation.graphs import ChainProgram, ReadersProgram, SidesProgram
from holdfast.testing.simulation.joining import JoinProgram
from holdfast.testing.simulation.processing import ProcessProgram
from holdfast.testing.simulation.program import Program
from holdfast.testing.simulation.remembering import DerivedProgram, LoopProgram, TopProgram
from holdfast.testing.simulation.steering import SteeredProgram
from holdfast.testing.simulation.windowing import SessionProgram, SlidingProgram, WindowProgram

__all__ = ["PROGRAMS"]

PROGRAMS: Mapping[str, Callable[[], Program]] = {
    made.name: made
    for made in (
        AggregateProgram,
        ProcessProgram,
        WindowProgram,
        SlidingProgram,
        SessionProgram,
        ChainProgram,
        ReadersProgram,
        SidesProgram,
        DerivedProgram,
        JoinProgram,
        TopProgram,
        LoopProgram,
        SteeredProgram,
        DrawProgram,
    )
}
"""Each call makes a program for one run."""
