"""Log entries: the only thing in a checkpoint directory that says what is true.

JSON with checked types (invariant 7), sealed with a checksum so that one changed byte is noticed.
``docs/format.md`` describes every field.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping

import msgspec
import xxhash

from holdfast.checkpoint.names import unsafe_in_collect, unsafe_names
from holdfast.errors import CorruptionError, FormatError
from holdfast.state.hashing import HashRange
from holdfast.state.run import Run, Segment
from holdfast.state.schema import SchemaRecord
from holdfast.state.version import Version

__all__ = [
    "END_MS",
    "EPOCHS_PER_ENTRY",
    "FORMAT",
    "LAST_EPOCH",
    "Checkpoint",
    "Claim",
    "Collect",
    "Entry",
    "EpochRecord",
    "PlacedPartition",
    "SegmentRef",
    "StagedOutput",
    "decode_entry",
    "encode_entry",
    "entry_name",
    "entry_number",
    "place_digest",
    "seal",
    "unseal",
]

FORMAT = 1
END_MS = 1 << 53
"""The watermark once input has ended: after all times that there are (it is in the year 287396). In µs it
fits 64 bits with room for any distance, and every reader of JSON reads it exactly."""
EPOCHS_PER_ENTRY = 1 << 20
"""Numbers of epochs from one checkpoint to the next, at most: so many may stand in an entry that
can't be read."""
LAST_EPOCH = (1 << 31) - 1
"""Epochs are numbered up to here: state keeps the number in 31 bits beside a row's place in its epoch."""


class StagedOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """Output of one task of one epoch that waits, under this name, for its entry.

    A name has parts separated by ``/`` of letters, digits and ``._=+-``, none of which begins with
    one of ``.+-``: a reader of an entry refuses any other.

    >>> StagedOutput(epoch=7, partition=0, name="7/part-0-6f2a", rows=120).rows
    120
    """

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
    previous_watermark_ms: int | None = None
    """The watermark of the epoch before."""
    event_times: dict[str, int] = msgspec.field(default_factory=dict)
    """Per source with a watermark the greatest event time seen up to this epoch, in ms."""
    active_ms: dict[str, int] = msgspec.field(default_factory=dict)
    """Per such source the processing time when it last had rows."""
    ended: bool = False
    """Whether input has ended and nothing is due any more: no epoch follows."""

    @property
    def at_end(self) -> bool:
        """Whether input had ended: the watermark is at its end."""
        return self.watermark_ms == END_MS

    @property
    def expiry_ms(self) -> int | None:
        """State goes if it expires by event time up to then. The end of input makes none go."""
        return self.previous_watermark_ms if self.at_end else self.watermark_ms


class SegmentRef(msgspec.Struct, frozen=True):
    """A segment, by the name of its run."""

    run: str
    range: HashRange


class PlacedPartition(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a partition of an epoch ran, why, and what it read; ``query.progress[-1].placement`` has them.

    >>> PlacedPartition(3, HashRange(0, 10), "h2", "its state is there", local_bytes=4096).host
    'h2'
    """

    partition: int
    range: HashRange
    host: str
    why: str = ""
    """The planner's reason, in words."""
    local_bytes: int = 0
    """State read without the network: on the host's disk, or in a replica there."""
    remote_bytes: int = 0


class _Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    format: int
    number: int
    claim: int
    """The number of the claim entry whose driver wrote this (its own number, for a claim)."""
    nonce: str
    pipeline: str
    written_ms: int
    last_checkpoint: int | None = None
    """The newest checkpoint below this entry, so that opening needn't read its way down to it."""
    last_collect: int | None = None
    """The newest collect below this entry: it says which lower numbers still count."""
    last_epoch: int | None = None
    """No entry up to this one is of a higher epoch; not in entries of older drivers."""
    exclusive: str = ""
    """Where create-if-absent was tried and found to work, as :func:`place_digest` says it."""


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
    """Every epoch since the checkpoint before, this one's last; idle ones may be left out."""
    pending: dict[str, tuple[StagedOutput, ...]]
    """Per sink the output not yet acknowledged when this was written, oldest first."""
    staged: dict[str, tuple[StagedOutput, ...]]
    """Per sink the output of ``epochs``."""
    state_rows: int
    new_bytes: int
    shared_bytes: int
    duration_ms: int
    savepoint: str | None = None
    placement: tuple[PlacedPartition, ...] = ()
    """Where the partitions of ``epoch`` ran; none in local mode, and in entries of older drivers."""

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
        return named | _staged_objects(self.staged) | _staged_objects(self.pending)


class Collect(_Header, frozen=True, kw_only=True, tag="collect"):
    """These objects and log entries are about to be deleted; nobody may use them from here on."""

    entries: tuple[int, ...]
    objects: tuple[str, ...]
    first: int
    """From this number on, every entry counts."""
    kept: tuple[int, ...]
    """The lower ones that still count. Any other is left over, or the stray of a fenced driver."""
    pending: dict[str, tuple[StagedOutput, ...]] | None = None
    """Per sink what is left of the newest checkpoint's ``pending``; None if nothing is known of it."""

    def owed_objects(self) -> set[str]:
        """Every object that this entry names as still wanted."""
        return _staged_objects(self.pending or {})


def _staged_objects(outputs: Mapping[str, Iterable[StagedOutput]]) -> set[str]:
    names = (output.name for of_sink in outputs.values() for output in of_sink)
    return {name for name in names if name.startswith("staged/")}


Entry = Claim | Checkpoint | Collect

_decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)

