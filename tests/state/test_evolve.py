"""Values of an earlier version of a program are read as today's types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from holdfast.errors import CorruptionError
from holdfast.operators.process.declare import ListState, State, ValueState
from holdfast.operators.process.tables import ProcessTables
from holdfast.state.evolve import adapt
from holdfast.state.schema import TableSchema


@pytest.mark.parametrize(
    ("old", "values", "new", "read"),
    [
        (pa.int32(), [1, None], pa.int64(), [1, None]),
        (
            pa.struct([("a", pa.int32()), ("b", pa.string())]),
            [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}],
            pa.struct([("b", pa.string()), ("c", pa.float64()), ("a", pa.int64())]),
            [{"b": "x", "c": None, "a": 1}, None, {"b": "y", "c": None, "a": None}],
        ),
        (
            pa.list_(pa.struct([("a", pa.int32())])),
            [[{"a": 1}, None], None, []],
            pa.list_(pa.struct([("a", pa.int64()), ("z", pa.bool_())])),
            [[{"a": 1, "z": None}, None], None, []],
        ),
        (
            pa.map_(pa.string(), pa.int32()),
            [[("k", 1)], None, []],
            pa.map_(pa.string(), pa.int64()),
            [[("k", 1)], None, []],
        ),
    ],
    ids=["number", "struct", "list", "map"],
)
def test_nested_values_are_read_by_name_and_widened(
    old: pa.DataType, values: list[object], new: pa.DataType, read: list[object]
) -> None:
    array = pa.array(values, old)
    assert adapt(array, new).type == new
    assert adapt(array, new).to_pylist() == read
    assert adapt(array.slice(1), new).to_pylist() == read[1:]
    adapt(array, new).validate(full=True)


def _named(state: State, name: str) -> State:
    state.name = name
    return state


def _values(earlier: TableSchema | None, *names: str) -> TableSchema:
    states = [_named(ValueState("long"), name) for name in names]
    known = {earlier.table: earlier} if earlier else {}
    keys = [("user", pa.string())]
    return ProcessTables.of("p", keys, states, (), known).values


@pytest.mark.parametrize("values", [["x"], [[1]]], ids=str)
def test_values_that_no_program_can_have_written_are_damage(values: list[object]) -> None:
    with pytest.raises(CorruptionError, match="can't be read as int64"):
        adapt(pa.array(values), pa.int64())


def test_a_column_id_is_never_used_again() -> None:
    first = _values(None, "a", "b")
    without = _values(TableSchema.from_record(first.record()), "a")
    again = _values(TableSchema.from_record(without.record()), "a", "c")
    ids = {column.name: column.id for column in again.values}
    assert ids["a"] == {c.name: c.id for c in first.values}["a"]
    assert ids["c"] not in {column.id for column in first.columns}


def test_states_of_the_same_name_keep_their_ids() -> None:
    first = _values(None, "a", "b")
    reordered = _values(TableSchema.from_record(first.record()), "b", "a")
    assert {c.name: c.id for c in reordered.values} == {c.name: c.id for c in first.values}


def test_a_list_has_a_table_of_its_own() -> None:
    tables = ProcessTables.of("p", [("user", pa.string())], [_named(ListState("long"), "xs")], ())
    assert [schema.table for schema in tables.all] == ["p.values", "p.list.xs"]
