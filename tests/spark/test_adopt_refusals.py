"""What can't be adopted is refused with words, and before anything is written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.spark.adopt import OldQuery, adopt
from holdfast.spark.adopt.moving import _claim
from holdfast.storage import open_storage
from tests.spark.adopt_support import add_input, run_spark, stream

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def work(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The input, and a query that counted and summed it by word."""
    folder = tmp_path_factory.mktemp("adopt")
    add_input(folder, files=2)
    functions = [F.count("*"), F.sum("amount"), F.sum("small")]
    run_spark(stream(spark, folder).groupBy("word").agg(*functions), folder)
    return folder


def moved(spark: SparkSession, work: Path, *keys: Any, **aggregates: Any) -> hf.AggregatedStream:
    kept = aggregates or {"n": hf.count(), "total": hf.sum("amount"), "small": hf.sum("small")}
    return hf.stream(stream(spark, work)).key_by(*(keys or ["word"])).aggregate(**kept)


N, TOTAL, SMALL = hf.count(), hf.sum("amount"), hf.sum("small")


@pytest.mark.parametrize(
    ("keys", "aggregates", "message"),
    [
        (["size"], {}, r"keyed by \(word: string\), the program by \(size: int\)"),
        (["word", "size"], {}, r"keyed by \(word: string\), the program by \(word: string, size"),
        ([], {"n": N}, r"more than the program's 1 aggregates: sum: bigint, sum: bigint"),
        ([], {"n": N, "a": TOTAL, "b": SMALL, "c": hf.max("at")}, r"'c', max, .* \(nothing\)"),
        (
            [],
            {"total": TOTAL},
            r"'total', sum, needs \(sum: bigint\) .* there is \(count: bigint\)",
        ),
        ([], {"n": N, "mean": hf.avg("amount")}, r"needs \(sum: double, count: bigint\) next"),
        (
            [],
            {"n": N, "total": hf.sum("price")},
            r"needs \(sum: decimal\(22,3\), isEmpty: boolean\) next",
        ),
        ([], {"n": hf.approx_count_distinct("size")}, "approx_count_distinct can't be adopted"),
    ],
)
def test_state_that_does_not_fit_the_program(
    keys: Any, aggregates: Any, message: str, spark: SparkSession, work: Path, tmp_path: Path
) -> None:
    with pytest.raises(hf.InputError, match=message):
        adopt(moved(spark, work, *keys, **aggregates), "moved", tmp_path / "ck", work / "old")
    assert not (tmp_path / "ck").exists()


def test_a_pipeline_that_has_checkpoints_is_left_alone(
    spark: SparkSession, work: Path, tmp_path: Path
) -> None:
    adopt(moved(spark, work), "moved", tmp_path / "ck", work / "old")
    with pytest.raises(hf.ConfigurationError, match=r"already holds checkpoints of .*'moved'"):
        adopt(moved(spark, work), "moved", tmp_path / "ck", work / "old")
    other = open_storage(tmp_path / "other")
    _claim(other, "somebody")
    with pytest.raises(hf.ConfigurationError, match="'somebody'"):
        adopt(moved(spark, work), "moved", tmp_path / "other", work / "old")
    with pytest.raises(hf.InputError, match="can't name a pipeline"):
        adopt(moved(spark, work), "no/name", tmp_path / "new", work / "old")


def test_locations_that_hold_no_query(spark: SparkSession, work: Path, tmp_path: Path) -> None:
    program = moved(spark, work)
    with pytest.raises(hf.ConfigurationError, match="not the checkpoint location"):
        adopt(program, "moved", tmp_path / "ck", tmp_path / "nothing")
    with pytest.raises(hf.ConfigurationError, match="can't be opened"):
        adopt(program, "moved", tmp_path / "ck", "nosuch://place/old")
    copy = shutil.copytree(work / "old", tmp_path / "uncommitted")
    shutil.rmtree(copy / "commits")
    with pytest.raises(hf.ConfigurationError, match="has not committed any batch"):
        adopt(program, "moved", tmp_path / "ck", copy)
    copy = shutil.copytree(work / "old", tmp_path / "stateless")
    shutil.rmtree(copy / "state")
    with pytest.raises(hf.ConfigurationError, match="of no stateful operator"):
        adopt(program, "moved", tmp_path / "ck", copy)
    copy = shutil.copytree(work / "old", tmp_path / "lost")
    (copy / "offsets/0").unlink()
    with pytest.raises(hf.ConfigurationError, match="offsets/0 is missing"):
        adopt(program, "moved", tmp_path / "ck", copy)
    copy = shutil.copytree(work / "old", tmp_path / "named")
    (copy / "offsets/1").write_bytes(b'v2\n{}\nwords:{"logOffset":1}')
    (copy / "offsets/.1.crc").unlink()
    with pytest.raises(hf.InputError, match="names its sources"):
        adopt(program, "moved", tmp_path / "ck", copy)
    with pytest.raises(hf.InputError, match=r"no stateful operator 3.*0 \(stateStoreSave\)"):
        adopt(program, "moved", tmp_path / "ck", work / "old", operator=3)
    assert not (tmp_path / "ck").exists()


