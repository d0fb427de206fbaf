from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from holdfast.sinks import Sink, parquet
from holdfast.sinks._parquet import ParquetSink
from holdfast.testing import SinkTests
from holdfast.testing.sinks import Rows


class TestParquetSink(SinkTests):
    failpoints: Sequence[str] = (
        "sink.parquet.before_link",
        "sink.parquet.before_intent",
        "sink.parquet.after_intent",
        "sink.parquet.before_rename",
        "sink.parquet.after_rename",
        "sink.parquet.after_sync",
        "sink.parquet.before_unlink",
        "sink.parquet.after_unlink",
    )

    def make_sink(self, place: str) -> Sink:
        return parquet(place)

    def published(self, sink: Sink) -> dict[int, Rows]:
        assert isinstance(sink, ParquetSink)
        return {
            int(file.stem.removeprefix("epoch-")): pq.ParquetFile(file).read().to_pylist()
            for file in Path(sink.path).glob("*.parquet")
        }


class TestParquetSinkWithAColumn(TestParquetSink):
    failpoints = ("sink.parquet.before_rename", "sink.parquet.after_rename")

    def make_sink(self, place: str) -> Sink:
        return parquet(place, epoch_column="tide")

    def published(self, sink: Sink) -> dict[int, Rows]:
        assert isinstance(sink, ParquetSink)
        epochs: dict[int, Rows] = {}
        for folder in Path(sink.path).glob("tide=*"):
            rows = [
                row for file in folder.iterdir() for row in pq.ParquetFile(file).read().to_pylist()
            ]
            epochs[int(folder.name.removeprefix("tide="))] = rows
        return epochs
