from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.checkpoint_directory import Builder, flip_byte


def test_checkpoints_are_listed_newest_first(builder: Builder, cli: Any) -> None:
    result = cli("checkpoints", builder.path)
    assert result.exit_code == 0
    rows = [line.split("│")[1:-1] for line in result.stdout.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert [row[:2] for row in cells] == [["2", "1"], ["1", "0"]]
    assert cells[0][3] == "5"
    assert cells[0][6] == "1.5 s"
    assert cells[1][5] == "0 B"
    assert "wordcount" in result.stdout


def test_savepoints_are_named(builder: Builder, cli: Any) -> None:
    builder.checkpoint(2, savepoint="before the migration")
    assert "before the migration" in cli("checkpoints", builder.path).stdout


def test_a_pipeline_without_checkpoints_has_none_to_list(tmp_path: Path, cli: Any) -> None:
    Builder(tmp_path / "ck")
    result = cli("checkpoints", tmp_path / "ck")
    assert result.exit_code == 0
    assert "no checkpoint yet" in result.stdout


def test_a_damaged_log_is_said_and_the_rest_is_listed(builder: Builder, cli: Any) -> None:
    flip_byte(builder.path / "log" / f"{2:020d}.json", 100)
    result = cli("checkpoints", builder.path)
    assert "log entry 2" in result.stderr
    assert [line for line in result.stdout.splitlines() if line.startswith("│")] != []
