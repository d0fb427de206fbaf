"""Steps of publishing that meet another publisher, a reader or damage half-way."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from holdfast.checkpoint.entry import StagedOutput
from holdfast.errors import (
    ConfigurationError,
    CorruptionError,
    InputError,
    InternalError,
    StorageError,
)
from holdfast.failpoints import arm, disarm
from holdfast.sinks import Sink, SinkContext, _publish, parquet

MakeContext = Callable[..., SinkContext]
Stage = Callable[..., StagedOutput]

Open = Callable[..., Sink]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture(params=[None, "epoch"], ids=["files", "folders"])
def column(request: pytest.FixtureRequest) -> str | None:
    name: str | None = request.param
    return name


@pytest.fixture
def open_sink(out: Path, make_context: MakeContext, column: str | None) -> Open:
    def open_with(claim: int = 1) -> Sink:
        sink = parquet(out, epoch_column=column)
        sink.open(make_context(claim))
        return sink

    return open_with


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    disarm()


def rows(out: Path) -> list[tuple[int, str, int]]:
    """What a reader of the folder sees, and in which epoch."""
    table = ds.dataset(out).to_table(columns=["__filename", "word", "n"])
    return sorted((_epoch(r["__filename"], out), r["word"], r["n"]) for r in table.to_pylist())


def _epoch(file: str, out: Path) -> int:
    name = Path(file).relative_to(out).parts[0].removesuffix(".parquet")
    return int(name.replace("=", "-").rpartition("-")[2])


def seen(out: Path, epoch: int) -> Path:
    """What a reader sees of an epoch: a file or a folder."""
    [path] = (
        path
        for path in (out / f"epoch-{epoch:010d}.parquet", out / f"epoch={epoch}")
        if path.exists()
    )
    return path


def away(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_readers_see_published_rows_and_a_column_if_asked_for(
    out: Path, open_sink: Open, stage: Stage, column: str | None
) -> None:
    sink = open_sink()
    published = [stage(sink, 7, 0, ("kelp", 1)), *(stage(sink, 8, p, ("kelp", p)) for p in (0, 1))]
    sink.commit(published, maybe_repeated=False)
    stage(sink, 9, 0, ("not yet", 1))
    assert rows(out) == [(7, "kelp", 1), (8, "kelp", 0), (8, "kelp", 1)]
    files = {"epoch-0000000007.parquet", "epoch-0000000008.parquet"}
    assert {p.name for p in out.iterdir()} == {
        "_holdfast",
        *(files if column is None else {"epoch=7", "epoch=8"}),
    }
    names = ds.dataset(out, partitioning="hive").schema.names
    assert names == ["word", "n", *([] if column is None else ["epoch"])]
    assert list(pd.read_parquet(out).columns) == names


def test_nothing_but_notes_is_left_when_all_is_published_and_swept(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    sink = open_sink()
    output = stage(sink, 0, 0, ("kelp", 1))
    stage(sink, 0, 0, ("lost attempt", 1))
    arm("sink.parquet.before_rename", lambda: leave_over(out))
    sink.commit([output], maybe_repeated=False)
    later = open_sink(claim=2)
    later.sweep([])
    [intent] = (out / "_holdfast" / "intents").iterdir()
    own = {"_holdfast/pipeline.json", f"_holdfast/intents/{intent.name}"}
    [name] = files(out) - own
    assert name in ("epoch-0000000000.parquet", f"epoch=0/{output.name}")
    assert {p.name for p in (out / "_holdfast" / "publishing").iterdir()} == set()


@pytest.mark.parametrize("first", [os.link, shutil.copy])
def test_an_epoch_is_published_if_a_link_is_repeated_whose_reply_was_lost(
    out: Path,
    open_sink: Open,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    first: Callable[[Path, Path], None],
) -> None:
    """As network file systems do; the intent is there then, and is ours.

    After a copy the number of links is what a client still knows that has asked for it before.
    """
    sink = open_sink()
    output = stage(sink, 0, 0, ("kelp", 1))
    link = os.link

    def repeated(source: Path, target: Path) -> None:
        if target.parent.name == "intents":
            first(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", repeated)
    sink.commit([output], maybe_repeated=False)
    assert rows(out) == [(0, "kelp", 1)]


def test_a_changed_byte_of_what_is_about_to_be_published_is_noticed(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    sink = open_sink()
    outputs = [stage(sink, 0, p, ("kelp", p)) for p in range(2)]
    arm("sink.parquet.before_rename", "fail")
    with pytest.raises(StorageError):
        sink.commit(outputs, maybe_repeated=False)
    disarm()
    [made] = (out / "_holdfast" / "publishing").iterdir()
    bad = made if made.is_file() else sorted(made.iterdir())[1]
    data = bytearray(bad.read_bytes())
    data[len(data) // 2] ^= 1
    bad.unlink()  # staged files are links to it
    bad.write_bytes(data)
    with pytest.raises(CorruptionError, match="about to be published") as caught:
        open_sink(claim=2).commit(outputs, maybe_repeated=True)
    assert str(made) in str(caught.value.hint)
    [intent] = (out / "_holdfast" / "intents").iterdir()
    for path in (intent, made):
        away(path)
    open_sink(claim=3).commit(outputs, maybe_repeated=True)
    assert rows(out) == [(0, "kelp", 0), (0, "kelp", 1)]


def leave_over(out: Path) -> None:
    """What a publisher that died before its rename would leave."""
    [made] = (out / "_holdfast" / "publishing").iterdir()
    copy = shutil.copytree if made.is_dir() else shutil.copy
    copy(made, made.with_name("1-0-died"))


@pytest.mark.parametrize("point", ["before_link", "before_rename", "after_rename"])
def test_another_publisher_may_be_faster_at_any_step(
    out: Path, open_sink: Open, stage: Stage, point: str
) -> None:
    slow, fast = open_sink(claim=1), open_sink(claim=2)
    outputs = [stage(slow, 0, p, ("kelp", p)) for p in range(3)]
    arm(f"sink.parquet.{point}", lambda: fast.commit(outputs, maybe_repeated=True))
    slow.commit(outputs, maybe_repeated=False)
    assert rows(out) == [(0, "kelp", p) for p in range(3)]


def test_a_sweep_leaves_alone_what_a_paused_publisher_may_still_show(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    """Its successor could not publish yet, so the epoch is still to come."""
    paused, successor = open_sink(claim=1), open_sink(claim=2)
    outputs = [stage(paused, 0, p, ("kelp", p)) for p in range(3)]
    arm("sink.parquet.before_intent", lambda: successor.sweep(outputs))
    paused.commit(outputs, maybe_repeated=False)
    assert rows(out) == [(0, "kelp", p) for p in range(3)]
    successor.commit(outputs, maybe_repeated=True)
    assert rows(out) == [(0, "kelp", p) for p in range(3)]


def test_readers_may_move_published_epochs_away(
    out: Path, open_sink: Open, stage: Stage, tmp_path: Path
) -> None:
    sink = open_sink()
    outputs = [stage(sink, epoch, 0, ("kelp", epoch)) for epoch in (0, 1)]
    sink.commit(outputs, maybe_repeated=False)
    seen(out, 0).rename(tmp_path / "archive")
    [file] = [seen(out, 1)] if seen(out, 1).is_file() else seen(out, 1).iterdir()
    file.rename(file.with_name("compacted-1.parquet"))
    open_sink(claim=2).commit(outputs, maybe_repeated=True)
    assert rows(out) == [(1, "kelp", 1)]


def test_readers_may_put_something_else_in_place_of_an_epoch(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    sink = open_sink()
    outputs = [stage(sink, epoch, 0, ("kelp", epoch)) for epoch in (0, 1)]
    sink.commit(outputs, maybe_repeated=False)
    [file] = [seen(out, 1)] if seen(out, 1).is_file() else seen(out, 1).iterdir()
    (file.with_name("other.parquet")).write_bytes(file.read_bytes())
    other = file.with_name("other.parquet")
    other.replace(file if file.parent == out else other)
    open_sink(claim=2).commit(outputs, maybe_repeated=True)
    assert {row[1:] for row in rows(out)} == {("kelp", 0), ("kelp", 1)}


@pytest.mark.parametrize("column", ["epoch"])
def test_what_a_version_without_intents_noted_is_not_published_again(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    sink = open_sink()
    outputs = [stage(sink, epoch, 0, ("kelp", epoch)) for epoch in (0, 1, 2)]
    sink.commit(outputs[:2], maybe_repeated=False)
    own = out / "_holdfast"
    notes = dict(path.name.split("-") for path in (own / "intents").iterdir())
    (own / "published.json").write_text(json.dumps(notes))
    shutil.rmtree(own / "intents")
    shutil.rmtree(out / "epoch=0")
    open_sink(claim=2).commit(outputs, maybe_repeated=True)
    assert rows(out) == [(1, "kelp", 1), (2, "kelp", 2)]


def test_what_a_sweep_took_away_does_not_count_as_published(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    """A start passed a damaged entry over, and now the entry has been restored."""
    sink = open_sink()
    output = stage(sink, 0, 0, ("kelp", 1))
    arm("sink.parquet.before_rename", "fail")
    with pytest.raises(StorageError, match="failpoint"):
        sink.commit([output], maybe_repeated=False)
    open_sink(claim=2).sweep([])
    with pytest.raises(CorruptionError, match="is missing"):
        open_sink(claim=3).commit([output], maybe_repeated=True)


def test_a_sweep_deletes_nothing_but_what_has_a_name_of_ours(out: Path, open_sink: Open) -> None:
    sink = open_sink()
    removing = out / "_holdfast" / "removing"
    for name in ("thesis", "1-0-a.parquet-b"):
        (removing / name).mkdir()
    sink.sweep([])
    assert [path.name for path in removing.iterdir()] == ["thesis"]


@pytest.mark.parametrize("noted", [b"{", b'{"0":"\xff"}', b'{"0":1}'])
def test_damaged_notes_of_a_version_without_intents_say_nothing(
    out: Path, open_sink: Open, stage: Stage, noted: bytes
) -> None:
    sink = open_sink()
    (out / "_holdfast" / "published.json").write_bytes(noted)
    sink.commit([stage(sink, 0, 0, ("kelp", 0))], maybe_repeated=False)
    assert rows(out) == [(0, "kelp", 0)]


def test_an_intent_that_names_nothing_is_an_error(out: Path, open_sink: Open, stage: Stage) -> None:
    sink = open_sink()
    output = stage(sink, 0, 0, ("kelp", 0))

    def damage() -> None:
        [intent] = (out / "_holdfast" / "intents").iterdir()
        intent.write_text("../../elsewhere")

    arm("sink.parquet.after_intent", damage)
    with pytest.raises(CorruptionError, match="names nothing that could be published"):
        sink.commit([output], maybe_repeated=False)


def test_a_flipped_bit_of_an_intent_does_not_say_that_its_epoch_was_published(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    sink = open_sink()
    output = stage(sink, 0, 0, ("kelp", 1))
    arm("sink.parquet.before_rename", "fail")
    with pytest.raises(StorageError, match="failpoint"):
        sink.commit([output], maybe_repeated=False)
    (intent,) = (out / "_holdfast" / "intents").iterdir()
    whole = intent.read_bytes()
    again = open_sink()
    for at, bit in itertools.product(range(len(whole)), range(8)):
        intent.write_bytes(flipped(whole, at, bit))
        with pytest.raises(CorruptionError, match="names nothing that could be published"):
            again.commit([output], maybe_repeated=True)
    intent.write_bytes(whole)
    again.commit([output], maybe_repeated=True)
    assert rows(out) == [(0, "kelp", 1)]


def test_an_intent_that_another_publisher_forgets_meanwhile_is_no_error(
    out: Path, open_sink: Open, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_publish, "_EPOCHS_REMEMBERED", 1)
    sink = open_sink()
    for epoch in range(3):
        sink.commit([stage(sink, epoch, 0, ("kelp", epoch))], maybe_repeated=False)
        # What a listing still shows, and is gone.
        (out / "_holdfast" / "intents" / f"gone-{epoch}").symlink_to(out / "nowhere")
    assert rows(out) == [(epoch, "kelp", epoch) for epoch in range(3)]


def test_only_the_same_files_count_as_published_and_moved_away(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    """Somebody empties the output and begins anew with a new checkpoint directory."""
    sink = open_sink()
    sink.commit([stage(sink, 0, 0, ("old", 1))], maybe_repeated=False)
    away(seen(out, 0))
    again = open_sink()
    again.commit([stage(again, 0, 0, ("new", 1))], maybe_repeated=False)
    assert rows(out) == [(0, "new", 1)]


@pytest.mark.parametrize("column", ["epoch"])
def test_other_files_in_place_of_an_epoch_are_an_error(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    sink = open_sink()
    sink.commit([stage(sink, 0, 0, ("old", 1))], maybe_repeated=False)
    other = stage(sink, 0, 0, ("new", 1))
    with pytest.raises(ConfigurationError, match="epoch=0 is there already"):
        sink.commit([other], maybe_repeated=False)
    (out / "epoch=1").touch()
    with pytest.raises(ConfigurationError, match="epoch=1 is there already"):
        sink.commit([stage(sink, 1, 0, ("new", 1))], maybe_repeated=False)
    (out / "epoch=1").unlink()
    assert rows(out) == [(0, "old", 1)]


@pytest.mark.parametrize("column", [None])
def test_another_file_in_place_of_an_epoch_is_an_error(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    """Before it is intended, and after."""
    sink = open_sink()
    output = stage(sink, 0, 0, ("new", 1))
    target = out / "epoch-0000000000.parquet"
    target.write_text("theirs")
    with pytest.raises(ConfigurationError, match="is there already"):
        sink.commit([output], maybe_repeated=False)
    target.unlink()
    arm("sink.parquet.before_rename", target.touch)
    with pytest.raises(ConfigurationError, match="is there already"):
        sink.commit([output], maybe_repeated=False)
    target.unlink()
    sink.commit([output], maybe_repeated=False)
    assert rows(out) == [(0, "new", 1)]


def test_a_folder_of_an_earlier_version_keeps_its_form(
    out: Path, open_sink: Open, stage: Stage, make_context: MakeContext
) -> None:
    """It always had folders named epoch=N, and its marker didn't say so."""
    (out / "_holdfast").mkdir(parents=True)
    (out / "epoch=0").mkdir()
    marker = {"pipeline": "tide", "sink": "sink-0", "format": 1}
    (out / "_holdfast" / "pipeline.json").write_text(json.dumps(marker))
    sink = open_sink()
    sink.commit([stage(sink, 1, 0, ("kelp", 1))], maybe_repeated=False)
    assert (out / "epoch=1").is_dir()
    with pytest.raises(ConfigurationError, match="begun with epoch_column='epoch', not 'tide'"):
        parquet(out, epoch_column="tide").validate(make_context(0))
    schema = pa.schema([("epoch", pa.int64())])
    with pytest.raises(InputError, match="'epoch' already"):
        parquet(out).validate(make_context(0, schema=schema))


