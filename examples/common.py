"""What the examples share: a Spark session, small input files, and a table on the screen."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import holdfast as hf

__all__ = ["print_table", "session", "work_folder", "write_file"]

_FIRST_MODIFIED_S = 1_000_000_000


def session(name: str) -> SparkSession:
    """A quiet Spark session on this machine, with times in UTC."""
    builder = hf.configure(SparkSession.builder.master("local[2]").appName(name))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        # An example is over before the JVM's second compiler would pay.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def work_folder() -> Iterator[Path]:
    """A folder that goes when the example ends."""
    with tempfile.TemporaryDirectory(
        prefix="holdfast-example-", ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


def write_file(folder: Path, number: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """One more file of input; with ``maxFilesPerTrigger`` 1 each file is an epoch."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(row) + "\n" for row in rows]
    file = folder / f"{number:04}.json"
    file.write_text("".join(lines), encoding="utf-8")
    # Spark reads files in the order of their modification times.
    os.utime(file, (_FIRST_MODIFIED_S + number,) * 2)


def print_table(title: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows as a table with a title."""
    shown = [{name: _words(value) for name, value in row.items()} for row in rows]
    print(title)
    if not shown:
        print("  (none)\n")
        return
    widths = {n: max(len(n), *(len(row[n]) for row in shown)) for n in shown[0]}
    for line in ({n: n for n in widths}, {n: "-" * w for n, w in widths.items()}, *shown):
        print("  " + "  ".join(line[n].ljust(w) for n, w in widths.items()).rstrip())
    print()


def _words(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).strftime("%b %d %H:%M")
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else value
        return ", ".join(f"{amount} {name}" for name, amount in sorted(pairs))
    return "" if value is None else str(value)
