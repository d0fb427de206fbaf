"""A pipeline of many operators in a process of its own, for tests that kill it.

    python flow_program.py WORK_DIR '{"option": value, …}'

WORK_DIR/in and WORK_DIR/right hold one Parquet file per epoch each. Sessions, an interval join, a
loop, results that are keyed again, results with two readers, late rows, and sinks behind each.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast as hf

LEFT = "user string, amount long, ts timestamp"
RIGHT = "user string, price long, at timestamp"
SINKS = ("sessions", "longest", "pairs", "lonely", "rounds", "steps", "late")


def rounds(rows: hf.Stream) -> tuple[hf.Stream, hf.Stream]:
    """Rows go round until their amount is used up."""
    paid = rows.with_column("amount", F.col("amount") - 150)
    return paid.filter("amount > 0"), paid.filter("amount <= 0")


def pipeline(spark: SparkSession, work: Path) -> hf.Pipeline:
    def files(schema: str, folder: str) -> Any:
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(work / folder))

    def sink(name: str) -> Any:
        return hf.sinks.parquet(str(work / name))

    left = hf.stream(files(LEFT, "in")).with_watermark("ts", "5 s", allowed_lateness="2 s")
    right = hf.stream(files(RIGHT, "right")).with_watermark("at", "5 s")
    sessions = (
        left.key_by("user")
        .window(hf.session("4 s"))
        .aggregate(n=hf.count(), total=hf.sum("amount"))
        .named("sessions")
    )
    # Keyed again by the minute that they ended in.
    longest = (
        sessions.window(hf.tumbling("1 minute"))
        .aggregate(n=hf.max("n"), sessions=hf.count())
        .named("longest")
    )
    pairs = left.join(right, "user", between=("-3 s", "2 s"), how="left").named("pairs")
    matched, lonely = pairs.filter("price is not null"), pairs.filter("price is null")
    out = left.iterate(rounds, name="rounds")
    steps = out.key_by("user").aggregate(n=hf.count(), last=hf.max("ts")).named("steps")
    best = matched.key_by("user").top(3, [("price", "desc"), "ts", "at", "amount"]).named("best")
    return hf.pipeline(
        sessions.write_to(sink("sessions")),
        longest.write_to(sink("longest")),
        best.write_to(sink("pairs")),
        lonely.write_to(sink("lonely")),
        out.write_to(sink("rounds")),
        steps.write_to(sink("steps")),
        pairs.side("late_left").write_to(sink("late")),
    )


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from tests.spark.programs import run_to_end

    run_to_end("flow", pipeline)


if __name__ == "__main__":
    main()
