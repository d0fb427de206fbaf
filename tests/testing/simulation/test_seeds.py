"""The seeds of the suite: pipelines to which happens whatever can, and nothing may be wrong in the end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterable

import pytest

from holdfast.testing.simulation import seeds
from holdfast.testing.simulation.many import readable
from holdfast.testing.simulation.seeds import run_seeds, show_seed

# Of the 2,000 seeds, so many run every time; all of them also where there is more time.
FEW, MANY = range(150), range(150, 2000)


def assert_nothing_is_wrong(numbers: Iterable[int]) -> None:
    failures = [failure for failure in run_seeds(numbers) if failure is not None]
    said = [f"{failure.replay}   # {failure.error.splitlines()[0]}" for failure in failures]
    assert not failures, "\n".join([f"{len(failures)} seeds have shown a fault:", *said])


def test_nothing_is_wrong_in_the_end() -> None:
    assert_nothing_is_wrong(FEW)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_is_wrong_in_the_end_of_many_seeds() -> None:
    assert_nothing_is_wrong(MANY)


SEVERAL = (1, 5, 9, 13, 17, 20)
IN_A_PROCESS = f"""
from holdfast.testing.simulation.seeds import show_seed
for seed in reversed({SEVERAL}):
    shown = show_seed(seed)
    print(seed, shown.course, *shown.trace, sep="\\n")
"""


def test_a_seed_takes_the_same_course_in_any_process_whatever_came_before() -> None:
    here = []
    for seed in SEVERAL:
        shown = show_seed(seed)
        assert show_seed(seed) == shown
        here.append("\n".join([str(seed), shown.course, *shown.trace, ""]))
    for hash_seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", IN_A_PROCESS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.splitlines() == "".join(reversed(here)).splitlines()


def only_worker() -> int:
    (worker,) = multiprocessing.active_children()
    assert worker.pid is not None
    return worker.pid


def test_a_process_that_crashes_is_told_with_its_seed_and_others_go_on() -> None:
    running = run_seeds(range(30, 33))
    assert next(running) is None
    os.kill(only_worker(), signal.SIGSEGV)
    failure = next(running)
    assert failure is not None
    assert failure.replay == "./run simulate --seed 31"
    assert failure.error == "its process ended: exit code -11"
    assert next(running) is None
    assert next(running, "over") == "over"
    assert not multiprocessing.active_children()


def test_a_process_that_hangs_is_told_with_its_seed_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = run_seeds(range(30, 33))
    assert next(running) is None
    with monkeypatch.context() as patch:
        patch.setattr(seeds, "_HANGS_S", 0.0)
        patch.setattr(seeds, "_ENDS_S", 0.1)
        os.kill(only_worker(), signal.SIGSTOP)
        failure = next(running)
    assert failure is not None
    assert (failure.seed, failure.error) == (31, "its process ended: it took 0 s")
    assert next(running) is None
    assert next(running, "over") == "over"


def test_a_trace_tells_once_what_comes_again_and_again() -> None:
    trace = [f"{1000 + i}.000000 driver/main: list log/: 3 objects" for i in range(4)]
    assert readable([*trace, "1004.500000 outside/set-up: driver is killed"]) == [
        "     0.000000  driver/main     list log/: 3 objects",
        "     3.000000  driver/main     … 3 times more",
        "     4.500000  outside/set-up  driver is killed",
    ]
