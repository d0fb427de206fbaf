from __future__ import annotations

import pickle
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import InputError
from holdfast.operators.aggregates.kinds import KINDS, AggregateSpec, Input
from holdfast.operators.aggregates.operator import AggregateOperator
from holdfast.operators.base import Clock
from holdfast.state.keys import SortedRows, sort_rows
from tests.operators.folding import DictState, Key, Row, buffer_rows, run_epoch

AMOUNT = (Input("amount", pa.int32()),)


def operator() -> AggregateOperator:
    specs = [AggregateSpec("n", "count"), AggregateSpec("total", "sum", AMOUNT)]
    return AggregateOperator("orders", [("key", pa.int64())], specs)


def test_the_state_table_numbers_its_columns_in_order() -> None:
    (schema,) = operator().tables
    assert schema.table == "orders.groups"
    assert [(c.id, c.name, c.type) for c in schema.columns] == [
        (1, "key", pa.int64()),
        (2, "n.count", pa.int64()),
        (3, "total.sum", pa.int64()),
    ]
    assert operator().output_schema.names == ["key", "n", "total"]


def test_descriptions_differ_where_state_would() -> None:
    def describe(kind: pa.DataType, *specs: AggregateSpec) -> str:
        return AggregateOperator("x", [("key", kind)], specs).describe()

    count = AggregateSpec("n", "count")
    described = [
        describe(pa.int64(), count),
        describe(pa.int32(), count),
        describe(pa.int64(), AggregateSpec("m", "count")),
        describe(pa.int64(), AggregateSpec("n", "sum", AMOUNT)),
        describe(pa.int64(), AggregateSpec("n", "sum", (Input("amount", pa.float32()),))),
        describe(pa.int64(), AggregateSpec("n", "collect_set", AMOUNT, (("limit", 3),))),
        describe(pa.int64(), AggregateSpec("n", "collect_set", AMOUNT, (("limit", 4),))),
    ]
    assert len(set(described)) == len(described)
    renamed = AggregateSpec("n", "sum", (Input("price", pa.int32()),))
    assert describe(pa.int64(), renamed) == described[3]


def test_an_operator_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(operator()))
    assert copy.describe() == operator().describe()
    assert copy.tables == operator().tables


def test_an_empty_epoch_changes_nothing() -> None:
    work = operator()
    rows = sort_rows(work.input_schema.empty_table(), 1)
    update = work.update(work.combine(rows), DictState(work.tables[0]), Clock(0, 0))
    assert update.output.num_rows == 0
    assert update.changes["orders.groups"].num_rows == 0
    assert update.new_keys == 0


def test_every_kind_takes_no_rows() -> None:
    numbers = (Input("a", pa.float64()), Input("b", pa.int64()))
    flags = (Input("a", pa.bool_()),)
    for kind in KINDS:
        inputs = numbers if kind in ("first", "last", "collect_list") else numbers[:1]
        inputs = flags if kind.startswith("bool") else inputs
        spec = AggregateSpec("x", kind, inputs, (("limit", 3), ("lg_k", 8)))
        work = AggregateOperator("x", [("key", pa.int64())], [spec])
        rows = sort_rows(work.input_schema.empty_table(), 1)
        update = work.update(rows, DictState(work.tables[0]), Clock(0, 0))
        assert update.output.schema == work.output_schema


def test_combined_rows_are_one_per_key() -> None:
    work = operator()
    rows = sort_rows(buffer_rows(work, [(1, [1, 10]), (2, [1, 5]), (1, [1, 3])]), 1)
    combined = work.combine(rows)
    assert combined.starts.tolist() == [0, 1]
    assert combined.table.schema == work.input_schema
    assert sorted(combined.table.select(["key", "n.count", "total.sum"]).to_pylist(), key=str) == [
        {"key": 1, "n.count": 2, "total.sum": 13},
        {"key": 2, "n.count": 1, "total.sum": 5},
    ]


