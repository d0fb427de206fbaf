"""A NEXMark query on files: events are written to three folders, then streamed from there.

    ./run python examples/nexmark/on_files.py 5

In place of the files put any three streams that have the columns: Kafka topics, tables, rates.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import holdfast as hf
from holdfast import nexmark
from holdfast.nexmark.queries import QUERIES

EVENTS = 20_000
FILES = 4
NAMES = ("person", "auction", "bid")


def write_events(spark: SparkSession, folder: Path) -> None:
    """As many files in each folder, of events in the order in which they happened."""
    config = nexmark.Config(events_per_second=100)
    for number in range(FILES):
        first, last = number * EVENTS // FILES, (number + 1) * EVENTS // FILES
        events = nexmark.events(spark.range(first, last, numPartitions=1), config)
        kinds = (nexmark.person, nexmark.auction, nexmark.bid)
        for name, kind in zip(NAMES, kinds, strict=True):
            kind(events).write.mode("append").parquet(str(folder / name))


def read_stream(spark: SparkSession, folder: Path) -> DataFrame:
    schema = spark.read.parquet(str(folder)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def main(number: int) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = hf.configure(builder.config("spark.sql.session.timeZone", "UTC")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    work = Path(tempfile.mkdtemp(prefix="holdfast-nexmark-"))
    write_events(spark, work)

    person, auction, bid = (
        hf.stream(read_stream(spark, work / name)).with_watermark("dateTime", "1 s")
        for name in NAMES
    )
    query = QUERIES[number]
    result = query.function(person, auction, bid)
    running = result.write_to(hf.sinks.parquet(work / "result")).start(
        "nexmark", work / "checkpoint", trigger="available-now"
    )
    running.await_termination()
    published = spark.read.parquet(str(work / "result"))
    print(f"query {number}, {query.title}: {published.count()} rows in {work / 'result'}")
    hf.fold(published, query.changes).show(10)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
