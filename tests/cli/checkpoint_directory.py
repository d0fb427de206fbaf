"""Builds real checkpoint directories for the tests of the command line, without Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import msgspec
import pyarrow as pa
import xxhash

from holdfast.checkpoint.entry import Checkpoint, EpochRecord, SegmentRef, StagedOutput
from holdfast.checkpoint.log import Log
from holdfast.operators.aggregates.kinds import AggregateSpec, Input
from holdfast.operators.aggregates.operator import AggregateOperator
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.keys import sort_rows
from holdfast.state.run import Run, StoredForm
from holdfast.state.schema import TableSchema
from holdfast.state.stored import encode_stored
from holdfast.state.text import text_array
from holdfast.storage import LocalStorage

WORDS = AggregateOperator(
    "counts",
    [("word", pa.string())],
    [AggregateSpec("n", "count"), AggregateSpec("mean", "avg", (Input("x", pa.float64()),))],
)
TABLE = WORDS.tables[0]


@dataclass
class Builder:
    """A pipeline that writes checkpoints of a word count by hand."""

    path: Path
    schema: TableSchema = TABLE
    program: dict[str, str] = field(default_factory=lambda: {"counts": WORDS.describe()})

    def __post_init__(self) -> None:
        self.storage = LocalStorage(self.path)
        clock, nonces = count(1_700_000_000_000, 1000), count()
        self.log = Log.claim(
            self.storage,
            "wordcount",
            "driver",
            now_ms=lambda: next(clock),
            nonce=lambda: f"nonce-{next(nonces)}",
        )
        self.runs: list[Run] = []

    def add_run(self, epoch: int, columns: dict[str, Sequence[object]]) -> Run:
        """Store a run of these rows; its hashes are made up, as they may be."""
        keys = list(zip(*(columns[name] for name in self.schema.key_names), strict=True))
        hashes = [xxhash.xxh3_64_intdigest(repr(key).encode()) for key in keys]
        arrays = [pa.array(hashes, pa.uint64())]
        arrays += [text_array(list(columns[c.name]), c.type) for c in self.schema.columns]
        table = pa.Table.from_arrays(arrays, schema=self.schema.arrow)
        rows = sort_rows(table, len(self.schema.keys)).table
        data, info = encode_stored(iter([rows]), self.schema.arrow)
        name = f"{self.log.claim_number}-{epoch}"
        form = StoredForm(f"runs/{name}.parquet", info.size_bytes, info.checksum, info.tail_bytes)
        self.storage.put(form.object, data)
        run = Run(name, self.schema.table, FULL_RANGE, epoch, epoch, info.rows, stored=form)
        self.runs.append(run)
        return run

    def count_words(self, epoch: int, counts: dict[str, int]) -> Run:
        """A run in which each word was seen that often, with a mean of half that."""
        numbers = list(counts.values())
        return self.add_run(
            epoch,
            {
                "word": list(counts),
                "n.count": numbers,
                "mean.sum": [n / 2 * n for n in numbers],
                "mean.count": numbers,
            },
        )

    def checkpoint(self, epoch: int, **changes: object) -> Checkpoint:
        """Write an entry that names all runs so far, a blob, and one staged object."""
        position = f"offsets of {epoch}".encode()
        blob = f"blobs/{self.log.claim_number}-{hashlib.sha256(position).hexdigest()[:40]}"
        self.storage.put(blob, position)
        staged = f"staged/{self.log.claim_number}/out/{epoch}.arrow"
        self.storage.put(staged, b"rows")
        newest = self.runs[-1]
        assert newest.stored is not None
        sizes = [run.stored.size_bytes for run in self.runs if run.stored is not None]
        fields: dict[str, object] = {
            "epoch": epoch,
            "runs": tuple(self.runs),
            "tables": {
                self.schema.table: tuple(SegmentRef(run.name, run.range) for run in self.runs)
            },
            "schemas": (self.schema.record(),),
            "program": self.program,
            "spark": {f"offsets/{epoch}": blob},
            "epochs": (EpochRecord(epoch, rows=newest.rows, processing_time_ms=0),),
            "pending": {"out": (StagedOutput(epoch, 0, staged, 1, size_bytes=4),)},
            "staged": {"out": (StagedOutput(epoch, 0, staged, 1, size_bytes=4),)},
            "state_rows": sum(run.rows for run in self.runs),
            "new_bytes": sizes[-1],
            "shared_bytes": sum(sizes[:-1]),
            "duration_ms": 1500,
        }
        return self.log.append_checkpoint(**(fields | changes))


def flip_byte(path: Path, offset: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))


def describe_otherwise(run: Run, **changes: object) -> Run:
    """The run as a wrong log entry would describe it."""
    return msgspec.structs.replace(run, **changes)
