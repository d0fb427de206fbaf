"""A pipeline in a process of its own, for tests that kill it. Run as a script.

    python programs.py WORK_DIR '{"option": value, …}'

WORK_DIR/in holds one Parquet file per epoch; output goes to WORK_DIR/out, checkpoints to WORK_DIR/ck.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.spark.query import Query

SCHEMA = "word string, amount long, ts timestamp_ntz"


def session(work: Path) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "1g").config(
        "spark.local.dir", str(work / "tmp")
    )
    builder = builder.config("spark.sql.warehouse.dir", str(work / "warehouse"))
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = hf.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def pipeline(spark: SparkSession, work: Path) -> hf.Pipeline:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(work / "in"))
    counts = (
        hf.stream(rows)
        .key_by("word")
        .aggregate(n=hf.count(), total=hf.sum("amount"), last=hf.max("ts"))
    )
    return counts.write_to(hf.sinks.parquet(str(work / "out"), epoch_column="epoch"))


def run_to_end(name: str, make: Callable[[SparkSession, Path], hf.Pipeline]) -> None:
    """Run the pipeline that the command line describes until its input is used up.

    Processing time is a function of the epoch, so that two runs can be compared.
    """
    logging.basicConfig(level="WARNING", stream=sys.stderr)
    work, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    started = threading.Event()
    query: Query | None = None

    def clock() -> int:
        started.wait()
        assert query is not None
        return 1000 + 10 * (query.status.last_epoch + 1)

    query = make(session(work), work).start(
        name,
        work / "ck",
        **{
            "trigger": "available-now",
            "local_dir": work / "local",
            "checkpoint_interval": 0.3,
            "clock": clock,
            **options,
        },
    )
    started.set()
    print("STARTED", flush=True)
    query.await_termination()
    print("DONE", flush=True)


if __name__ == "__main__":
    run_to_end("kill-me", pipeline)