def test_what_spark_cannot_read_is_told_with_its_cause(
    spark: SparkSession, work: Path, tmp_path: Path
) -> None:
    """A newer Spark helps only where Spark says so."""
    program = moved(spark, work)
    copy = shutil.copytree(work / "old", tmp_path / "newer")
    for path in (copy / "state/0/_metadata").rglob("*"):
        path.unlink() if path.suffix == ".crc" else path.write_bytes(b"v9\n{}")
    with pytest.raises(hf.ConfigurationError, match="encountered v9") as refused:
        adopt(program, "moved", tmp_path / "ck", copy)
    assert "at least as new" in str(refused.value)
    copy = shutil.copytree(work / "old", tmp_path / "without")
    shutil.rmtree(copy / "state/0/0/_metadata")
    with pytest.raises(hf.ConfigurationError, match="schema") as refused:
        adopt(program, "moved", tmp_path / "ck", copy)
    assert "at least as new" not in str(refused.value)
    assert "another batch" in str(refused.value)
    copy = shutil.copytree(work / "old", tmp_path / "part")
    shutil.rmtree(copy / "state/0/1/SSTs")
    with pytest.raises(hf.ProcessingError, match="because: "):
        adopt(program, "moved", tmp_path / "ck", copy)


def test_a_query_that_still_runs(
    spark: SparkSession, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(work / "old", tmp_path / "old")
    read = OldQuery.position

    def position(old: OldQuery) -> dict[str, bytes]:
        (copy / "offsets/2").write_bytes((copy / "offsets/1").read_bytes())
        return read(old)

    monkeypatch.setattr(OldQuery, "position", position)
    with pytest.raises(hf.ConfigurationError, match="still running"):
        adopt(moved(spark, work), "moved", tmp_path / "ck", copy)


def other_queries(frame: DataFrame) -> Iterator[tuple[str, DataFrame, str, str]]:
    """Queries whose operators a program with an aggregate by word can't take over."""
    timed = frame.withWatermark("at", "1 hour")
    right = timed.select(F.col("word").alias("other"), F.col("at").alias("then"))
    joined = timed.join(right, F.expr("word = other and at = then"))
    windows = timed.groupBy("word", F.window("at", "1 day")).count()
    yield "join", joined, "append", "a join of two streams"
    sessions = timed.groupBy("word", F.session_window("at", "1 day")).count()
    yield "sessions", sessions, "append", "session_window"
    yield "limit", frame.limit(5), "append", r"limit\(\)"
    yield "dedupe", frame.dropDuplicates(["word"]), "append", r"dropDuplicates\(\)"
    yield "windows", windows, "update", "a window, and windows can't be adopted"
    yield "list", frame.groupBy("word").agg(F.collect_list("size")), "update", "collect_list"
    yield "first", frame.groupBy("word").agg(F.first("size")), "update", "order of arrival"
    yield "sketch", frame.groupBy("word").agg(F.approx_count_distinct("size")), "update", "approx"


def test_operators_and_functions_that_can_not_be_adopted_are_named(
    spark: SparkSession, work: Path, tmp_path: Path
) -> None:
    program = moved(spark, work, n=N)
    for name, frame, mode, message in other_queries(stream(spark, work)):
        (tmp_path / name).mkdir()
        old = run_spark(frame, tmp_path / name, mode=mode)
        with pytest.raises(hf.InputError, match=message):
            adopt(program, "moved", tmp_path / "ck", old)
    assert not (tmp_path / "ck").exists()


def test_one_of_several_operators_is_chosen_by_its_number(
    spark: SparkSession, work: Path, tmp_path: Path
) -> None:
    chain = stream(spark, work).dropDuplicates(["word", "amount"]).groupBy("word").count()
    old = run_spark(chain, tmp_path, mode="complete")
    program = moved(spark, work, n=N)
    with pytest.raises(hf.InputError, match=r"2 stateful operators: 0 \(stateStoreSave\), 1 \(ded"):
        adopt(program, "moved", tmp_path / "ck", old)
    done = adopt(program, "moved", tmp_path / "ck", old, operator=0)
    assert done.warnings == ("the state of other operators is left behind: 1 (dedupe)",)