@pytest.mark.parametrize("column", ["epoch"])
def test_hidden_files_in_a_published_epoch_do_not_matter(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    sink = open_sink()
    output = stage(sink, 0, 0, ("kelp", 1))
    sink.commit([output], maybe_repeated=False)
    (out / "epoch=0" / "_SUCCESS").touch()
    shutil.rmtree(out / "_holdfast" / "intents")  # of a version without intents
    open_sink(claim=2).commit([output], maybe_repeated=True)
    assert rows(out) == [(0, "kelp", 1)]


def test_a_missing_staged_file_is_named(out: Path, open_sink: Open, stage: Stage) -> None:
    sink = open_sink()
    outputs = [stage(sink, 0, p, ("kelp", p)) for p in range(2)]
    (out / "_holdfast" / "staged" / outputs[1].name).unlink()
    with pytest.raises(CorruptionError, match=f"{outputs[1].name} of epoch 0 is missing"):
        sink.pre_commit(outputs)
    with pytest.raises(CorruptionError, match=f"{outputs[1].name} of epoch 0 is missing"):
        sink.commit(outputs, maybe_repeated=False)
    assert {p.name for p in out.iterdir()} == {"_holdfast"}
    assert list((out / "_holdfast" / "publishing").iterdir()) == []


def test_a_truncated_staged_file_is_named(out: Path, open_sink: Open, stage: Stage) -> None:
    sink = open_sink()
    output = stage(sink, 0, 0, ("kelp", 1))
    staged = out / "_holdfast" / "staged" / output.name
    staged.write_bytes(staged.read_bytes()[:-1])
    with pytest.raises(CorruptionError, match=f"{output.name} .* bytes instead of"):
        sink.pre_commit([output])
    with pytest.raises(CorruptionError, match=f"{output.name} .* bytes instead of"):
        sink.commit([output], maybe_repeated=False)


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)


