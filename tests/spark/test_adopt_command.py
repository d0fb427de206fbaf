"""``holdfast adopt`` as a user types it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner, Result

from holdfast.cli import show
from holdfast.cli.app import app
from tests.spark.adopt_support import add_input, results, run_spark, stream

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = """
import holdfast as hf
from pyspark.sql import SparkSession

def counts(spark):
    words = spark.readStream.schema("word string, amount long").parquet({folder!r})
    return hf.stream(words).key_by("word").aggregate(n=hf.count(), total=hf.sum("amount"))

def without_argument():
    return counts(SparkSession.getActiveSession()).write_to(hf.sinks.noop())

nothing = 7
"""


@pytest.fixture(scope="module")
def work(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("command")
    add_input(folder, files=2)
    counts = stream(spark, folder).groupBy("word").agg(F.count("*"), F.sum("amount"))
    run_spark(counts, folder)
    (folder / "moved_job.py").write_text(PROGRAM.format(folder=str(folder / "in")))
    return folder


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show.console, "_width", 200)
    monkeypatch.setattr(show.errors, "_width", 200)


def adopt(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["adopt", *(str(a) for a in arguments)])


def test_show_prints_what_there_is_and_writes_nothing(work: Path) -> None:
    before = sorted(work.rglob("*"))
    result = adopt(work / "old", "--show")
    assert result.exit_code == 0, result.stderr
    assert "last committed batch: 1" in result.stdout
    assert "operator 0 (stateStoreSave): groupBy().agg(), 13 rows" in result.stdout
    assert "key: word: string" in result.stdout
    assert "value: count: bigint, sum: bigint" in result.stdout
    assert sorted(work.rglob("*")) == before


@pytest.mark.parametrize("program", ["{work}/moved_job.py:counts", "moved_job:without_argument"])
def test_a_program_from_a_file_or_a_module_takes_over(
    program: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOLDFAST_COMMAND", "./run holdfast")
    checkpoint = tmp_path / "ck"
    result = adopt(
        "old", "--operator", 0, "--program", program.format(work=work),
        "--checkpoint-dir", checkpoint, "--name", "moved",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "13 rows of state in aggregate.groups" in result.stdout
    assert "pipeline moved continues with epoch 2" in result.stdout
    assert f"with: ./run holdfast state {checkpoint}" in result.stdout
    assert sum(n for n, _ in results(tmp_path).values()) == 80


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("moved_job", "does not name a function"),
        ("nowhere:counts", "can't be loaded"),
        ("nowhere.py:counts", "can't be loaded"),
        ("moved_job:nothing", "has no function 'nothing'"),
    ],
)
def test_a_program_that_is_not_there_is_said(
    program: str, message: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    result = adopt(
        "old", "--program", program, "--checkpoint-dir", tmp_path / "ck", "--name", "moved"
    )
    assert result.exit_code == 1
    assert message in result.stderr
    assert not (tmp_path / "ck").exists()


def test_what_is_needed_is_said(work: Path) -> None:
    result = adopt(work / "old")
    assert result.exit_code == 1
    assert "--program, --name and --checkpoint-dir are needed" in result.stderr
