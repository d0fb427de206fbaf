"""Bad input and bad surroundings: a clear error, and nothing is lost or touched."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

import holdfast as hf
from holdfast import failpoints
from holdfast.checkpoint.entry import seal, unseal
from holdfast.checkpoint.log import read_log
from holdfast.errors import (
    ConfigurationError,
    CorruptionError,
    FormatError,
    HoldfastError,
    InputError,
    ProcessingError,
)
from holdfast.spark.query import Query
from holdfast.storage import LocalStorage, open_storage
from holdfast.testing import EpochSource

pytestmark = pytest.mark.spark

Started = Callable[..., Query]


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> EpochSource:
    made = EpochSource(spark, "word string, amount long", tmp_path / "in")
    made.add([("a", 1), ("b", 2), ("a", 3)])
    return made


def start_in(work: Path, df: DataFrame, name: str = "counts", **options: Any) -> Query:
    """Start a count on the directories of one folder."""
    aggregates = options.pop("aggregates", {"n": hf.count(), "total": hf.sum("amount")})
    keys = options.pop("keys", ("word",))
    sink = options.pop("sink", hf.sinks.parquet(str(work / "out"), epoch_column="epoch"))
    pipeline = hf.stream(df).key_by(*keys).aggregate(**aggregates).write_to(sink)
    chosen = {
        "checkpoint_interval": None,
        "trigger": "available-now",
        "local_dir": work / "local",
        **options,
    }
    return pipeline.start(name, work / "ck", **chosen)


@pytest.fixture
def start(tmp_path: Path) -> Started:
    """Start a count on this test's directories."""
    return partial(start_in, tmp_path)


def finish(query: Query) -> None:
    assert query.await_termination(120)


