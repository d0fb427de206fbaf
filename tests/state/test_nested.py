"""Values of nested types, through both forms, look-ups and merges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.state import local, stored
from holdfast.state.blocks import OpenRun
from holdfast.state.columns import equal, sort_keys
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.keys import sort_rows
from holdfast.state.local import LocalRun, write_local
from holdfast.state.merge import merge_runs
from holdfast.state.run import StoredForm
from holdfast.state.schema import Column, TableSchema
from holdfast.state.stored import StoredRun, encode_stored
from holdfast.state.view import TableView
from tests.state.model import strong_hash

VALUES: dict[pa.DataType, list[Any]] = {
    pa.struct([("a", pa.int64()), ("b", pa.string())]): [
        None,
        {"a": None, "b": None},
        {"a": 1, "b": "x"},
    ],
    pa.list_(pa.int64()): [None, [], [1, None, 3]],
    pa.list_(pa.field("element", pa.string(), nullable=False)): [None, [], ["a", ""]],
    pa.map_(pa.string(), pa.int64()): [None, [], [("a", 1), ("b", None)]],
    pa.map_(pa.int32(), pa.map_(pa.string(), pa.list_(pa.float64()))): [
        None,
        [],
        [(1, None), (2, []), (3, [("x", [0.5, None]), ("y", None)])],
    ],
    pa.struct([("m", pa.map_(pa.string(), pa.struct([("d", pa.decimal128(9, 2))])))]): [
        None,
        {"m": None},
        {"m": [("k", {"d": None}), ("l", None)]},
    ],
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for form in (local, stored):
        monkeypatch.setattr(form, "BLOCK_ROWS", 50)


def table_of(schema: TableSchema, rows: dict[int, Any]) -> pa.Table:
    columns = [
        pa.array([strong_hash((key,)) for key in rows], pa.uint64()),
        pa.array(list(rows), pa.int64()),
        pa.array(list(rows.values()), schema.values[0].type),
    ]
    return sort_rows(pa.Table.from_arrays(columns, schema=schema.arrow), 1).table


def as_local(folder: Path, table: pa.Table) -> OpenRun:
    path = folder / f"{len(list(folder.iterdir()))}.run"
    write_local(path, table.schema, [table])
    run = LocalRun.open(path)
    run.verify()
    return run


def as_stored(table: pa.Table) -> OpenRun:
    data, info = encode_stored([table], table.schema)
    form = StoredForm("run", info.size_bytes, info.checksum, info.tail_bytes)
    run = StoredRun.open("run", form, lambda start, size: bytes(data[start : start + size]))
    run.verify()
    return run


@pytest.mark.parametrize("kind", list(VALUES), ids=str)
def test_nested_values_come_back_as_they_were(kind: pa.DataType, tmp_path: Path) -> None:
    schema = TableSchema("t", (Column(1, "k", pa.int64()),), (Column(2, "v", kind),))
    values = VALUES[kind]
    old = {i: values[i % 3] for i in range(6000)}
    new = {i: values[(i + 1) % 3] for i in range(0, 6000, 7)}
    expected = old | new
    runs = [as_local(tmp_path, table_of(schema, new)), as_stored(table_of(schema, old))]
    view = TableView(schema, [(run, FULL_RANGE) for run in runs])
    assert rows_of(view.scan()) == expected
    # Few keys, many keys (which are taken in another way) and a single one.
    for keys in (range(0, 90, 2), range(5500), [7], [8], [6001]):
        query = table_of(schema, dict.fromkeys(keys))
        found = view.lookup(query.column(0).to_numpy(), query.select(["k"]))
        assert found.rows.schema.equals(schema.arrow, check_metadata=True)
        found.rows.validate(full=True)
        assert rows_of([found.rows]) == {k: expected[k] for k in keys if k in expected}
    merged = list(
        merge_runs(schema, view._segments, FULL_RANGE, drop_tombstones=False, piece_rows=500)
    )
    again = as_stored(pa.concat_tables(merged))
    assert rows_of(TableView(schema, [(again, FULL_RANGE)]).scan()) == expected


def rows_of(tables: Any) -> dict[int, Any]:
    return {row["k"]: row["v"] for table in tables for row in table.to_pylist()}


def test_structs_are_equal_if_all_their_fields_are() -> None:
    kind = pa.struct([("a", pa.float64()), ("b", pa.struct([("c", pa.string())]))])
    rows = [
        None,
        {"a": None, "b": None},
        {"a": None, "b": {"c": None}},
        {"a": float("nan"), "b": {"c": "x"}},
        {"a": 0.5, "b": {"c": "x"}},
    ]
    array = pa.array(rows, kind)
    for shift in range(len(rows)):
        other = pa.array(rows[shift:] + rows[:shift], kind)
        assert np.all(equal(array, other) == (shift == 0))
    sliced = array.slice(2, 3)
    assert equal(sliced, pa.array(rows[2:], kind)).all()
    assert [len(key) for key in sort_keys(sliced)] == [3, 3, 3, 3]
