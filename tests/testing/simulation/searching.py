"""``./run simulate --mutants``: which seeds find which mutants.

``mutants.json`` has for each the first seed that does, which ``test_mutants.py`` runs. Such seeds change
whenever the simulator does. To look for them anew, for all or for some by name::

    ./run simulate --mutants --search 2000
    ./run simulate --mutants --search 2000 collects_beside_writers
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from holdfast.testing.simulation.seeds import Failure, run_seed
from holdfast.testing.simulation.simulation import Simulation
from tests.testing.simulation import invented, mended
from tests.testing.simulation.mutants import MUTANTS, Mutant

__all__ = ["Found", "found", "main"]

assert invented, mended  # they make the mutants
_TABLE = Path(__file__).with_name("mutants.json")


@dataclass(frozen=True)
class Found:
    """The first seed that finds a mutant."""

    seed: int
    says: str
    """What is said to be wrong."""


def found() -> dict[str, Found]:
    """What the last search has found."""
    return {name: Found(**said) for name, said in json.loads(_TABLE.read_text()).items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Search as the command line says, and write down what is found; 1 if something isn't."""
    parser = argparse.ArgumentParser(prog="./run simulate --mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="which (default: all)")
    parser.add_argument("--search", type=int, default=2000, help="seeds for each, at most")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first of them")
    given = parser.parse_args(arguments)
    # Of what fails here nobody needs to hear.
    logging.disable()
    left = {name: MUTANTS[name] for name in given.names or MUTANTS}
    _note(dict.fromkeys(left))
    for seed in range(given.first, given.first + given.search):
        for group in _groups(left.values(), seed):
            for one, failure in _finding(group, seed):
                seen = Found(seed, _in_a_line(failure))
                _note({one.name: seen})
                del left[one.name]
                _say(f"{one.name}: seed {seed}: {seen.says}")
        if not left:
            return 0
    _say(f"not found by {given.search} seeds: {', '.join(left)}")
    return 1


def _groups(mutants: Iterable[Mutant], seed: int) -> list[list[Mutant]]:
    """Those that a seed may find: in a group can be put in together, for each breaks something else."""
    courses: dict[str | None, Simulation] = {}
    groups: list[list[Mutant]] = []
    for one in mutants:
        if one.program not in courses:
            courses[one.program] = Simulation(seed, Path("nowhere"), one.program)
        if one.where(courses[one.program]):
            group = next((g for g in groups if all(_fit(one, other) for other in g)), None)
            if group is None:
                groups.append([one])
            else:
                group.append(one)
    return groups


def _fit(one: Mutant, other: Mutant) -> bool:
    same = (one.owner, one.attribute) == (other.owner, other.attribute)
    return one.program == other.program and not same


def _finding(group: Sequence[Mutant], seed: int) -> Iterator[tuple[Mutant, Failure]]:
    """Those of a group that a seed finds. Most seeds find none: so all are tried at once at first."""
    if _failing(group, seed) is None:
        return
    if (failure := run_seed(seed, group[0].program)) is not None:
        _say(f"without any mutant: {failure.replay}   # {_in_a_line(failure)}")
        return
    yield from _found_among(group, seed)


def _found_among(group: Sequence[Mutant], seed: int) -> Iterator[tuple[Mutant, Failure]]:
    """The same, for a seed that passes without them."""
    failure = _failing(group, seed)
    if failure is not None and len(group) == 1:
        yield group[0], failure
    elif failure is not None:
        half = len(group) // 2
        yield from _found_among(group[:half], seed)
        yield from _found_among(group[half:], seed)


def _failing(mutants: Sequence[Mutant], seed: int) -> Failure | None:
    with ExitStack() as put_in:
        for one in mutants:
            put_in.enter_context(one.put_in())
        failure = run_seed(seed, mutants[0].program)
    # One that takes too long would take that long again.
    return None if failure is None or failure.error.startswith("TimeoutError") else failure


def _in_a_line(failure: Failure) -> str:
    line = failure.error.splitlines()[0]
    return line if len(line) <= 120 else f"{line[:117]}..."


def _note(seen: Mapping[str, Found | None]) -> None:
    """Whatever another search has found meanwhile stays."""
    table = {**found(), **seen}
    said = {n: vars(one) for n, one in sorted(table.items()) if one is not None and n in MUTANTS}
    _TABLE.write_text(json.dumps(said, indent=1) + "\n")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