@pytest.fixture(scope="module")
def finished(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a count that has ended, for tests which leave it as it is."""
    work = tmp_path_factory.mktemp("finished")
    source = EpochSource(spark, "word string, amount long", work / "in")
    source.add([("a", 1), ("b", 2), ("a", 3)])
    finish(start_in(work, source.df))
    return work


@pytest.fixture
def over(finished: Path, tmp_path: Path) -> Path:
    """A copy of its checkpoint directory, to be damaged."""
    return Path(shutil.copytree(finished / "ck", tmp_path / "ck"))


def test_an_unknown_column_is_named_with_those_there_are(source: EpochSource) -> None:
    with pytest.raises(InputError, match=r"wrod.*word, amount|wrod.*amount, word"):
        hf.stream(source.df).key_by("wrod").aggregate(n=hf.count())
    with pytest.raises(InputError, match="amuont"):
        hf.stream(source.df).key_by("word").aggregate(n=hf.sum("amuont"))


def test_a_map_can_not_be_a_key(source: EpochSource) -> None:
    df = source.df.withColumn("tags", F.create_map("word", "amount"))
    with pytest.raises(InputError, match=r"tags.*map"):
        hf.stream(df).key_by("tags").aggregate(n=hf.count())


def test_a_batch_dataframe_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="readStream"):
        hf.stream(spark.range(3)).key_by("id")


def test_a_storage_that_creates_what_is_there_is_refused_and_left_as_it_was(
    source: EpochSource, start: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overwrite(storage: LocalStorage, name: str, data: bytes) -> bool:
        storage.put(name, data)
        return True

    monkeypatch.setattr(LocalStorage, "create", overwrite)
    with pytest.raises(ConfigurationError, match="creates objects that are there already"):
        start(source.df)
    assert tree(tmp_path / "ck") == {}


@pytest.mark.parametrize(
    "stateful",
    [
        lambda df: df.groupBy("word").count(),
        lambda df: df.dropDuplicates(["word"]),
        lambda df: df.distinct(),
        lambda df: df.join(df.withColumnRenamed("amount", "other"), "word"),
    ],
    ids=["groupBy", "dropDuplicates", "distinct", "join"],
)
def test_stateful_operators_of_sparks_are_refused(
    source: EpochSource, stateful: Callable[[DataFrame], DataFrame]
) -> None:
    with pytest.raises(InputError, match="stateful operator"):
        hf.stream(stateful(source.df))


def test_a_join_with_a_static_table_is_fine(source: EpochSource, spark: SparkSession) -> None:
    names = spark.createDataFrame([("a", "x")], "word string, name string")
    hf.stream(source.df.join(names, "word")).key_by("name").aggregate(n=hf.count())


def test_clean_source_is_refused(spark: SparkSession, tmp_path: Path, source: EpochSource) -> None:
    reader = spark.readStream.schema("word string, amount long").option("cleanSource", "delete")
    with pytest.raises(InputError, match="cleanSource"):
        hf.stream(reader.parquet(str(tmp_path / "in")))


def test_spark_connect_and_old_spark_are_refused(spark: SparkSession) -> None:
    from holdfast.spark.session import check_session

    class Remote:
        version = "4.3.0"

    Remote.__module__ = "pyspark.sql.connect.session"
    with pytest.raises(ConfigurationError, match="Spark Connect"):
        check_session(Remote())  # type: ignore[arg-type]

    class Old:
        version = "4.0.2"

    with pytest.raises(ConfigurationError, match=r"4\.0\.2 is too old"):
        check_session(Old())  # type: ignore[arg-type]


def changes(source: EpochSource) -> list[tuple[str, dict[str, Any], str]]:
    return [
        (
            "an aggregate's type",
            {"aggregates": {"n": hf.count(), "total": hf.sum(F.col("amount").cast("double"))}},
            "total",
        ),
        (
            "an aggregate's kind",
            {"aggregates": {"n": hf.count(), "total": hf.max("amount")}},
            "total",
        ),
        ("the key's type", {"keys": (F.length("word").alias("word"),)}, "word"),
        ("one more key", {"keys": ("word", "amount")}, "amount"),
    ]


@pytest.mark.parametrize("case", range(4))
def test_changed_types_are_refused_on_restart_and_nothing_is_touched(
    case: int, source: EpochSource, finished: Path
) -> None:
    before = tree(finished / "ck"), tree(finished / "out")
    _, options, named = changes(source)[case]
    with pytest.raises(ConfigurationError, match=named):
        start_in(finished, source.df, **options)
    assert (tree(finished / "ck"), tree(finished / "out")) == before


def test_another_pipelines_directory_is_refused(source: EpochSource, finished: Path) -> None:
    before = tree(finished / "ck")
    with pytest.raises(ConfigurationError, match="belongs to pipeline 'counts', not 'orders'"):
        start_in(finished, source.df, name="orders")
    assert tree(finished / "ck") == before


def test_a_newer_format_is_refused(source: EpochSource, start: Started, over: Path) -> None:
    last = sorted((over / "log").iterdir())[-1]
    body = re.sub(rb'"format": ?\d+', b'"format": 99', unseal(last.read_bytes(), "entry"))
    last.write_bytes(seal(body))
    before = tree(over)
    with pytest.raises(FormatError, match="99"):
        start(source.df)
    assert tree(over) == before


def stored_runs(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "ck" / "runs").iterdir())


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0x40
    path.write_bytes(data)


def test_a_bad_stored_run_is_replaced_by_the_local_copy(
    source: EpochSource, start: Started, tmp_path: Path
) -> None:
    finish(start(source.df))
    for path in stored_runs(tmp_path):
        damage(path)
    source.add([("a", 10)])
    finish(start(source.df))
    assert published(source._spark, tmp_path) == {"a": (3, 14), "b": (1, 2)}


def test_a_bad_local_copy_is_replaced_from_storage(
    source: EpochSource, start: Started, tmp_path: Path
) -> None:
    finish(start(source.df))
    local = list((tmp_path / "local").rglob("*.run"))
    assert local
    for path in local:
        damage(path)
    source.add([("a", 10)])
    finish(start(source.df))
    assert published(source._spark, tmp_path) == {"a": (3, 14), "b": (1, 2)}


@pytest.mark.parametrize("how", ["flipped", "missing"])
def test_a_run_that_is_bad_everywhere_is_named_with_the_newest_whole_entry(
    how: str, source: EpochSource, start: Started, tmp_path: Path
) -> None:
    finish(start(source.df))
    whole = read_log(open_storage(tmp_path / "ck")).last_checkpoint
    assert whole is not None
    source.add([("a", 10), ("c", 1)])
    finish(start(source.df))
    newest = read_log(open_storage(tmp_path / "ck")).last_checkpoint
    assert newest is not None
    bad = next(run for run in newest.runs if run.name not in {r.name for r in whole.runs})
    assert bad.stored is not None
    path = tmp_path / "ck" / bad.stored.object
    damage(path) if how == "flipped" else path.unlink()
    for local in (tmp_path / "local").rglob("*.run"):
        local.unlink()
    before = tree(tmp_path / "ck")
    with pytest.raises(CorruptionError) as caught:
        start(source.df)
    assert tree(tmp_path / "ck") == before
    for part in (bad.name, f"entry {newest.number}", f"from_entry={whole.number}"):
        assert part in str(caught.value)
    finish(start(source.df, from_entry=whole.number))
    assert published(source._spark, tmp_path) == {"a": (3, 14), "b": (1, 2), "c": (1, 1)}
    epochs = [int(p.name.partition("=")[2]) for p in (tmp_path / "out").glob("epoch=*")]
    assert sorted(epochs) == [0, 1, 2]  # a published epoch number is never used twice


def published(spark: SparkSession, tmp_path: Path) -> dict[str, tuple[int, int]]:
    rows = spark.read.parquet(str(tmp_path / "out")).drop("epoch")
    return {r.word: (r.n, r.total) for r in hf.fold(rows, key="word").collect()}


def test_no_space_left_fails_the_checkpoint_not_the_epoch(
    source: EpochSource, start: Started, tmp_path: Path
) -> None:
    events: list[hf.CheckpointEvent] = []
    query = start(source.df, trigger="0 s", on_checkpoint=events.append)
    try:
        query.process_all_available()
        failpoints.arm("store.piece", "full")
        source.add([("a", 10)])
        query.spark_query.processAllAvailable()
        with pytest.raises(HoldfastError, match="No space left"):
            query.checkpoint()
        status = query.status
        assert status.state == "running"
        assert status.last_epoch == 1
        assert status.last_checkpoint == 0
        assert "No space left" in (status.checkpoint_error or "")
        assert events[-1].error is not None
        failpoints.disarm()
        assert query.checkpoint() == 1
        assert query.status.checkpoint_error is None
    finally:
        failpoints.disarm()
        query.stop()
    assert published(source._spark, tmp_path) == {"a": (3, 14), "b": (1, 2)}


def test_processing_waits_when_it_is_too_far_ahead_and_says_why(
    source: EpochSource, start: Started
) -> None:
    failpoints.arm("store.piece", "full")
    try:
        query = start(source.df, trigger="0 s", max_ahead_bytes=1)
        for amount in range(3):
            source.add([("a", amount)])
        wait_for(lambda: query.status.state == "waiting")
        assert "not in a checkpoint yet" in query.status.message
        assert query.status.last_epoch < 3
    finally:
        failpoints.disarm()
    query.process_all_available()
    assert query.status.last_checkpoint == 3
    query.stop()


def wait_for(condition: Callable[[], bool]) -> None:
    import time

    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited a minute"
        time.sleep(0.01)


def test_an_exception_in_user_code_stops_the_query_at_the_last_good_epoch(
    source: EpochSource, start: Started, tmp_path: Path
) -> None:
    def check(word: str) -> str:
        if word == "bad":
            raise ValueError("this word is bad")
        return word

    picky = F.udf(check, StringType(), useArrow=False)

    source.add([("b", 5)])
    source.add([("bad", 1)])
    query = start(source.df.withColumn("word", picky("word")))
    with pytest.raises(ProcessingError, match="this word is bad") as caught:
        query.await_termination(120)
    assert "after epoch 1" in str(caught.value)
    assert query.exception is caught.value
    assert query.status.state == "failed"
    assert published(source._spark, tmp_path) == {"a": (2, 4), "b": (2, 7)}
    # With the cause mended it continues, and the bad row is not lost.
    finish(start(source.df))
    assert published(source._spark, tmp_path) == {"a": (2, 4), "b": (2, 7), "bad": (1, 1)}


def test_overflow_is_an_error_as_in_spark(source: EpochSource, start: Started) -> None:
    source.add([("a", 2**63 - 1)])
    query = start(source.df)
    with pytest.raises(ProcessingError, match=r"(?i)overflow"):
        query.await_termination(120)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"name": "../x"}, "name"),
        ({"durability": "never"}, "durability"),
        ({"checkpoint_interval": "soon"}, "checkpoint_interval"),
        ({"name": None}, "can't name a pipeline"),
        ({"partitions": 0}, "partitions"),
        ({"partitions": "2"}, "partitions must be a number of at least 1, not '2'"),
        ({"keep_last": 0}, "keep_last"),
        ({"memory_bytes": 5}, "memory_bytes"),
        ({"local_dir": "disk\udcff"}, "local_dir can't be .*no UTF-8"),
    ],
)
def test_bad_options_are_named(
    options: dict[str, Any], named: str, source: EpochSource, start: Started, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=named):
        start(source.df, **options)
    assert not (tmp_path / "ck").exists()


def test_a_local_dir_that_only_shells_would_expand(source: EpochSource, start: Started) -> None:
    with pytest.raises(ConfigurationError, match=r"expanduser\('~/local'\)"):
        start(source.df, local_dir="~/local")


def test_no_checkpoint_dir_is_no_folder_named_none(
    source: EpochSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    counts = hf.stream(source.df).key_by("word").aggregate(n=hf.count())
    for nothing in (None, ""):
        with pytest.raises(InputError, match=f"checkpoint_dir can't be {nothing!r}"):
            counts.write_to(hf.sinks.noop()).start("counts", nothing)  # type: ignore[arg-type]
    assert not (tmp_path / "None").exists()


def test_what_is_given_in_place_of_columns_is_named(source: EpochSource) -> None:
    words = hf.stream(source.df)
    with pytest.raises(InputError, match=r'not a list. What to do: say key_by\("word", "amount"\)'):
        words.key_by(["word", "amount"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"groupBy takes columns, not 1"):
        words.groupBy(1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"top can't order rows by Column.*by=\[\("):
        words.key_by("word").top(1, by=F.desc("amount"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="until= with a key column"):
        words.key_by("word").top(1, by="amount", output_mode="append")
    with pytest.raises(InputError, match="a step gave None, which is no DataFrame"):
        words.transform(lambda df: None)  # type: ignore[arg-type, return-value]


def test_a_corrupt_log_entry_is_named(source: EpochSource, start: Started, over: Path) -> None:
    last = sorted((over / "log").iterdir())[-1]
    text = last.read_text()
    last.write_text(text.replace('"counts"', '"counst"'))
    with pytest.raises(CorruptionError, match=last.stem):
        start(source.df)
