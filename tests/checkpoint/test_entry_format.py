from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from holdfast.checkpoint.entry import (
    FORMAT,
    Checkpoint,
    Claim,
    Collect,
    Entry,
    SegmentRef,
    StagedOutput,
    decode_entry,
    encode_entry,
    entry_name,
    entry_number,
    seal,
)
from holdfast.checkpoint.log import read_log
from holdfast.errors import CorruptionError, FormatError
from holdfast.state.hashing import FULL_RANGE, HashRange
from holdfast.state.run import StoredForm
from holdfast.storage import MemoryStorage
from tests.checkpoint.log_support import checkpoint_fields

HEADER: dict[str, Any] = {
    "format": FORMAT,
    "number": 7,
    "claim": 5,
    "nonce": "n",
    "pipeline": "bestellungen-ä",
    "written_ms": 1_700_000_000_000,
}
STAGED = {"sink": (StagedOutput(3, 0, "staged/5-a.parquet", 10), StagedOutput(3, 1, "b", 1))}
ENTRIES: list[Entry] = [
    Claim(**HEADER, driver="host:1"),
    Checkpoint(
        **HEADER,
        last_collect=3,
        **checkpoint_fields(3, ["runs/5-x"], staged=STAGED, spark={"metadata": "blobs/5-m"}),
    ),
    Collect(**HEADER, entries=(1, 2), objects=("runs/1-a",), first=3, kept=(0,)),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: type(e).__name__)
def test_an_entry_is_read_back_as_it_was_written(entry: Entry) -> None:
    data = encode_entry(entry)
    assert decode_entry(data) == entry
    content = json.loads(data)["content"]
    assert content["kind"] == type(entry).__name__.lower()
    assert content["pipeline"] == entry.pipeline


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: type(e).__name__)
def test_every_changed_byte_is_noticed(entry: Entry) -> None:
    data = encode_entry(entry)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << position % 8
        with pytest.raises(CorruptionError, match="entry 7 is damaged"):
            decode_entry(bytes(changed), "entry 7")


def test_every_missing_byte_is_noticed() -> None:
    data = encode_entry(ENTRIES[0])
    for cut in [b"", *(data[:end] for end in range(len(data))), data + b"\n", data[1:]]:
        with pytest.raises(CorruptionError):
            decode_entry(cut)


def test_a_newer_format_asks_for_an_upgrade_whatever_its_fields_are() -> None:
    newer = seal(msgspec.json.encode({"format": FORMAT + 1, "kind": "novelty", "number": "x"}))
    with pytest.raises(FormatError, match=r"entry 9 has format 2.*upgrade"):
        decode_entry(newer, "entry 9")


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b'{"format":1,"kind":"claim"}',
        b'{"format":"1"}',
        msgspec.json.encode(ENTRIES[0]).replace(b'"nonce":"', b'"nonce":"\xff'),
    ],
)
def test_what_is_whole_but_no_entry_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptionError, match="not a log entry"):
        decode_entry(seal(content))


HOSTILE = ["../../3-x", "/etc/3-x", "3-x/../../y", "", ".", "..", "3-\0x", "3-x\\..\\y", "3-x/y\n"]


def with_names(**changes: Any) -> bytes:
    """An entry, sealed as any other, by somebody who can write to the directory."""
    fields = checkpoint_fields(3, ["runs/5-x"], staged=STAGED, spark={"metadata": "blobs/5-m"})
    run = msgspec.structs.replace(fields["runs"][0], **changes.pop("run", {}))
    return encode_entry(Checkpoint(**HEADER, **{**fields, "runs": (run,), **changes}))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_could_lead_anywhere_is_refused_when_an_entry_is_read(name: str) -> None:
    evil = StagedOutput(3, 0, name, 1)
    entries = {
        "run": with_names(run={"name": name}),
        "stored": with_names(run={"stored": StoredForm(f"runs/{name}", 1, "00", 1)}),
        "another folder": with_names(run={"stored": StoredForm("log/5-x", 1, "00", 1)}),
        "file of Spark's": with_names(spark={name: "blobs/5-m"}),
        "source's log": with_names(spark={f"sources/{name}/0": "blobs/5-m"}),
        "offsets": with_names(spark={f"offsets/{name}": "blobs/5-m"}),
        "blob": with_names(spark={"metadata": f"blobs/{name}"}),
        "staged": with_names(staged={"sink-0": (evil,)}),
        "pending": with_names(pending={"sink-0": (evil,)}),
        "collected": encode_entry(
            Collect(**HEADER, entries=(), objects=(f"runs/{name}",), first=3, kept=())
        ),
        "owed": encode_entry(
            Collect(**HEADER, entries=(), objects=(), first=3, kept=(), pending={"sink-0": (evil,)})
        ),
        "collected log": encode_entry(
            Collect(**HEADER, entries=(), objects=("pins/5-x",), first=3, kept=())
        ),
    }
    for what, data in entries.items():
        with pytest.raises(CorruptionError, match=r"entry 7 names .*no Holdfast has written"):
            pytest.fail(f"{what}: {decode_entry(data, 'entry 7')}")


def test_a_checkpoint_of_runs_that_it_does_not_list_is_refused() -> None:
    tables = {"counts": (SegmentRef("5-gone", FULL_RANGE),)}
    with pytest.raises(
        CorruptionError, match=r"a run '5-gone' of table 'counts' that is not among"
    ):
        decode_entry(with_names(tables=tables), "entry 7")


@pytest.mark.parametrize(("first", "last"), [(1, 0), (-1, 7), (0, 2**64)])
def test_a_run_of_hashes_that_there_are_not_is_refused(first: int, last: int) -> None:
    """One without any ended a start with a division by zero, behind its claim."""
    with pytest.raises(CorruptionError, match=f"of the hashes from {first} to {last}"):
        decode_entry(with_names(run={"range": HashRange(first, last)}), "entry 7")


def test_a_collect_of_entries_that_can_not_be_is_refused() -> None:
    entry = Collect(**HEADER, entries=(-1,), objects=(), first=3, kept=())
    with pytest.raises(CorruptionError, match="a log entry -1"):
        decode_entry(encode_entry(entry))


def test_an_entry_of_a_number_far_beyond_all_others_is_damage() -> None:
    """Whoever can write to the directory would else have every start count up to it."""
    storage = MemoryStorage("far")
    for number in (0, 10**19):
        claim = Claim(**{**HEADER, "number": number}, driver="host:1")
        storage.put(entry_name(number), encode_entry(claim))
    with pytest.raises(CorruptionError, match=r"log/0*1\.json is missing"):
        read_log(storage)


def test_a_checkpoint_names_its_runs_blobs_and_staged_output_in_storage() -> None:
    checkpoint = ENTRIES[1]
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.objects() == {"runs/5-x", "blobs/5-m", "staged/5-a.parquet"}


def test_names_of_entries_sort_as_their_numbers_do() -> None:
    numbers = [0, 9, 10, 99, 10**19]
    names = [entry_name(n) for n in numbers]
    assert names == sorted(names)
    assert [entry_number(name) for name in names] == numbers


@pytest.mark.parametrize(
    "name", ["log/7.json", "log/x.json", "log/", "log/0000000000000000000٣.json"]
)
def test_other_names_are_no_entries(name: str) -> None:
    assert entry_number(name) is None
