"""The demo's driver process: runs the word count, tells its parent of every epoch, checks the end."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all PySpark code uses

import holdfast as hf
from holdfast.spark.query import Query

__all__ = ["main"]

_SCHEMA = "word string, amount long, ts timestamp_ntz"


def main() -> None:
    """Run ``python -m holdfast.spark.demo_driver WORK_DIR``."""
    logging.basicConfig(level="ERROR")
    work = Path(sys.argv[1])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.log.level", "OFF").config("spark.driver.memory", "2g")
    spark = hf.configure(builder).getOrCreate()
    began = time.monotonic()
    words = (
        spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(work / "in"))
    )
    counts = (
        hf.stream(words)
        .key_by("word")
        .aggregate(n=hf.count(), total=hf.sum("amount"), last=hf.max("ts"))
    )
    query = counts.write_to(hf.sinks.parquet(str(work / "out"))).start(
        "demo",
        work / "ck",
        checkpoint_interval="1 s",
        trigger="available-now",
        local_dir=work / "local",
    )
    _tell(query, time.monotonic() - began)
    _say({"summary": _compare(spark, work)})


def _tell(query: Query, ready_s: float) -> None:
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
                "ready_s": ready_s,
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
    folded = published.groupBy("word").agg(
        F.max_by(F.struct("n", "total", "last"), "epoch").alias("v")
    )
    folded = folded.select("word", "v.n", "v.total", "v.last")
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
