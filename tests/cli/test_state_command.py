from __future__ import annotations

import io
import sys
import time
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from holdfast.checkpoint.pins import live_pins, pin, read_pins
from holdfast.checkpoint.reader import stored_tables
from holdfast.checkpoint.retention import Retention, collect, plan_collection
from holdfast.cli import directory
from holdfast.cli.state import _table
from holdfast.errors import StorageError
from holdfast.state.schema import Column, TableSchema
from holdfast.storage import LocalStorage
from tests.cli.checkpoint_directory import Builder


def cells(output: str) -> list[list[str]]:
    """The rows of the tables in an output, headers included."""
    lines = [line.replace("┃", "│") for line in output.splitlines()]
    rows = [line.split("│")[1:-1] for line in lines if line.startswith("│")]
    return [[cell.strip() for cell in row] for row in rows]


def test_a_log_that_is_damaged_is_said_beside_the_state(builder: Builder, cli: Any) -> None:
    newest = max((builder.path / "log").glob("*.json"))
    stored = newest.read_bytes()
    newest.write_bytes(stored[:-9] + bytes([stored[-9] ^ 0xFF]) + stored[-8:])
    result = cli("state", builder.path)
    assert result.exit_code == 0, result.output
    assert f"log entry {int(newest.stem)}" in result.stderr


def test_the_newest_state_is_shown_as_results(builder: Builder, cli: Any) -> None:
    result = cli("state", builder.path)
    assert result.exit_code == 0, result.output
    header, *rows = cells(result.stdout)
    assert header == ["word", "n", "mean"]
    assert sorted(rows) == [
        ["apple", "10", "5.0"],
        ["pear", "4", "2.0"],
        ["plum", "6", "3.0"],
        ["quince", "1", "0.5"],
    ]


def test_an_older_epoch_is_shown_as_it_was(builder: Builder, cli: Any) -> None:
    _, *rows = cells(cli("state", builder.path, "--epoch", 0).stdout)
    assert sorted(row[:2] for row in rows) == [["apple", "2"], ["pear", "4"], ["plum", "6"]]


def test_a_terminal_obeys_nothing_that_is_in_state(builder: Builder, cli: Any) -> None:
    builder.count_words(2, {"\x1b[2Jgone": 1})
    builder.checkpoint(2)
    result = cli("state", builder.path)
    assert result.exit_code == 0, result.output
    assert "\\x1b[2Jgone" in result.stdout
    assert "\x1b[2J" not in result.stdout


def test_a_terminal_obeys_nothing_that_is_in_names() -> None:
    schema = TableSchema(
        "t\x1b]0;x",
        (Column(1, "k\x1b[2J", pa.string()),),
        (Column(2, "n\u202e", pa.int64()),),
    )
    written = io.StringIO()
    console = Console(file=written, force_terminal=True)
    console.print(_table(schema, pa.table({"k\x1b[2J": ["a"], "n\u202e": [1]})))
    text = written.getvalue()
    assert [shown in text for shown in ("t\\x1b]0;x", "k\\x1b[2J", "n\\u202e")] == [True] * 3
    assert not [told for told in ("\x1b]0", "\x1b[2J", "\u202e") if told in text]


def test_raw_shows_the_buffers(builder: Builder, cli: Any) -> None:
    header, *rows = cells(cli("state", builder.path, "--raw", "--key", "word=pear").stdout)
    assert header == ["word", "n.count", "mean.sum", "mean.count"]
    assert rows == [["pear", "4", "8.0", "4"]]


def test_an_operator_that_is_not_understood_is_shown_raw(tmp_path: Path, cli: Any) -> None:
    builder = Builder(tmp_path / "ck", program={"counts": "something else"})
    builder.count_words(0, {"apple": 2})
    builder.checkpoint(0)
    assert cells(cli("state", builder.path).stdout)[0][1] == "n.count"


def test_one_key_is_found(builder: Builder, cli: Any) -> None:
    assert cells(cli("state", builder.path, "--key", "word=apple").stdout)[1:] == [
        ["apple", "10", "5.0"]
    ]
    assert cells(cli("state", builder.path, "--key", "word=fig").stdout)[1:] == []


def test_text_that_is_not_utf8_is_shown_and_found(tmp_path: Path, cli: Any) -> None:
    builder = Builder(tmp_path / "ck")
    builder.count_words(0, {"caf\udce9": 2, "café": 3})  # as a shell hands on the byte E9
    builder.checkpoint(0)
    _, *rows = cells(cli("state", builder.path).stdout)
    assert sorted(row[:2] for row in rows) == [["caf\\udce9", "2"], ["café", "3"]]
    (row,) = cells(cli("state", builder.path, "--key", "word=caf\udce9").stdout)[1:]
    assert row[1] == "2"
    assert cli("verify", builder.path).exit_code == 0


def test_the_limit_is_said(builder: Builder, cli: Any) -> None:
    result = cli("state", builder.path, "--limit", 3)
    assert len(cells(result.stdout)) == 4
    assert "only the first 3 rows" in result.stdout
    assert "only the first" not in cli("state", builder.path, "--limit", 4).stdout


def test_one_operator_can_be_chosen(builder: Builder, cli: Any) -> None:
    assert len(cells(cli("state", builder.path, "--operator", "counts").stdout)) == 5
    result = cli("state", builder.path, "--operator", "sums")
    assert result.exit_code == 1
    assert "counts" in result.stderr


