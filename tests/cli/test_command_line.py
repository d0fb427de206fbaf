"""What all commands have in common."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.errors import FencedError
from tests.cli.checkpoint_directory import Builder

COMMANDS = ["checkpoints", "verify", "state"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_directory_is_said_and_not_created(
    command: str, tmp_path: Path, cli: Any
) -> None:
    result = cli(command, tmp_path / "nowhere")
    assert result.exit_code == 1
    assert "there is no directory" in result.stderr
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_without_a_log_is_said(command: str, tmp_path: Path, cli: Any) -> None:
    (tmp_path / "file.txt").touch()
    result = cli(command, tmp_path)
    assert result.exit_code == 1
    assert "not a checkpoint directory" in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]


@pytest.mark.parametrize(
    ("command", "encoding"), [("checkpoints", "utf-8"), ("verify", "ascii"), ("state", "latin-1")]
)
def test_any_folder_and_any_text_can_be_said_in_any_encoding(
    command: str, encoding: str, tmp_path: Path
) -> None:
    made = Builder(tmp_path / os.fsdecode("Größe 🌊 ".encode() + b"\xff"))
    made.count_words(0, {"Tang 🌊": 1})
    made.checkpoint(0)
    started = [sys.executable, "-c", "from holdfast.cli import main; main()", command]
    done = subprocess.run(
        [*started, os.fspath(made.path)],
        env={**os.environ, "PYTHONIOENCODING": f"{encoding}:strict", "COLUMNS": "200"},
        capture_output=True,
        check=False,
    )
    assert (done.stderr.strip(), done.returncode) == (b"", 0)
    assert b"wordcount" in done.stdout


def test_a_directory_of_a_newer_format_is_said(builder: Builder, cli: Any) -> None:
    from holdfast.checkpoint.entry import seal

    newer = seal(b'{"format": 99, "kind": "poem"}')
    (builder.path / "log" / f"{3:020d}.json").write_bytes(newer)
    result = cli("checkpoints", builder.path)
    assert result.exit_code == 1
    assert "format 99" in result.stderr


def test_a_log_that_is_damaged_from_end_to_end_is_said(builder: Builder, cli: Any) -> None:
    for path in (builder.path / "log").iterdir():
        path.unlink()
        path.write_bytes(b"{}")
    result = cli("checkpoints", builder.path)
    assert result.exit_code == 1
    assert "damaged" in result.stderr


def test_a_log_of_which_only_the_claim_is_whole_is_said(builder: Builder, cli: Any) -> None:
    for path in (builder.path / "log").iterdir():
        if path.name != f"{0:020d}.json":
            path.write_bytes(b"{}")
    for command in ("state", "placement"):
        result = cli(command, builder.path)
        assert result.exit_code == 1
        assert "no checkpoint in it is whole" in " ".join(result.stderr.split())


def test_looking_changes_nothing(builder: Builder, cli: Any) -> None:
    before = {p: p.read_bytes() for p in builder.path.rglob("*") if p.is_file()}
    for command in COMMANDS:
        assert cli(command, builder.path).exit_code == 0
    assert {p: p.read_bytes() for p in builder.path.rglob("*") if p.is_file()} == before


def test_debug_shows_the_traceback_wherever_it_stands(tmp_path: Path, cli: Any) -> None:
    for arguments in (["--debug", "state", "nowhere"], ["state", "nowhere", "--debug"]):
        assert type(cli(*arguments).exception).__name__ == "ConfigurationError"


def test_a_fenced_command_ends_with_its_own_exit_code() -> None:
    own = typer.Typer(cls=app.info.cls)

    @own.callback()
    def _options() -> None: ...

    @own.command()
    def fence() -> None:
        raise FencedError("claimed by another driver")

    result = CliRunner().invoke(own, ["fence"])
    assert result.exit_code == 75
    assert "claimed by another driver" in result.stderr


def test_the_installed_program_runs() -> None:
    program = Path(sys.executable).parent / "holdfast"
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
    assert all(command in done.stdout for command in COMMANDS)