_SEAL_BEGIN = b'{"checksum":"'
_SEAL_MIDDLE = b'","content":\n'
_SEAL_END = b"}\n"
_HEX = 16


def place_digest(url: str) -> str:
    """A checkpoint directory, told from others. Options behind the ? may change from run to run."""
    return hashlib.sha256(url.partition("?")[0].encode()).hexdigest()[:12]


class _Format(msgspec.Struct):
    format: int


def entry_name(number: int) -> str:
    """The object that holds an entry.

    >>> entry_name(7)
    'log/00000000000000000007.json'
    """
    return f"log/{number:020d}.json"


def entry_number(name: str) -> int | None:
    """The number of the entry that an object holds; None if it is no entry.

    >>> entry_number("log/00000000000000000007.json"), entry_number("log/readme.txt")
    (7, None)
    """
    digits = name.removeprefix("log/").removesuffix(".json")
    number = int(digits) if digits.isdecimal() and digits.isascii() else None
    return number if number is not None and name == entry_name(number) else None


def seal(content: bytes) -> bytes:
    """JSON around ``content`` (JSON itself) with its xxh3-64.

    >>> print(seal(b'{"a":1}').decode(), end="")
    {"checksum":"dd2ee45507538fb6","content":
    {
     "a": 1
    }}
    """
    body = msgspec.json.format(content, indent=1)
    checksum = xxhash.xxh3_64_hexdigest(body).encode()
    return _SEAL_BEGIN + checksum + _SEAL_MIDDLE + body + _SEAL_END


def unseal(data: bytes, what: str) -> bytes:
    """The content of a seal; ``CorruptionError`` unless every byte is as it was written."""
    start = len(_SEAL_BEGIN) + _HEX + len(_SEAL_MIDDLE)
    body = data[start : -len(_SEAL_END)]
    checksum = xxhash.xxh3_64_hexdigest(body).encode()
    if data != _SEAL_BEGIN + checksum + _SEAL_MIDDLE + body + _SEAL_END:
        raise CorruptionError(f"{what} is damaged: its checksum doesn't fit")
    return body


def encode_entry(entry: Entry) -> bytes:
    """JSON that a person can read, sealed with its checksum."""
    return seal(msgspec.json.encode(entry))


def decode_entry(data: bytes, what: str = "log entry") -> Entry:
    """Check and parse an entry; the errors name it as ``what``.

    ``CorruptionError`` if it isn't what was written, or names what no Holdfast would;
    ``FormatError`` if a newer Holdfast wrote it.
    """
    body = unseal(data, what)
    try:
        # First of all the format: a newer entry may have any other fields.
        written = msgspec.json.decode(body, type=_Format).format
        if written > FORMAT:
            raise FormatError(
                f"{what} has format {written}, this Holdfast reads formats up to {FORMAT}",
                hint="upgrade Holdfast to the version that wrote it, or a newer one",
            )
        entry = _decoder.decode(body)
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise CorruptionError(f"{what} is not a log entry: {error}") from error
    for named in _unsafe(entry):
        raise CorruptionError(
            f"{what} names {named}, which no Holdfast has written",
            hint="don't start from it: find out who can write to the checkpoint directory, and restore "
            "the directory from a copy",
        )
    return entry


def _unsafe(entry: Entry) -> Iterator[str]:
    if isinstance(entry, Checkpoint):
        return unsafe_names(entry)
    return unsafe_in_collect(entry) if isinstance(entry, Collect) else iter(())
