from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from holdfast.cli import show
from holdfast.cli.app import app
from tests.cli.checkpoint_directory import Builder

Cli = Callable[..., Result]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run the command line as a user would, on a wide terminal."""
    monkeypatch.setattr(show.console, "_width", 200)
    monkeypatch.setattr(show.errors, "_width", 200)

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(app, [str(a) for a in arguments])

    return run


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    """Two checkpoints of a word count: entry 1 after epoch 0, entry 2 after epoch 1."""
    made = Builder(tmp_path / "ck")
    made.count_words(0, {"apple": 2, "pear": 4, "plum": 6})
    made.checkpoint(0)
    made.count_words(1, {"apple": 10, "quince": 1})
    made.checkpoint(1)
    return made
