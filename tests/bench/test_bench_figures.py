import json
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from bench.kit.changed import ChangedRows, spark_hashes
from bench.kit.data import Dataset, epoch_ids, words
from bench.kit.report import Bar, Report
from bench.kit.stats import percentile, phase_means, steady_rate
from bench.kit.trial import Epoch


def _epoch(number: int, rows: int, seconds: float, **phases: float) -> Epoch:
    return Epoch(number, rows, seconds, began=0.0, phases=phases)


def test_a_slow_epoch_counts_in_the_steady_rate() -> None:
    assert steady_rate([_epoch(0, 100, 1.0), _epoch(1, 100, 3.0)]) == 50.0


def test_phases_are_means_over_all_epochs_even_where_one_lacks_them() -> None:
    epochs = [_epoch(0, 1, 1.0, plan=0.2), _epoch(1, 1, 1.0, plan=0.4, merge=1.0)]
    assert phase_means(epochs) == pytest.approx({"plan": 0.3, "merge": 0.5})


def test_percentiles_are_interpolated() -> None:
    assert percentile([1.0, 2.0], 75) == 1.75


def test_the_report_says_which_bars_are_reached_and_why_a_ratio_is_missing(tmp_path: Path) -> None:
    report = Report(
        benchmark="b",
        quick=True,
        machine={},
        settings={},
        results=[_epoch(0, 1, 1.0)],
        ratios={"fast": 2.0, "slow": 2.0, "unknown": None},
        reasons={"unknown": "it crashed"},
        bars={"fast": Bar(1.5), "slow": Bar(1.5, at_least=False), "unknown": Bar(1.0)},
    )
    report.write(tmp_path / "deep" / "b.json")
    read = json.loads((tmp_path / "deep" / "b.json").read_text())
    assert read["ratios"] == {"fast": 2.0, "slow": 2.0, "unknown": None}
    assert {name: bar["reached"] for name, bar in read["bars"].items()} == {
        "fast": True,
        "slow": False,
        "unknown": False,
    }
    assert read["reasons"] == {"unknown": "it crashed"}
    assert not report.complete


def test_changed_rows_are_the_keys_of_the_epochs_with_their_counts_so_far() -> None:
    dataset = Dataset("d", keys=50, rows=30, epochs=2)
    state = ChangedRows(dataset)
    state.add(0)
    state.take()
    state.add(1)
    changed = state.take()
    second = epoch_ids(dataset, 1).tolist()
    both = epoch_ids(dataset, 0).tolist() + second
    found = dict(zip(changed["word"].to_pylist(), changed["n"].to_pylist(), strict=True))
    assert found == {f"word-{i}": both.count(i) for i in second}
    assert changed["hash"].to_pylist() == sorted(changed["hash"].to_pylist())
    assert pc.max(changed["total"]).as_py() > 0


@pytest.mark.spark
def test_hashes_are_those_of_the_jvm(spark: SparkSession) -> None:
    keys = words(epoch_ids(Dataset("d", keys=10**6, rows=200, epochs=1), 0))
    frame = spark.createDataFrame([(key,) for key in keys.to_pylist()], "word string")
    jvm = [row[0] % 2**64 for row in frame.select(sf.xxhash64("word")).collect()]
    assert spark_hashes(keys).tolist() == jvm
