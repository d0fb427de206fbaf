"""The test suite, as ``./run test`` runs it: everything in several runs at once, or some of it on other Sparks."""

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

__all__ = ["SPARKS", "SPARKS_FAST", "everything", "on_sparks"]

# About half of all tests, by time.
_APART = (
    "tests/lab",
    "tests/storage",
    "tests/checkpoint",
    "tests/state",
    "tests/cli",
    "tests/nexmark",
    "tests/sql",
    "tests/driver",
    "tests/placement",
    "tests/spark/test_kill.py",
    "tests/spark/test_process_kill.py",
    "tests/spark/flow/test_flow_kill.py",
)
# Of these hardly anything is left without the slow ones: some others beside them.
_APART_FAST = (
    *_APART,
    "tests/bench",
    "tests/operators",
    "tests/sinks",
    "tests/test_docs.py",
    "tests/test_repository.py",
    "tests/testing",
)
# No Spark, and one process that is always busy: beside the others, it has the time that they leave.
_SEEDS = "tests/testing/simulation/test_seeds.py"
# What Spark's versions may differ in: its internals, PySpark's own programs, and a little of everything.
SPARKS = (
    "tests/spark/jvm",
    "tests/spark/test_every_operator.py",
    "tests/spark/test_explain.py",
    "tests/spark/flow/test_scans.py",
    "tests/spark/flow/test_reading.py",
    "tests/spark/test_ticks.py",
    "tests/spark/plans/test_window_grouping.py",
    "tests/spark/test_dropin_equals_spark.py",
    "tests/spark/test_dropin_errors.py",
    "tests/spark/test_dropin_forms.py",
    "tests/spark/test_dropin_pipeline.py",
    "tests/spark/test_dropin_time.py",
    "tests/spark/test_dropin_values.py",
)
# Of that what continuous integration runs on every version.
SPARKS_FAST = (
    "tests/spark/jvm/test_capabilities.py",
    "tests/spark/jvm/test_quiet.py",
    "tests/spark/test_every_operator.py",
    "tests/spark/test_explain.py",
    "tests/spark/test_dropin_pipeline.py",
)


class _Run(NamedTuple):
    """A program that is run beside others, mostly pytest."""

    name: str
    environment: Environment
    arguments: Sequence[str]
    program: str = "pytest"
    niceness: int = 0
    """How far it stands back behind other runs."""


def everything(*, fast: bool) -> int:
    """All tests, as runs of pytest side by side: one alone leaves half of the machine idle.

    The fast ones have ``./run lint`` beside them; who waits for all wants to know of lint first.
    """
    lint = _Run("lint", NORMAL, ["tools/run.py", "lint"], "python")
    if not fast and (code := _side_by_side([lint])):
        return code
    some = _APART_FAST if fast else _APART
    options = ["-m", "not slow and not soak" if fast else "not soak", "--durations=15"]
    alone = f"--ignore={_SEEDS}"
    others = ["tests", "src/holdfast", "bench", *(f"--ignore={path}" for path in some)]
    return _side_by_side(
        [
            _Run("pytest", NORMAL, [*options, alone, *others, "--doctest-modules"]),
            _Run("pytest", NORMAL, [*options, alone, *some]),
            _Run("pytest", NORMAL, [*options, _SEEDS], niceness=5),
            *([lint] if fast else []),
        ]
    )


def on_sparks(versions: Sequence[str], chosen: Sequence[str], *, fast: bool) -> int:
    """What versions may differ in, or the chosen tests, on each of these versions of Spark."""
    some = ["-m", "not slow", *SPARKS_FAST] if fast else ["-m", "not soak", *SPARKS]
    arguments = chosen or [*some, "--durations=15"]
    environments = [with_spark(version) for version in dict.fromkeys(versions)]
    return _side_by_side(
        [_Run(f"pytest on Spark {each.spark}", each, arguments) for each in environments]
    )


def _side_by_side(runs: Sequence[_Run]) -> int:
    """Runs at once. What all but the first say is kept back until that one is done."""
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
    failed = [
        f"{run.name} (exit code {code})" for run, code in zip(runs, codes, strict=True) if code
    ]
    named = ", ".join(failed or dict.fromkeys(run.name for run in runs))
    say(f"{'failed' if failed else 'passed'}: {named}, after {time.monotonic() - began:.0f} s")
    # Negative: the number of a signal.
    return max(map(abs, codes))


def _command(run: _Run) -> list[str]:
    nice = ["nice", "-n", str(run.niceness)] if run.niceness else []
    return [*nice, str(run.environment.program(run.program)), *run.arguments]