def test_an_attempt_that_fails_when_it_has_staged_leaves_nothing(
    out: Path, open_sink: Open
) -> None:
    table = pa.table({"word": ["kelp"], "n": [1]})
    writer = open_sink().stager().open(0, 0, "a", table.schema)
    writer.write(table)
    assert writer.close() is not None
    writer.abort()
    assert files(out / "_holdfast" / "staged") == set()


@pytest.mark.parametrize("parts", [1, 2])
def test_staged_bytes_that_have_changed_are_an_error_and_leave_nothing(
    out: Path, open_sink: Open, stage: Stage, parts: int
) -> None:
    sink = open_sink()
    outputs = [stage(sink, 0, p, ("kelp", p)) for p in range(parts)]
    staged = out / "_holdfast" / "staged" / outputs[-1].name
    whole = staged.read_bytes()
    # Parquet's own checksums would not cover the names of columns, which are at its end.
    for at in (40, whole.rindex(b"word")):
        staged.write_bytes(flipped(whole, at))
        with pytest.raises(CorruptionError, match=r"of epoch 0 doesn't hold the bytes"):
            sink.commit(outputs, maybe_repeated=False)
        assert list((out / "_holdfast" / "publishing").iterdir()) == []
    staged.write_bytes(whole)
    sink.commit(outputs, maybe_repeated=False)
    assert rows(out) == [(0, "kelp", p) for p in range(parts)]


