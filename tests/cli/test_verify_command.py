from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import xxhash

from holdfast.checkpoint.entry import SegmentRef, StagedOutput, encode_entry, entry_name
from holdfast.state.hashing import FULL_RANGE, HashRange
from tests.cli.checkpoint_directory import Builder, describe_otherwise, flip_byte


def test_whole_checkpoints_pass(builder: Builder, cli: Any) -> None:
    result = cli("verify", builder.path)
    assert result.exit_code == 0, result.output
    assert "2 checkpoints are whole" in result.stdout
    assert "counts.groups" in result.stdout


def test_every_flipped_byte_of_a_run_is_found_and_the_run_named(builder: Builder, cli: Any) -> None:
    stored = builder.runs[0].stored
    assert stored is not None
    for offset in range(0, stored.size_bytes, 97):
        flip_byte(builder.path / stored.object, offset)
        result = cli("verify", builder.path)
        assert result.exit_code == 1, f"byte {offset}"
        assert f"run {builder.runs[0].name} of counts.groups ({stored.object})" in result.stderr
        assert "entries 2, 1" in result.stderr
        assert "no checkpoint is whole" in result.stderr
        flip_byte(builder.path / stored.object, offset)
    assert cli("verify", builder.path).exit_code == 0


def test_the_newest_whole_checkpoint_is_named(builder: Builder, cli: Any) -> None:
    newest = builder.runs[1].stored
    assert newest is not None
    (builder.path / newest.object).unlink()
    result = cli("verify", builder.path)
    assert result.exit_code == 1
    assert "the object is missing" in result.stderr
    assert "entry 1 (epoch 0)" in result.stderr


def test_one_entry_can_be_verified_alone(builder: Builder, cli: Any) -> None:
    newest = builder.runs[1].stored
    assert newest is not None
    (builder.path / newest.object).unlink()
    assert cli("verify", builder.path, "--entry", 1).exit_code == 0
    assert cli("verify", builder.path, "--entry", 2).exit_code == 1


def test_an_entry_that_is_not_retained_is_an_error(builder: Builder, cli: Any) -> None:
    result = cli("verify", builder.path, "--entry", 9)
    assert result.exit_code == 1
    assert "entry 9" in result.stderr


@pytest.mark.parametrize("kind", ["blobs", "staged"])
def test_a_missing_object_is_named(kind: str, builder: Builder, cli: Any) -> None:
    gone = next(p for p in sorted((builder.path / kind).rglob("*")) if p.is_file())
    gone.unlink()
    result = cli("verify", builder.path)
    assert result.exit_code == 1
    assert f"object {gone.relative_to(builder.path)}" in result.stderr


def test_a_blob_with_other_content_is_named(builder: Builder, cli: Any) -> None:
    blob = sorted((builder.path / "blobs").iterdir())[0]
    flip_byte(blob, 3)
    result = cli("verify", builder.path)
    assert result.exit_code == 1
    assert f"object blobs/{blob.name}" in result.stderr


def test_staged_output_that_was_cut_is_named(builder: Builder, cli: Any) -> None:
    staged = {"out": (StagedOutput(2, 0, "staged/0/out/1.arrow", 1, size_bytes=99),)}
    builder.checkpoint(2, staged=staged)
    result = cli("verify", builder.path)
    assert result.exit_code == 1
    assert "has 4 bytes, the log says 99" in result.stderr


def test_staged_output_with_other_content_is_named(builder: Builder, cli: Any) -> None:
    name = f"staged/0-2-0-x-{xxhash.xxh3_64_hexdigest(b'rows')}.arrows"
    builder.storage.put(name, b"rows")
    builder.checkpoint(2, staged={"out": (StagedOutput(2, 0, name, 1, size_bytes=4),)})
    assert cli("verify", builder.path).exit_code == 0
    flip_byte(builder.path / name, 0)
    result = cli("verify", builder.path)
    assert result.exit_code == 1
    assert f"object {name}" in result.stderr


def test_a_damaged_log_entry_is_named(builder: Builder, cli: Any) -> None:
    flip_byte(builder.path / "log" / f"{1:020d}.json", 100)
    result = cli("verify", builder.path)
    assert result.exit_code == 1
    assert "log entry 1" in result.stderr
    assert "entry 2 (epoch 1)" in result.stderr


def test_a_run_that_is_not_what_the_log_says_is_named(builder: Builder, cli: Any) -> None:
    first, second = builder.runs
    wrong = describe_otherwise(second, rows=second.rows + 1)
    builder.checkpoint(2, runs=(first, wrong))
    assert cli("verify", builder.path, "--entry", 2).exit_code == 0
    result = cli("verify", builder.path, "--entry", 3)
    assert result.exit_code == 1
    assert "the log says 3" in result.stderr


@pytest.mark.parametrize("mistake", ["part it lacks", "shared epochs"])
def test_an_entry_that_contradicts_itself_is_named(
    mistake: str, builder: Builder, cli: Any
) -> None:
    first, second = builder.runs
    if mistake == "part it lacks":
        first = describe_otherwise(first, range=HashRange(0, 2**63))
    else:
        second = describe_otherwise(second, first_epoch=0)
    refs = tuple(SegmentRef(run.name, run.range) for run in builder.runs)
    builder.checkpoint(2, runs=(first, second), tables={builder.schema.table: refs})
    result = cli("verify", builder.path, "--entry", 3)
    assert result.exit_code == 1
    assert "log entry 3" in result.stderr


def test_an_entry_of_a_run_that_it_does_not_list_is_named(builder: Builder, cli: Any) -> None:
    whole = builder.checkpoint(2)
    refs = (SegmentRef("0-nowhere", FULL_RANGE),)
    forged = msgspec.structs.replace(whole, tables={builder.schema.table: refs})
    builder.storage.put(entry_name(whole.number), encode_entry(forged))
    result = cli("verify", builder.path)
    assert result.exit_code == 1
    assert "log entry 3" in result.stderr
    assert "a run '0-nowhere' of table 'counts.groups' that is not among its runs" in result.stderr
    assert "entry 2 (epoch 1)" in result.stderr


def test_a_pipeline_without_checkpoints_is_whole(tmp_path: Path, cli: Any) -> None:
    Builder(tmp_path / "ck")
    assert cli("verify", tmp_path / "ck").exit_code == 0