def test_rows_that_overflow_alone_wait_for_the_state() -> None:
    work = operator()
    state, results = DictState(work.tables[0]), dict[Key, Row]()
    run_epoch(work, state, buffer_rows(work, [(1, [1, -5])]), 1, results)
    run_epoch(
        work, state, buffer_rows(work, [(1, [1, 2**63 - 1]), (1, [1, 3])]), 1, results, combine=True
    )
    assert results[(1,)]["total"] == 2**63 - 3


def test_state_goes_before_the_rows_of_its_key_only() -> None:
    work = operator()
    state, results = DictState(work.tables[0]), dict[Key, Row]()
    run_epoch(work, state, buffer_rows(work, [(1, [1, 10]), (3, [1, 30])]), 1, results)
    run_epoch(
        work,
        state,
        buffer_rows(work, [(0, [1, 1]), (1, [1, 5]), (3, [1, 7]), (3, [1, 8])]),
        1,
        results,
    )
    assert {key[0]: (row["n"], row["total"]) for key, row in results.items()} == {
        0: (1, 1),
        1: (2, 15),
        3: (3, 45),
    }


def test_keys_of_equal_hash_stay_apart() -> None:
    work = AggregateOperator("x", [("key", pa.string())], [AggregateSpec("n", "count")])
    state, results = DictState(work.tables[0]), dict[Key, Row]()
    table = pa.table(
        [pa.array([5, 5, 5], pa.uint64()), pa.array(["b", "a", "b"]), pa.array([1, 1, 1])],
        schema=work.input_schema,
    )
    for _ in range(2):
        run_epoch(work, state, table, 2, results)
    assert {key[0]: row["n"] for key, row in results.items()} == {"a": 2, "b": 4}


def test_columns_labelled_differently_by_spark_are_accepted() -> None:
    inputs = (Input("t", pa.timestamp("us", "UTC")),)
    specs = [AggregateSpec("s", "collect_set", inputs, (("limit", 3),))]
    work = AggregateOperator("x", [("key", pa.timestamp("us", "UTC"))], specs)
    zone = pa.timestamp("us", "Europe/Berlin")
    lists = pa.array([[7], [6, 8]], pa.list_(pa.field("element", zone, nullable=False)))
    table = pa.table(
        {
            "_holdfast_hash": pa.array([1, 1], pa.uint64()),
            "key": pa.array([5, 5], zone),
            "s.values": lists,
        }
    )
    state = DictState(work.tables[0])
    update = work.update(SortedRows(table, np.array([0]), 1), state, Clock(0, 0))
    assert update.output.schema == work.output_schema
    assert update.output.column("s").combine_chunks().values.cast(pa.int64()).to_pylist() == [
        6,
        7,
        8,
    ]


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("sum", pa.string()),
        ("sum", pa.bool_()),
        ("avg", pa.date32()),
        ("var_pop", pa.timestamp("us")),
        ("bool_and", pa.int8()),
        ("min", pa.list_(pa.int8())),
        ("collect_set", pa.map_(pa.int8(), pa.int8())),
    ],
)
def test_a_type_that_an_aggregate_cannot_take_is_refused(kind: str, column: pa.DataType) -> None:
    spec = AggregateSpec("x", kind, (Input("price", column),), (("limit", 3),))
    with pytest.raises(InputError, match=rf"'x': {kind} can't take column 'price'"):
        AggregateOperator("op", [("key", pa.int64())], [spec])


def test_an_average_that_does_not_fit_names_the_key() -> None:
    spec = AggregateSpec("x", "avg", (Input("m", pa.decimal128(38, 0)),))
    work = AggregateOperator("x", [("key", pa.int64())], [spec])
    rows = buffer_rows(work, [(7, [Decimal(10**34), 1])])
    with pytest.raises(InputError, match=r"avg of key \(key=7\) exceeds decimal128\(38, 4\)"):
        run_epoch(work, DictState(work.tables[0]), rows, 1, {})