def test_staged_files_of_older_versions_have_no_checksum_and_are_published(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    sink = open_sink()
    outputs = [_as_before(out, stage(sink, 0, p, ("kelp", p))) for p in range(2)]
    sink.commit(outputs, maybe_repeated=False)
    assert rows(out) == [(0, "kelp", 0), (0, "kelp", 1)]


@pytest.mark.parametrize("column", [None])
def test_a_staged_file_that_can_not_be_read_is_an_error_and_leaves_nothing(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    sink = open_sink()
    outputs = [_as_before(out, stage(sink, 0, p, ("kelp", p))) for p in range(2)]
    staged = out / "_holdfast" / "staged" / outputs[1].name
    whole = staged.read_bytes()
    staged.write_bytes(b"x" * len(whole))
    with pytest.raises(CorruptionError, match=r"of epoch 0 .* can't be read"):
        sink.commit(outputs, maybe_repeated=False)
    assert list((out / "_holdfast" / "publishing").iterdir()) == []
    staged.write_bytes(whole)
    sink.commit(outputs, maybe_repeated=False)
    assert rows(out) == [(0, "kelp", 0), (0, "kelp", 1)]


def _as_before(out: Path, output: StagedOutput) -> StagedOutput:
    """The same output as versions without checksums named it."""
    staged = out / "_holdfast" / "staged" / output.name
    name = f"{output.name.rpartition('-')[0]}.parquet"
    staged.rename(staged.with_name(name))
    return msgspec.structs.replace(output, name=name)


def test_names_from_the_log_can_not_lead_elsewhere(
    out: Path, open_sink: Open, tmp_path: Path
) -> None:
    sink = open_sink()
    secret = tmp_path / "secret"
    secret.write_text("x")
    output = StagedOutput(0, 0, "../../../secret", 1, 1)
    for intent in (None, f"0-{_publish._digest([output])}"):
        if intent is not None:
            (out / "_holdfast" / "intents" / intent).write_text("1-0-gone")
        with pytest.raises(CorruptionError, match="not a name"):
            sink.commit([output], maybe_repeated=False)
        assert secret.exists()
    assert {p.name for p in out.iterdir()} == {"_holdfast"}


def test_a_full_disk_while_publishing_loses_nothing(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    sink = open_sink()
    outputs = [stage(sink, epoch, 0, ("kelp", epoch)) for epoch in range(3)]
    arm("sink.parquet.before_rename", "full", at=2)
    with pytest.raises(StorageError, match=r"epoch 1 .* No space left .* free some space"):
        sink.commit(outputs, maybe_repeated=False)
    assert rows(out) == [(0, "kelp", 0)]
    sink.commit(outputs, maybe_repeated=True)
    assert rows(out) == [(epoch, "kelp", epoch) for epoch in range(3)]


def test_a_sink_must_be_opened_first(out: Path) -> None:
    with pytest.raises(InternalError, match="before it was opened"):
        parquet(out).stager()
    with pytest.raises(InternalError, match="before it was opened"):
        parquet(out).commit([], maybe_repeated=False)
