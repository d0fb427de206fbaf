"""Log entries: the only thing in a checkpoint directory that says what is true.

JSON with checked types (invariant 7). ``docs/format.md`` describes every field.
"""

from __future__ import annotations

import msgspec

from holdfast.state.hashing import HashRange
from holdfast.state.run import Run, Segment
from holdfast.state.schema import SchemaRecord
from holdfast.state.version import Version

__all__ = [
    "FORMAT",
    "Checkpoint",
    "Claim",
    "Collect",
    "Entry",
    "EpochRecord",
    "SegmentRef",
    "StagedOutput",
    "decode_entry",
    "encode_entry",
]

FORMAT = 1


class StagedOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """Output of one task of one epoch that waits, under this name, for its entry."""

    epoch: int
    partition: int
    name: str
    rows: int
    size_bytes: int = 0


class EpochRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One epoch since the last entry: what it read, and its clock."""

    epoch: int
    rows: int
    processing_time_ms: int
    watermark_ms: int | None = None
    offsets: str = ""
    """Spark's offsets/<epoch> file: the end of the epoch's range in every source."""


class SegmentRef(msgspec.Struct, frozen=True):
    """A segment, by the name of its run."""

    run: str
    range: HashRange


class _Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    format: int
    number: int
    claim: int
    """The number of the claim entry whose driver wrote this (its own number, for a claim)."""
    nonce: str
    pipeline: str
    written_ms: int


class Claim(_Header, frozen=True, kw_only=True, tag="claim"):
    """A driver takes the pipeline over; every lower claim is fenced from here on."""

    driver: str


class Checkpoint(_Header, frozen=True, kw_only=True, tag="checkpoint"):
    """The pipeline after ``epoch``, complete."""

    epoch: int
    runs: tuple[Run, ...]
    tables: dict[str, tuple[SegmentRef, ...]]
    schemas: tuple[SchemaRecord, ...]
    program: dict[str, str]
    """Per operator a description of what it computes; a restart must bring the same."""
    spark: dict[str, str]
    """Spark's checkpoint files by relative path: the object (blob) that holds each."""
    epochs: tuple[EpochRecord, ...]
    """Every epoch since the checkpoint before, this one's last."""
    pending: dict[str, tuple[StagedOutput, ...]]
    """Per sink the output not yet acknowledged when this was written, oldest first."""
    staged: dict[str, tuple[StagedOutput, ...]]
    """Per sink the output of ``epochs``."""
    state_rows: int
    new_bytes: int
    shared_bytes: int
    duration_ms: int
    savepoint: str | None = None

    def version(self) -> Version:
        """The version that this checkpoint keeps."""
        runs = {run.name: run for run in self.runs}
        tables = {
            table: tuple(Segment(runs[ref.run], ref.range) for ref in refs)
            for table, refs in self.tables.items()
        }
        return Version(self.epoch, tables)

    def objects(self) -> set[str]:
        """Every object in checkpoint storage that this entry names."""
        named = {run.stored.object for run in self.runs if run.stored is not None}
        named.update(self.spark.values())
        for outputs in (*self.staged.values(), *self.pending.values()):
            named.update(o.name for o in outputs if o.name.startswith("staged/"))
        return named


class Collect(_Header, frozen=True, kw_only=True, tag="collect"):
    """These objects and log entries are about to be deleted; nobody may use them from here on."""

    entries: tuple[int, ...]
    objects: tuple[str, ...]


Entry = Claim | Checkpoint | Collect

_decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)  # type: ignore[arg-type]


def encode_entry(entry: Entry) -> bytes:
    """JSON that a person can read, closed by a newline."""
    return msgspec.json.format(msgspec.json.encode(entry), indent=1) + b"\n"


def decode_entry(data: bytes) -> Entry:
    """Parse and type-check an entry; ``msgspec.ValidationError`` or ``DecodeError`` if it isn't one."""
    return _decoder.decode(data)
