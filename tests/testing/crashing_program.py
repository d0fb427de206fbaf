"""Copies epochs into files until a sentinel kills it. Run as a script, with a folder, again and again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from holdfast.testing import EpochSource


def main(work: Path) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(work / "local"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    source = EpochSource(spark, "word string, n long", work / "in", crashes=True)
    if not len(source):
        source.add([("kelp", 0)])
        source.add([("kelp", 1), EpochSource.CRASH, ("rock", 1)])
        source.add([EpochSource.CRASH])
        source.add([("kelp", 3)])
    (work / "out").mkdir(exist_ok=True)

    def keep(batch: DataFrame, epoch: int) -> None:
        rows = sorted(tuple(row) for row in batch.collect())
        (work / "out" / f"{epoch}.json").write_text(json.dumps(rows))

    query = (
        source.df.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(work / "ck"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
