"""The test suite, as ``./run test`` runs it: everything in two runs at once, or some of it on other Sparks."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

from tools.environment import NORMAL, Environment, with_spark
from tools.system import ROOT, say

__all__ = ["everything", "on_sparks"]

# About half of all tests, by time.
_APART = (
    "tests/lab",
    "tests/storage",
    "tests/checkpoint",
    "tests/state",
    "tests/cli",
    "tests/nexmark",
    "tests/sql",
    "tests/spark/test_kill.py",
    "tests/spark/flow/test_flow_kill.py",
)
# Of these hardly anything is left without the slow ones: some others beside them.
_APART_FAST = (
    *_APART,
    "tests/bench",
    "tests/operators",
    "tests/sinks",
    "tests/test_docs.py",
)
# What has to do with Spark's versions is marked: all of it is here.
_SPARKS = ("tests/spark",)


class _Run(NamedTuple):
    """One run of pytest."""

    name: str
    environment: Environment
    arguments: Sequence[str]


def everything(*, fast: bool) -> int:
    """All tests, as two runs of pytest: one alone leaves half of the machine idle."""
    some = _APART_FAST if fast else _APART
    options = ["-m", "not slow and not soak" if fast else "not soak", "--durations=15"]
    others = ["tests", "src/holdfast", "bench", *(f"--ignore={path}" for path in some)]
    return _side_by_side(
        [
            _Run("pytest", NORMAL, [*options, *others, "--doctest-modules"]),
            _Run("pytest", NORMAL, [*options, *some]),
        ]
    )


def on_sparks(versions: Sequence[str], chosen: Sequence[str], *, fast: bool) -> int:
    """What is marked ``versions``, or the chosen tests, on each of these versions of Spark."""
    which = "versions and not soak and not slow" if fast else "versions and not soak"
    arguments = chosen or ["-m", which, "--durations=15", *_SPARKS]
    environments = [with_spark(version) for version in dict.fromkeys(versions)]
    return _side_by_side(
        [_Run(f"pytest on Spark {each.spark}", each, arguments) for each in environments]
    )


def _side_by_side(runs: Sequence[_Run]) -> int:
    """Runs of pytest at once. What all but the first say is kept back until that one is done."""
    variables = [run.environment.ready() for run in runs]
    began = time.monotonic()
    kept = []
    for run, own in zip(runs[1:], variables[1:], strict=True):
        said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        say(f"{run.name} {' '.join(run.arguments)}, beside the others")
        process = subprocess.Popen(_command(run), cwd=ROOT, env=own, stdout=said, stderr=said)
        kept.append((run, process, said))
    try:
        say(f"{runs[0].name} {' '.join(runs[0].arguments)}")
        codes = [subprocess.call(_command(runs[0]), cwd=ROOT, env=variables[0])]
        for run, process, said in kept:
            codes.append(process.wait())
            say(f"{run.name} {' '.join(run.arguments)}")
            said.seek(0)
            shutil.copyfileobj(said, sys.stdout)
    finally:
        for _, process, said in kept:
            process.terminate()
            said.close()
    took = f"after {time.monotonic() - began:.0f} s"
    if any(codes):
        say(f"pytest failed (exit codes {' and '.join(map(str, codes))}) {took}")
    else:
        say(f"all tests passed {took}")
    return max(codes)


def _command(run: _Run) -> list[str]:
    return [str(run.environment.program("pytest")), *run.arguments]
