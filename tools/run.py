"""What ``./run`` does: make the environment ready, then run one of the project's commands in it.

Standard library only: this is what runs before anything is installed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools import environment, suite
from tools.environment import NORMAL
from tools.system import ROOT, SetupError, say

USAGE = """\
./run demo                                 a stream, a kill -9, a restart: one to two minutes
./run test [--fast]                        lint, types, and every test (--fast: without the slow ones)
./run test [--fast] PYTEST-ARGUMENTS       only these tests, e.g. tests/state -k merge
./run test --spark 4.1 [--fast]            what Spark's versions differ in, on another one (4.1, 4.2, 4.3)
./run bench NAME [--quick] [--json FILE]   a benchmark; without NAME, the list of them
./run lab up --hosts 3 [--hdfs]            many hosts on this machine (root); ./run lab -h says more
./run soak --minutes 60 [--seed N]         a pipeline on a lab under random faults (root)
./run simulate [--seeds N] [--minutes M]   pipelines without Spark, under faults that a seed decides
./run simulate --seed N                    one of them once more, with its trace
./run simulate --mutants [--search N]      which seeds find faults that are put in one at a time
./run example NAME                         a small program to read and run; without NAME, the list
./run lint [--fix]                         ruff and mypy alone
./run holdfast ARGUMENTS                   the command line
./run python ARGUMENTS                     the environment's Python
./run setup                                only set up
./run lock [--upgrade]                     pin the dependencies again
"""


def main(arguments: Sequence[str]) -> int:
    """Run one command; its exit code."""
    command, rest = (arguments[0], list(arguments[1:])) if arguments else ("", [])
    commands: dict[str, Callable[[], int]] = {
        "demo": lambda: _become("holdfast", "demo", *rest),
        "test": lambda: _test(rest),
        "bench": lambda: _become("python", "-m", "bench", *rest, path=str(ROOT)),
        "lab": lambda: _become("python", "-m", "bench.lab", *rest, path=str(ROOT)),
        "soak": lambda: _become("python", "-m", "bench.soak", *rest, path=str(ROOT)),
        "simulate": lambda: _simulate(rest),
        "example": lambda: _example(rest),
        "lint": lambda: _lint(rest),
        "holdfast": lambda: _become("holdfast", *rest),
        "python": lambda: _become("python", *rest),
        "setup": _setup,
        "lock": lambda: environment.lock(rest),
    }
    if command not in commands:
        asked_for_help = command in ("", "help", "-h", "--help")
        print(USAGE, end="", file=sys.stdout if asked_for_help else sys.stderr)
        return 0 if asked_for_help else 2
    try:
        return commands[command]()
    except SetupError as error:
        print(f"./run: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _setup() -> int:
    NORMAL.ready()
    return 0


def _become(program: str, *arguments: str, path: str | None = None) -> NoReturn:
    """Replace this process, so that signals and the exit code are the program's own."""
    variables = NORMAL.ready()
    # What the command line calls itself when it says what to do next.
    variables["HOLDFAST_COMMAND"] = f"{shlex.quote(os.path.relpath(ROOT))}/run holdfast"
    if path is not None:
        variables["PYTHONPATH"] = os.pathsep.join(
            filter(None, [path, os.environ.get("PYTHONPATH")])
        )
    file = NORMAL.program(program)
    sys.stdout.flush()
    os.execve(file, [str(file), *arguments], variables)


def _simulate(arguments: Sequence[str]) -> NoReturn:
    if "--mutants" not in arguments:
        _become("python", "-m", "holdfast.testing.simulation", *arguments)
    rest = [argument for argument in arguments if argument != "--mutants"]
    _become("python", "-m", "tests.testing.simulation.searching", *rest, path=str(ROOT))


def _example(arguments: Sequence[str]) -> int:
    files = {file.stem: file for file in sorted((ROOT / "examples").glob("*.py"))}
    names = [name for name in files if name != "common"]
    if not arguments or arguments[0] not in names:
        said = "./run example NAME, where NAME is one of:" if not arguments else "no such example;"
        print(said, ", ".join(names), file=sys.stderr if arguments else sys.stdout)
        return 2 if arguments else 0
    return _become("python", str(files[arguments[0]]), *arguments[1:])


def _checks(fix: bool) -> list[list[str]]:
    return [
        ["ruff", "check", *(["--fix"] if fix else []), "."],
        ["ruff", "format", *([] if fix else ["--check"]), "."],
        ["mypy"],
    ]


def _in_turn(steps: Sequence[Sequence[str]]) -> int:
    """Run the steps in the repository's root up to the first that fails; its exit code."""
    variables = NORMAL.ready()
    for step in steps:
        say(" ".join(step))
        began = time.monotonic()
        code = subprocess.call([NORMAL.program(step[0]), *step[1:]], cwd=ROOT, env=variables)
        if code != 0:
            say(f"{step[0]} failed (exit code {code}) after {time.monotonic() - began:.0f} s")
            return code
    return 0


def _lint(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run lint")
    parser.add_argument("--fix", action="store_true", help="mend what can be mended")
    return _in_turn(_checks(parser.parse_args(arguments).fix))


def _test(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run test", add_help=False, allow_abbrev=False)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--spark", action="append", default=[])
    known, chosen = parser.parse_known_args(arguments)
    if known.fast and chosen:
        chosen = ["-m", "not slow", *chosen]
    if known.spark:
        return suite.on_sparks(known.spark, chosen, fast=known.fast)
    if chosen:
        return _in_turn([["pytest", *chosen]])
    return suite.everything(fast=known.fast)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