NAMED = pa.struct([("name", pa.string())])
PLACE = pa.struct([("x", pa.int64()), ("day", pa.date32())])


@pytest.mark.parametrize(
    ("kind", "values", "asked"),
    [
        (pa.int32(), [7, -8], "7"),
        (pa.bool_(), [True, False], "true"),
        (pa.float64(), [float("nan"), 1.5], "nan"),
        (pa.decimal128(10, 2), [Decimal("1.50"), None], "1.5"),
        (pa.binary(), [b"\x01\xff", b""], "0x01ff"),
        (pa.date32(), [19000, 19001], "2022-01-08"),
        (pa.timestamp("us", "UTC"), [0, 1], "1970-01-01T00:00:00"),
        (pa.timestamp("us", "UTC"), [0, 1], "1970-01-01T01:00:00+01:00"),
        (pa.timestamp("us"), [0, 1], "1970-01-01 00:00:00"),
        (PLACE, [{"x": 1, "day": 0}, {"x": 1, "day": None}], '{"x": 1, "day": "1970-01-01"}'),
        (PLACE, [{"x": 1, "day": None}, None], '{"x": 1}'),
        (NAMED, [{"name": "caf\udce9"}, {"name": "café"}], '{"name": "caf\udce9"}'),
    ],
    ids=str,
)
def test_keys_of_every_type_are_found(
    kind: pa.DataType, values: list[object], asked: str, tmp_path: Path, cli: Any
) -> None:
    schema = TableSchema("op.table", (Column(1, "k", kind),), (Column(2, "v", pa.string()),))
    builder = Builder(tmp_path / "ck", schema=schema, program={"op": "?"})
    builder.add_run(0, {"k": values, "v": ["yes", "no"]})
    builder.checkpoint(0)
    result = cli("state", builder.path, "--key", f"k={asked}")
    assert [row[1] for row in cells(result.stdout)[1:]] == ["yes"]


def test_nulls_look_different_from_text(tmp_path: Path, cli: Any) -> None:
    builder = Builder(tmp_path / "ck", program={})
    columns: dict[str, Sequence[object]] = {
        "word": [None, "[red]"],
        "n.count": [1, 2],
        "mean.sum": [None, 1.0],
        "mean.count": [0, 1],
    }
    builder.add_run(0, columns)
    builder.checkpoint(0)
    _, *rows = cells(cli("state", builder.path).stdout)
    assert sorted(row[0] for row in rows) == ["[red]", "null"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--key", "word"], "NAME=VALUE"),
        (["--key", "wrod=x"], "its key columns are: word"),
        (["--epoch", "7"], "epoch 7"),
    ],
)
def test_what_cannot_be_asked_is_said(
    options: list[str], said: str, builder: Builder, cli: Any
) -> None:
    result = cli("state", builder.path, *options)
    assert result.exit_code == 1
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_value_of_another_type_is_said(tmp_path: Path, cli: Any) -> None:
    schema = TableSchema("op.table", (Column(1, "k", pa.int32()),), ())
    builder = Builder(tmp_path / "ck", schema=schema, program={})
    builder.add_run(0, {"k": [1]})
    builder.checkpoint(0)
    result = cli("state", builder.path, "--key", "k=apple")
    assert result.exit_code == 1
    assert "'apple' is not a value of key column 'k'" in result.stderr


def collect_all_but_the_newest(builder: Builder) -> None:
    """What the running pipeline does at its next checkpoint; its clock is hours ahead of the reader's."""
    builder.runs = builder.runs[-1:]
    builder.checkpoint(7)
    now_ms = time.time_ns() // 1_000_000 + 12 * 3_600_000
    plan = plan_collection(
        builder.log.state(),
        Retention(keep_last=1),
        live_pins(builder.storage, now_ms),
        live_objects=(),
        now_ms=now_ms,
    )
    collect(builder.log, builder.storage, plan)


def test_a_checkpoint_is_not_deleted_while_it_is_read(
    builder: Builder, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*arguments: Any) -> Any:
        collect_all_but_the_newest(builder)
        return stored_tables(*arguments)

    monkeypatch.setattr(sys.modules["holdfast.cli.state"], "stored_tables", late)
    result = cli("state", builder.path, "--epoch", 0)
    assert result.exit_code == 0, result.output
    _, *rows = cells(result.stdout)
    assert sorted(row[:2] for row in rows) == [["apple", "2"], ["pear", "4"], ["plum", "6"]]
    assert read_pins(builder.storage) == {}


def test_a_checkpoint_that_goes_before_it_is_held_makes_room_for_the_newest(
    builder: Builder, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def late(storage: Any, entry: int, *arguments: Any, **options: Any) -> Any:
        tries.append(entry)
        if len(tries) == 1:
            collect_all_but_the_newest(builder)
        return pin(storage, entry, *arguments, **options)

    monkeypatch.setattr(directory, "pin", late)
    result = cli("state", builder.path)
    assert (result.exit_code, tries) == (0, [2, 3]), result.output
    assert "after epoch 7" in result.stdout
    assert read_pins(builder.storage) == {}


def test_who_may_only_read_is_told_and_reads(
    builder: Builder, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: Any) -> bool:
        raise StorageError("read-only")

    monkeypatch.setattr(LocalStorage, "put_if_absent", refused)
    result = cli("state", builder.path)
    assert result.exit_code == 0
    assert "without a pin" in result.stderr
    assert len(cells(result.stdout)) == 5
