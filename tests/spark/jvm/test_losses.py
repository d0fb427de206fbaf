"""What is made of jobs that fail, provoked for real: Spark's words for it may change with every version."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.driver.engine import PassingFailure

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("losing_program.py")


@pytest.fixture(scope="module")
def said() -> dict[str, dict[str, Any]]:
    ran = subprocess.run(
        [sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return {line["job"]: line for line in lines}


@pytest.mark.parametrize(
    ("job", "passing"),
    [
        ("end_executor", PassingFailure.EXECUTOR_LOST),
        ("end_worker", PassingFailure.WORKER_DIED),
        ("ended by its tag", PassingFailure.CANCELLED),
        ("ended by its group", PassingFailure.CANCELLED),
        ("lose_state", PassingFailure.STATE_LOST),
        ("find_bad_file", PassingFailure.BAD_FILE),
    ],
)
def test_what_may_go_better_the_next_time_is_told_by_why(
    said: dict[str, dict[str, Any]], job: str, passing: PassingFailure
) -> None:
    assert said[job]["passing"] == passing.name


@pytest.mark.parametrize("job", ["find_bad_object", "fail", "divide", "ended by all"])
def test_other_failures_are_for_good(said: dict[str, dict[str, Any]], job: str) -> None:
    assert said[job]["passing"] is None


def test_a_job_that_was_ended_is_told_from_one_that_failed(said: dict[str, dict[str, Any]]) -> None:
    assert {job for job, line in said.items() if line["cancelled"]} == {
        "ended by its tag",
        "ended by its group",
        "ended by all",
    }


def test_an_error_of_a_task_comes_as_it_was_raised(said: dict[str, dict[str, Any]]) -> None:
    assert {job: line["raised"] for job, line in said.items() if line["raised"] is not None} == {
        "lose_state": ["StateLostError", "run 7-1 is not here"],
        "find_bad_file": ["CorruptionError", "local run 7-1: it is short"],
        "find_bad_object": ["CorruptionError", "run 7-1 is missing"],
        "fail": ["ProcessingError", "P.process raised ValueError: ExecutorLostFailure"],
    }
    assert said["lose_state"]["words"] == "run 7-1 is not here. What to do: go back"
