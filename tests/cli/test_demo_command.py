"""What the demo says; the commands it ends with can be given as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import show


def test_commands_are_named_as_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_COMMAND", raising=False)
    assert show.command("verify", Path("ck")) == "holdfast verify ck"
    monkeypatch.setenv("HOLDFAST_COMMAND", "./run holdfast")
    assert show.command("state", "ck", "--limit", 5) == "./run holdfast state ck --limit 5"
    assert shlex.split(show.command("verify", Path("my ck")))[2:] == ["verify", "my ck"]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_java")
def test_the_demo_tells_each_phase_and_prints_commands_that_work(tmp_path: Path, cli: Any) -> None:
    program = Path(sys.executable).with_name("holdfast")
    done = subprocess.run(
        [str(program), "demo", "--rows", "16000", "--dir", str(tmp_path)],
        env={**os.environ, "HOLDFAST_COMMAND": "./run holdfast"},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _, restart = done.stdout.split("SIGKILL", 1)
    for phase in ("Python", "Spark starts", "Holdfast reads", "the first epoch", "Spark computes"):
        assert re.search(rf"\d\.\d s  {phase}", restart), restart
    assert "equal to batch" in restart
    commands = re.findall(r"\./run holdfast (.*)", restart)
    assert len(commands) == 3
    for command in commands:
        assert cli(*shlex.split(command)).exit_code == 0
