"""Steps of publishing that meet another publisher, a reader or damage half-way."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from holdfast.checkpoint.entry import StagedOutput
from holdfast.errors import ConfigurationError, CorruptionError, InternalError, StorageError
from holdfast.failpoints import arm, disarm
from holdfast.sinks import Sink, SinkContext, parquet

MakeContext = Callable[..., SinkContext]
Stage = Callable[..., StagedOutput]

Open = Callable[..., Sink]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def open_sink(out: Path, make_context: MakeContext) -> Open:
    def open_with(claim: int = 1) -> Sink:
        sink = parquet(out)
        sink.open(make_context(claim))
        return sink

    return open_with


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    disarm()


def rows(out: Path) -> list[tuple[int, str, int]]:
    """What a reader of the folder sees."""
    table = ds.dataset(out, partitioning="hive").to_table()
    return sorted((row["epoch"], row["word"], row["n"]) for row in table.to_pylist())


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_readers_see_published_files_and_an_epoch_column(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    sink = open_sink()
    published = [stage(sink, 7, 0, ("kelp", 1)), stage(sink, 8, 0, ("kelp", 2), ("rock", 1))]
    sink.commit(published, maybe_repeated=False)
    stage(sink, 9, 0, ("not yet", 1))
    assert rows(out) == [(7, "kelp", 1), (8, "kelp", 2), (8, "rock", 1)]
    assert {p.name for p in out.iterdir()} == {"_holdfast", "epoch=7", "epoch=8"}


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
    own = {"_holdfast/pipeline.json", "_holdfast/published.json"}
    assert files(out) == {f"epoch=0/{output.name}", *own}
    assert {p.name for p in (out / "_holdfast" / "publishing").iterdir()} == set()


def leave_over(out: Path) -> None:
    """What a publisher that died before its rename would leave."""
    [folder] = (out / "_holdfast" / "publishing").iterdir()
    shutil.copytree(folder, folder.with_name("1-0-died"))


@pytest.mark.parametrize("point", ["before_link", "before_rename", "after_rename"])
def test_another_publisher_may_be_faster_at_any_step(
    out: Path, open_sink: Open, stage: Stage, point: str
) -> None:
    slow, fast = open_sink(claim=1), open_sink(claim=2)
    outputs = [stage(slow, 0, p, ("kelp", p)) for p in range(3)]
    arm(f"sink.parquet.{point}", lambda: fast.commit(outputs, maybe_repeated=True))
    slow.commit(outputs, maybe_repeated=False)
    assert rows(out) == [(0, "kelp", p) for p in range(3)]


def test_a_paused_publisher_never_shows_half_an_epoch(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    """It wakes up when its successor has swept what it was about to rename."""
    paused, successor = open_sink(claim=1), open_sink(claim=2)
    outputs = [stage(paused, 0, p, ("kelp", p)) for p in range(3)]
    arm("sink.parquet.before_rename", lambda: successor.sweep(outputs))
    with pytest.raises(StorageError, match="publish epoch 0"):
        paused.commit(outputs, maybe_repeated=False)
    assert not (out / "epoch=0").exists()
    successor.commit(outputs, maybe_repeated=True)
    assert rows(out) == [(0, "kelp", p) for p in range(3)]


def test_readers_may_move_published_epochs_away(
    out: Path, open_sink: Open, stage: Stage, tmp_path: Path
) -> None:
    sink = open_sink()
    outputs = [stage(sink, epoch, 0, ("kelp", epoch)) for epoch in (0, 1)]
    sink.commit(outputs, maybe_repeated=False)
    (out / "epoch=0").rename(tmp_path / "archive")
    next((out / "epoch=1").iterdir()).rename(out / "epoch=1" / "compacted.parquet")
    open_sink(claim=2).commit(outputs, maybe_repeated=True)
    assert rows(out) == [(1, "kelp", 1)]


def test_only_the_same_files_count_as_published_and_moved_away(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    """Somebody empties the output and begins anew with a new checkpoint directory."""
    sink = open_sink()
    sink.commit([stage(sink, 0, 0, ("old", 1))], maybe_repeated=False)
    shutil.rmtree(out / "epoch=0")
    again = open_sink()
    again.commit([stage(again, 0, 0, ("new", 1))], maybe_repeated=False)
    assert rows(out) == [(0, "new", 1)]


def test_other_files_in_place_of_an_epoch_are_an_error(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    sink = open_sink()
    sink.commit([stage(sink, 0, 0, ("old", 1))], maybe_repeated=False)
    other = stage(sink, 0, 0, ("new", 1))
    with pytest.raises(ConfigurationError, match="epoch=0 already holds other files"):
        sink.commit([other], maybe_repeated=False)
    (out / "epoch=1").touch()
    with pytest.raises(ConfigurationError, match="epoch=1 already holds other files"):
        sink.commit([stage(sink, 1, 0, ("new", 1))], maybe_repeated=False)
    (out / "epoch=1").unlink()
    assert rows(out) == [(0, "old", 1)]


def test_hidden_files_in_a_published_epoch_do_not_matter(
    out: Path, open_sink: Open, stage: Stage
) -> None:
    sink = open_sink()
    output = stage(sink, 0, 0, ("kelp", 1))
    sink.commit([output], maybe_repeated=False)
    (out / "epoch=0" / "_SUCCESS").touch()
    (out / "_holdfast" / "published.json").unlink()
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


def test_names_from_the_log_can_not_lead_elsewhere(
    out: Path, open_sink: Open, tmp_path: Path
) -> None:
    sink = open_sink()
    secret = tmp_path / "secret"
    secret.write_text("x")
    output = StagedOutput(0, 0, "../../../secret", 1, 1)
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
