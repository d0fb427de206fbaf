from __future__ import annotations

from typing import Any

from holdfast.checkpoint.entry import PlacedPartition, decode_entry, encode_entry
from holdfast.state.hashing import partition_range
from holdfast.state.run import LocalForm
from tests.cli.checkpoint_directory import Builder, describe_otherwise


def cells(output: str) -> list[list[str]]:
    """The rows of the tables in an output, headers included."""
    lines = [line.replace("┃", "│") for line in output.splitlines()]
    rows = [line.split("│")[1:-1] for line in lines if line.startswith("│")]
    return [[cell.strip() for cell in row] for row in rows]


PLACEMENT = (
    PlacedPartition(1, partition_range(1, 2), "h1", "all [of it] is there", 5_000_000),
    PlacedPartition(0, partition_range(0, 2), "h2", "replica; h3 is gone", 1_000, 2_000),
)


def place_runs(builder: Builder, *hosts: tuple[str, ...]) -> None:
    """Say of each run on which hosts' disks it is."""
    builder.runs = [
        describe_otherwise(run, local=LocalForm(1_000_000, "00", names))
        for run, names in zip(builder.runs, hosts, strict=True)
    ]


def test_partitions_are_shown_with_their_host_and_why(builder: Builder, cli: Any) -> None:
    builder.checkpoint(2, placement=PLACEMENT)
    result = cli("placement", builder.path)
    assert result.exit_code == 0, result.output
    assert "epoch 2 (entry 3)" in result.stdout
    header, first, second, *_ = cells(result.stdout)
    assert header == ["partition", "host", "local", "remote", "why"]
    assert first == ["0", "h2", "1.0 kB", "2.0 kB", "replica; h3 is gone"]
    assert second == ["1", "h1", "5.0 MB", "0 B", "all [of it] is there"]


def test_hosts_are_shown_with_what_is_on_their_disks(builder: Builder, cli: Any) -> None:
    place_runs(builder, ("h1", "h3"), ("h1",))
    builder.checkpoint(2, placement=PLACEMENT)
    first, second = (f"{run.name} ({run.table})" for run in builder.runs)
    assert cells(cli("placement", builder.path).stdout)[4:] == [
        ["h1", "1", "5.0 MB", "0 B", "2", "2.0 MB", f"{first}, {second}"],
        ["h2", "1", "1.0 kB", "2.0 kB", "0", "0 B", ""],
        ["h3", "0", "0 B", "0 B", "1", "1.0 MB", first],
    ]


def test_many_runs_are_counted_not_listed(builder: Builder, cli: Any) -> None:
    for epoch in range(2, 9):
        builder.count_words(epoch, {"apple": epoch})
    place_runs(builder, *[("h1",)] * 9)
    builder.checkpoint(8, placement=PLACEMENT)
    assert " and 5 more" in cli("placement", builder.path).stdout


def test_an_older_checkpoint_can_be_asked_for(builder: Builder, cli: Any) -> None:
    builder.checkpoint(2, placement=PLACEMENT)
    builder.checkpoint(3)
    assert "all [of it] is there" in cli("placement", builder.path, "--epoch", 2).stdout
    assert "all [of it] is there" not in cli("placement", builder.path).stdout
    result = cli("placement", builder.path, "--epoch", 77)
    assert result.exit_code == 1
    assert "77" in result.stderr


def test_an_entry_without_placement_says_so(builder: Builder, cli: Any) -> None:
    result = cli("placement", builder.path)
    assert result.exit_code == 0
    assert "no placement is recorded" in result.stdout
    assert "local mode" in result.stdout
    assert cells(result.stdout) == []


def test_an_entry_without_placement_still_shows_whose_disks_hold_runs(
    builder: Builder, cli: Any
) -> None:
    place_runs(builder, ("h1",), ("h2",))
    builder.checkpoint(2)
    result = cli("placement", builder.path)
    assert "no placement is recorded" in result.stdout
    assert [row[:2] for row in cells(result.stdout)[1:]] == [["h1", "0"], ["h2", "0"]]


def test_placement_is_written_only_where_there_is_one(builder: Builder) -> None:
    placed, plain = builder.checkpoint(2, placement=PLACEMENT), builder.checkpoint(3)
    assert decode_entry(encode_entry(placed)) == placed
    assert b"placement" not in encode_entry(plain)
    assert decode_entry(encode_entry(plain)) == plain


def test_there_must_be_a_checkpoint_directory(tmp_path: Any, cli: Any) -> None:
    result = cli("placement", tmp_path / "nowhere")
    assert result.exit_code == 1
    assert "there is no directory" in result.stderr


def test_looking_at_placement_changes_nothing(builder: Builder, cli: Any) -> None:
    builder.checkpoint(2, placement=PLACEMENT)
    before = {p: p.read_bytes() for p in builder.path.rglob("*") if p.is_file()}
    assert cli("placement", builder.path).exit_code == 0
    assert {p: p.read_bytes() for p in builder.path.rglob("*") if p.is_file()} == before
