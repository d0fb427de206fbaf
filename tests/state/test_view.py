"""Look-ups and scans over several runs: newest wins, deleted is gone, columns are found by id."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import CorruptionError
from holdfast.state import local
from holdfast.state.hashing import FULL_RANGE, HashRange, partition_range
from holdfast.state.local import LocalRun, write_local
from holdfast.state.schema import Column, TableSchema
from holdfast.state.view import TableView
from tests.state.model import (
    SCHEMA,
    Hash,
    Key,
    Row,
    found_rows,
    hashes,
    many_rows,
    state_rows,
    state_table,
    strong_hash,
)

Write = Callable[[pa.Table], LocalRun]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.setattr(local, "BLOCK_ROWS", 100)
    return writer_into(tmp_path)


def writer_into(folder: Path) -> Write:
    numbers = itertools.count()

    def write(table: pa.Table) -> LocalRun:
        path = folder / f"{next(numbers)}.arrow"
        write_local(path, table.schema, [table])
        return LocalRun.open(path)

    return write


def view_of(*runs: LocalRun, schema: TableSchema = SCHEMA) -> TableView:
    return TableView(schema, [(run, FULL_RANGE) for run in runs])


def keys_of(numbers: Sequence[int], seed: int = 0) -> list[Key]:
    return [(f"word-{i}", seed) for i in numbers]


def test_all_keys_of_a_large_run_are_found_and_no_others(write: Write) -> None:
    table = many_rows(20_000)
    view = view_of(write(table))
    asked = keys_of(range(0, 40_000, 3))
    assert found_rows(view, asked) == {
        key: row for key, row in state_rows([table]).items() if int(key[0][5:]) % 3 == 0
    }


def test_answers_of_several_large_runs_come_in_the_order_of_the_query(write: Write) -> None:
    newest: dict[Key, Row | None] = {
        (f"word-{i}", 0): None if i % 2 else (-i, None, "new") for i in range(0, 30_000, 3)
    }
    older = many_rows(20_000)
    view = view_of(write(state_table(newest)), write(older))
    expected = state_rows([older]) | {k: row for k, row in newest.items() if row is not None}
    for key, row in newest.items():
        if row is None:
            expected.pop(key, None)
    assert found_rows(view, keys_of(range(30_000))) == expected
    assert state_rows(view.scan()) == expected
    assert view.count() == len(expected)


def test_only_blocks_that_hold_an_asked_hash_are_opened(write: Write) -> None:
    run = write(many_rows(2000))
    table = many_rows(2000)
    view = view_of(run)
    row = table.slice(1234, 1)
    view.lookup(row.column(0).to_numpy(), row.select(SCHEMA.key_names))
    assert [i for i, batch in enumerate(run._batches) if batch is not None] == [12]


def test_older_runs_are_not_opened_once_all_is_answered(write: Write) -> None:
    newer, older = write(many_rows(300)), write(many_rows(300))
    assert len(found_rows(view_of(newer, older), keys_of(range(300)))) == 300
    assert not any(older._batches)


def test_a_segment_answers_only_for_its_range(write: Write) -> None:
    table = many_rows(1000)
    left, right = partition_range(0, 2), partition_range(1, 2)
    run, other = write(table), write(state_table(dict.fromkeys(keys_of(range(1000)), (0, 0.0, ""))))
    view = TableView(SCHEMA, [(other, left), (run, right)])
    expected = {
        key: (0, 0.0, "") if strong_hash(key) <= left.last else row
        for key, row in state_rows([table]).items()
    }
    assert found_rows(view, keys_of(range(1000))) == expected
    assert state_rows(view.scan()) == expected
    assert sum(t.num_rows for t in view.scan(left)) + sum(
        t.num_rows for t in view.scan(right)
    ) == len(expected)


@given(hashes, st.data())
def test_keys_that_share_a_hash_are_told_apart(
    tmp_path_factory: pytest.TempPathFactory, hash_of: Hash, data: st.DataObject
) -> None:
    words = st.sampled_from(["a", "b", "", "a\0", "long enough not to be inlined", None])
    keys = st.tuples(words, st.sampled_from([0, 1, None]))
    values = st.tuples(st.integers(0, 9), st.sampled_from([None, 0.5]), st.none())
    rows = st.dictionaries(keys, st.one_of(st.none(), values), max_size=12)
    runs = data.draw(st.lists(rows, max_size=4))
    write = writer_into(tmp_path_factory.mktemp("runs"))
    view = view_of(*(write(state_table(run, hash_of)) for run in reversed(runs)))
    expected: dict[Key, Row] = {}
    for run in runs:
        for key, row in run.items():
            expected.pop(key, None)
            if row is not None:
                expected[key] = row
    asked = data.draw(st.lists(keys, unique=True, max_size=18))
    assert found_rows(view, asked, hash_of) == {k: expected[k] for k in asked if k in expected}
    assert state_rows(view.scan()) == expected
    assert view.count() == len(expected)


def test_nothing_is_found_in_no_runs_and_for_no_keys(write: Write) -> None:
    assert found_rows(view_of(), keys_of(range(3))) == {}
    assert found_rows(view_of(write(many_rows(10))), []) == {}
    assert list(view_of().scan()) == []
    assert view_of().count() == 0


def test_columns_are_found_by_id_whatever_their_name_and_place(write: Write) -> None:
    """An old run: other names and order, a narrower type, one column more and one fewer."""
    old_schema = TableSchema(
        "counts.groups",
        (Column(2, "date", pa.int32()), Column(1, "term", pa.string())),
        (Column(9, "gone", pa.int64()), Column(3, "count", pa.int32())),
    )
    keys = keys_of(range(50))
    now = state_table(dict.fromkeys(keys, (1, 1.0, "x")))
    columns = [
        now.column(0),
        now.column("day"),
        now.column("word"),
        pa.nulls(50, pa.int64()),
        pa.array(range(50), pa.int32()),
    ]
    old = write(pa.Table.from_arrays(columns, schema=old_schema.arrow))
    expected = {(row["word"], row["day"]): (i, None, None) for i, row in enumerate(now.to_pylist())}
    assert found_rows(view_of(old), keys) == expected
    assert state_rows(view_of(old).scan()) == expected
    newer = write(state_table({keys[0]: (7, 7.0, "new")}))
    assert found_rows(view_of(newer, old), keys) == expected | {keys[0]: (7, 7.0, "new")}
    assert state_rows(view_of(newer, old).scan()) == expected | {keys[0]: (7, 7.0, "new")}


def test_a_run_without_the_keys_of_the_table_is_refused(write: Write) -> None:
    other = TableSchema("other", (Column(7, "word", pa.string()),), ())
    run = write(other.arrow.empty_table())
    with pytest.raises(CorruptionError, match=r"0\.arrow"):
        view_of(run)


def test_scans_come_in_pieces_in_the_order_of_hashes(write: Write) -> None:
    table = many_rows(1000)
    within = HashRange(2**62, 2**63)
    pieces = list(view_of(write(table)).scan(within))
    values = np.concatenate([piece.column(0).to_numpy() for piece in pieces])
    everything = table.column(0).to_numpy()
    expected = everything[(everything >= 2**62) & (everything <= 2**63)]
    assert values.tolist() == expected.tolist()
    assert all(piece.schema.equals(SCHEMA.arrow, check_metadata=True) for piece in pieces)


@pytest.mark.parametrize("spread", ["even", "crowded", "repeated"])
def test_a_few_keys_are_found_in_a_large_block_however_its_hashes_lie(
    write: Write, monkeypatch: pytest.MonkeyPatch, spread: str
) -> None:
    """Places are guessed for even hashes; for others the guess must not mislead."""
    monkeypatch.setattr(local, "BLOCK_ROWS", 1 << 20)
    count = 40_000
    values = np.random.default_rng(5).integers(0, 2**64, count, dtype=np.uint64)
    if spread == "crowded":
        values[: count // 2] >>= np.uint64(30)
        values[0] = 2**64 - 1
    if spread == "repeated":
        values[: count // 2] = values[0]
    values.sort()
    words = pa.array([f"word-{i}" for i in range(count)])
    columns = [pa.array(values), words, pa.nulls(count, pa.int32())]
    columns += [pa.array(range(count)), *(pa.nulls(count, c.type) for c in SCHEMA.values[1:])]
    table = pa.Table.from_arrays(columns, schema=SCHEMA.arrow)
    view = view_of(write(table))
    for places in (
        [0, 1, count - 1],
        [count // 2],
        [count // 4, count // 4 + 1],
        range(7, count, 3001),
    ):
        asked = table.take(pa.array(places))
        found = view.lookup(asked.column(0).to_numpy(), asked.select(SCHEMA.key_names))
        assert found.rows.column("n").to_pylist() == list(places)
    absent = np.sort(values[[5, count // 2]] + np.uint64(1))
    nothing = pa.table({"word": ["x", "y"], "day": pa.nulls(2, pa.int32())})
    assert len(view.lookup(absent, nothing).query) == 0
