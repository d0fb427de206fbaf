"""Input, generated once and kept, so that the generator is not what is measured.

It is made in a child process (``python -m bench.kit.nexmark.data INPUT.json FOLDER``): the generator is
made of Spark's expressions, and the JVM that computes them must not stay beside what is measured.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.kit.nexmark.task import PARTS, Input
from bench.kit.trial import MARK, Note

__all__ = ["WINDOW_MS", "file_of", "generate", "is_made", "link_input"]

WINDOW_MS = 10_000
"""The windows of the chain."""
_DELAY_MS = 1000
# Of event time an epoch spans two of the queries' windows, so that every epoch closes some.
_EPOCH_S = 20
_JOIN_EPOCH_MS = 10_000
_FIRST_TIME = 1_700_000_000
# Spark gives each of its two readers whole row groups: of many, each gets about half.
_ROW_GROUPS = 32

Tell = Callable[[int], None]


def file_of(epoch: int) -> str:
    """The name of an epoch's file."""
    return f"{epoch:05d}.parquet"


def is_made(data: Input, cache: Path) -> bool:
    """Whether the cache has all of it."""
    return all((cache / data.folder(stream)).exists() for stream in data.streams)


def link_input(data: Input, cache: Path, folder: Path) -> int:
    """Make ``folder`` an input with a folder per stream, without copying; gives the epochs."""
    epochs = 0
    for stream in data.streams:
        into = folder / stream
        into.mkdir(parents=True)
        files = sorted((cache / data.folder(stream)).iterdir())
        for file in files:
            (into / file.name).hardlink_to(file)
        epochs = len(files)
    return epochs


def generate(data: Input, cache: Path, tell: Tell) -> None:
    """Write what the cache lacks."""
    for stream in data.streams:
        folder = cache / data.folder(stream)
        if folder.exists():
            continue
        made = folder.with_name(f".{folder.name}.{os.getpid()}")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        try:
            for epoch, table in enumerate(_tables(data, stream, cache)):
                if table.num_rows:
                    _write(table, made / file_of(epoch), epoch)
                tell(epoch)
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _write(table: pa.Table, path: Path, epoch: int) -> None:
    pq.write_table(table, path, row_group_size=max(1, -(-table.num_rows // _ROW_GROUPS)))
    # Spark reads files in the order of their times.
    os.utime(path, (_FIRST_TIME + epoch, _FIRST_TIME + epoch))


def _tables(data: Input, stream: str, cache: Path) -> Iterator[pa.Table]:
    if data.kind == "nexmark":
        yield from _events(data, stream)
    elif data.kind == "join":
        yield from (_side(data, stream, epoch) for epoch in range(data.epochs))
    else:
        bids = Input("nexmark", ("bid",), data.rows, data.epochs)
        generate(bids, cache, lambda _: None)
        folder = cache / bids.folder("bid")
        yield from _handed_on([folder / file_of(n) for n in range(data.epochs)], stream)


def _events(data: Input, stream: str) -> Iterator[pa.Table]:
    """An epoch's persons, auctions or bids, as the generator makes them."""
    from pyspark.sql import SparkSession

    from holdfast.nexmark import generator

    builder = SparkSession.builder.master("local[2]").appName("holdfast-bench-data")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "4g",
        "spark.driver.maxResultSize": "3g",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    of_kind: Any = getattr(generator, stream)
    config = generator.Config(events_per_second=max(1, data.rows // _EPOCH_S))
    for epoch in range(data.epochs):
        ids = spark.range(epoch * data.rows, (epoch + 1) * data.rows)
        yield of_kind(generator.events(ids, config)).toArrow()


def _side(data: Input, side: str, epoch: int) -> pa.Table:
    """A side of the join: on average a left row has one match."""
    random = np.random.default_rng([1, side == "right", epoch])
    first_us = (_FIRST_TIME * 1000 + epoch * _JOIN_EPOCH_MS) * 1000
    times = np.sort(random.integers(0, _JOIN_EPOCH_MS * 1000, data.rows)) + first_us
    return pa.table(
        {
            "key": random.integers(0, data.rows, data.rows),
            f"{side}_time": pa.array(times, pa.timestamp("us", tz="UTC")),
            f"{side}_value": random.random(data.rows),
        }
    )


def _handed_on(bids: list[Path], part: str) -> Iterator[pa.Table]:
    """What an operator of the chain gets in each epoch: the results of those before it.

    Windows close in the epoch behind the one in which the watermark passed them.
    """
    open_windows: pa.Table | None = None
    watermark_ms = 0
    for path in bids:
        rows = pq.read_table(path, columns=["auction", "bidder", "dateTime"])
        ms = pc.cast(rows["dateTime"], pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
        start = pc.multiply(pc.divide(ms, WINDOW_MS), WINDOW_MS)
        counted = pa.table({"auction": rows["auction"], "bidder": rows["bidder"], "start": start})
        counted = counted.append_column("n", pa.array(np.ones(len(rows), np.int64)))
        if open_windows is not None:
            counted = pa.concat_tables([open_windows, counted])
        counts = counted.group_by(["auction", "bidder", "start"]).aggregate([("n", "sum")])
        counts = counts.rename_columns(["auction", "bidder", "start", "n"])
        closed = pc.less_equal(pc.add(counts["start"], WINDOW_MS), watermark_ms)
        open_windows = counts.filter(pc.invert(closed))
        yield _as_input(counts.filter(closed), part)
        watermark_ms = pc.max(ms).as_py() - _DELAY_MS


def _as_input(counts: pa.Table, part: str) -> pa.Table:
    """Results as rows of a source: their time is the moment before their window ends."""
    if part == PARTS[2]:
        most = counts.group_by(["auction", "start"]).aggregate([("n", "max")])
        counts = most.rename_columns(["auction", "start", "most"])
    last = pc.add(counts["start"], WINDOW_MS - 1).cast(pa.timestamp("ms", tz="UTC"))
    return counts.drop_columns("start").append_column("time", last.cast(pa.timestamp("us", "UTC")))


def main(request: str, cache: str) -> int:
    """Make the input that a file describes."""
    data = msgspec.json.decode(Path(request).read_bytes(), type=Input)

    def tell(epoch: int) -> None:
        print(MARK + msgspec.json.encode(Note(epoch=epoch)).decode(), flush=True)

    generate(data, Path(cache), tell)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
