"""The demo's driver process: runs the word count, checks the end, and tells its parent what it is at.

A line of JSON for each phase that begins (``phase``), each epoch, and the end (``summary``).
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all PySpark code uses

import holdfast as hf
from holdfast.spark.query import Query

__all__ = ["main"]

_SCHEMA = "word string, amount long, ts timestamp_ntz"


def main() -> None:
    """Run ``python -m holdfast.cli.demo_driver WORK_DIR``."""
    logging.basicConfig(level="ERROR")
    work = Path(sys.argv[1])
    _say({"phase": "spark"})
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.log.level", "OFF").config("spark.driver.memory", "2g")
    spark = hf.configure(builder).getOrCreate()
    _say({"phase": "restore"})
    words = (
        spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(work / "in"))
    )
    counts = (
        hf.stream(words)
        .key_by("word")
        .aggregate(n=hf.count(), total=hf.sum("amount"), last=hf.max("ts"))
    )
    query = counts.write_to(hf.sinks.parquet(str(work / "out"), epoch_column="epoch")).start(
        "demo",
        work / "ck",
        checkpoint_interval="1 s",
        trigger="available-now",
        local_dir=work / "local",
    )
    _say({"phase": "epochs"})
    _tell(query)
    _say({"phase": "compare"})
    _say({"summary": _compare(spark, work)})


def _tell(query: Query) -> None:
    told = -1
    ended = False
    while not ended:
        ended = query.await_termination(0.05)
        for epoch in query.progress:
            if epoch.epoch <= told:
                continue
            told = epoch.epoch
            event = {
                "epoch": epoch.epoch,
                "rows": epoch.rows,
                # Every epoch is one file of equal size, so its number says what is done.
                "done": (epoch.epoch + 1) * epoch.rows,
                "seconds": epoch.seconds["total"],
            }
            _say(event)


def _say(event: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def _compare(spark: SparkSession, work: Path) -> dict[str, object]:
    """The published changes, folded by key in epoch order, against Spark's own batch."""
    rows = spark.read.schema(_SCHEMA).parquet(str(work / "in"))
    batch = rows.groupBy("word").agg(
        F.count("*").alias("n"), F.sum("amount").alias("total"), F.max("ts").alias("last")
    )
    published = spark.read.parquet(str(work / "out"))
    folded = hf.fold(published, key="word", epoch="epoch")
    twice = published.groupBy("word", "epoch").count().filter("count > 1").count()
    return {
        "keys": batch.count(),
        "lost": rows.count() - _sum(folded),
        "duplicated": twice,
        "equal": batch.exceptAll(folded).isEmpty() and folded.exceptAll(batch).isEmpty(),
    }


def _sum(folded: DataFrame) -> int:
    row = folded.selectExpr("sum(n)").first()
    return int(row[0]) if row is not None else 0


if __name__ == "__main__":
    main()
