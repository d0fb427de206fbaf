"""Any rows, any split into epochs, any number of partitions: the result is that of batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast.aggregates as hf
from holdfast.aggregates import Aggregate
from holdfast.errors import InputError
from holdfast.operators.aggregates.operator import AggregateOperator
from holdfast.spark.jvm.grouping import preaggregated
from holdfast.spark.plans.lift import AggregatePlan, plan_aggregate
from tests.operators.folding import DictState, Key, Row, keys_of, plain, run_epoch
from tests.spark.batch_oracle import batch_aggregate

pytestmark = pytest.mark.spark

UTC = timezone.utc
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), [-128, -1, 0, 7, 127]),
    "short": (pa.int16(), [-(2**15), 0, 5, 2**15 - 1]),
    "int": (pa.int32(), [-(2**31), 0, 5, 2**31 - 1]),
    "long": (pa.int64(), [-(2**50), -1, 0, 1, 2**50, 2**53 + 1]),
    "vast": (pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
    "float": (pa.float32(), [0.0, -0.0, 1.5, -2.25, 1e6, math.nan, math.inf]),
    "double": (pa.float64(), [0.0, -0.0, 0.1, -2.25, 1e6, math.nan, -math.inf]),
    "finite": (pa.float64(), [0.0, 0.1, 0.2, -1e6, 12345.678]),
    "money": (pa.decimal128(9, 2), [Decimal(v) for v in ("0.00", "1.10", "-9999999.99", "0.05")]),
    "fine": (
        pa.decimal128(38, 18),
        [Decimal(v) for v in ("0.000000000000000001", "-123456789012.345678901234567891", "5E-18")],
    ),
    "huge": (pa.decimal128(38, 0), [Decimal(10**36), Decimal(-(10**36)), Decimal(3)]),
    "text": (pa.string(), ["", "a", "ab", "é", "z", "\U0001f600", "a" * 20]),
    "bytes": (pa.binary(), [b"", b"\0", b"\xff", b"ab"]),
    "day": (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
    "time": (
        pa.timestamp("us", "UTC"),
        [datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)],
    ),
    "local": (pa.timestamp("us"), [datetime(1970, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 4)]),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
SUMMED = ["byte", "short", "int", "long", "float", "double", "finite", "money", "fine", "huge"]
AVERAGED = [*SUMMED[:-1], "vast"]
SPREAD = ["byte", "int", "float", "double", "finite", "money"]
names = st.sampled_from(sorted(COLUMNS))


def aggregates() -> st.SearchStrategy[Aggregate]:
    """Any aggregate over any column that can't overflow."""
    limits = st.integers(1, 4)
    of: list[st.SearchStrategy[Aggregate]] = [
        st.one_of(st.none(), names).map(hf.count),
        st.sampled_from(SUMMED).map(hf.sum),
        st.sampled_from(AVERAGED).map(hf.avg),
        *(names.map(make) for make in (hf.min, hf.max, hf.any_value)),
        *(
            st.sampled_from(SPREAD).map(make)
            for make in (hf.variance, hf.var_pop, hf.stddev, hf.stddev_pop)
        ),
        *(st.just(make("bool")) for make in (hf.bool_and, hf.bool_or)),
        st.tuples(names, names).map(lambda c: hf.first(c[0], by=c[1])),
        st.tuples(names, names).map(lambda c: hf.last(c[0], by=c[1])),
        st.tuples(names, limits).map(lambda c: hf.collect_set(c[0], limit=c[1])),
        st.tuples(names, names, limits).map(lambda c: hf.collect_list(c[0], by=c[1], limit=c[2])),
    ]
    return st.one_of(of)


rows = st.lists(
    st.fixed_dictionaries(
        {name: st.none() | st.sampled_from(pool) for name, (_, pool) in COLUMNS.items()}
    ),
    max_size=8,
)


@pytest.fixture(scope="module")
def own(spark: SparkSession) -> SparkSession:
    """A session with the settings of Holdfast's own jobs."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.ansi.enabled", "true")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def fold(
    own: SparkSession,
    plan: AggregatePlan,
    epochs: Sequence[pa.Table],
    shapes: Sequence[tuple[int, bool, bool]],
) -> dict[Key, Row]:
    """Run epochs as (partitions, pre-aggregated, combined) through the operator."""
    operator = plan.operator
    assert isinstance(operator, AggregateOperator)
    state = DictState(operator.tables[0])
    results: dict[Key, Row] = {}
    for table, (partitions, grouped, combine) in zip(epochs, shapes, strict=False):
        batch = own.createDataFrame(table)
        group = grouped or plan.must_preaggregate
        frame = preaggregated(own, plan.preaggregate(batch)).frame if group else plan.lift(batch)
        received = frame.toArrow()
        types = [f.type for f in operator.input_schema][1:]
        assert [f.type for f in received.schema][1:] == types
        hashes = received.column(0).combine_chunks().view(pa.uint64())
        received = received.set_column(0, operator.input_schema.field(0), hashes)
        run_epoch(operator, state, received, partitions, results, combine=combine)
    return results


def assert_same(ours: Any, batch: Any, aggregate: Aggregate, scale: float, rows: int) -> None:
    """Equal, or as near as the order of floating-point additions allows."""
    if isinstance(batch, list):
        assert list(map(plain, ours)) == list(map(plain, batch)), aggregate
    elif isinstance(batch, float) and math.isfinite(batch) and scale:
        if aggregate.kind.startswith("stddev"):
            ours, batch = ours**2, batch**2
        power = 2 if aggregate.kind.startswith(("var", "stddev")) else 1
        error = 8 * rows * 2.0**-52 * (rows * scale) ** power
        assert ours == pytest.approx(batch, rel=0, abs=error), aggregate
    else:
        assert plain(ours) == plain(batch), aggregate


def scale_of(aggregate: Aggregate, rows: Sequence[Row]) -> float:
    """The greatest number that went into a floating-point sum; 0 for what must be exact."""
    if aggregate.kind not in ("sum", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop"):
        return 0.0
    numbers = [abs(float(row[str(aggregate.columns[0])] or 0)) for row in rows]
    return max((n for n in numbers if math.isfinite(n)), default=0.0)


def check(
    spark: SparkSession,
    own: SparkSession,
    keys: list[str],
    wanted: Mapping[str, Aggregate],
    epochs: Sequence[Sequence[Row]],
    shapes: Sequence[tuple[int, bool, bool]],
    weak_hash_bits: int | None,
) -> None:
    tables = [pa.Table.from_pylist(list(epoch), schema=SCHEMA) for epoch in epochs]
    everything = spark.createDataFrame(pa.concat_tables(tables).combine_chunks())
    named = {f"key {name}": name for name in keys}
    frame = everything.withColumns({key: everything[name] for key, name in named.items()})
    plan = plan_aggregate(
        everything,
        "test",
        [F.col(name).alias(key) for key, name in named.items()],
        wanted,
        weak_hash_bits=weak_hash_bits,
    )
    results = fold(own, plan, tables, shapes)
    batch = batch_aggregate(frame, list(named), wanted).toArrow()
    expected = dict(zip(keys_of(batch, plan.operator.tables[0]), batch.to_pylist(), strict=True))
    assert results.keys() == expected.keys()
    every = [row for epoch in epochs for row in epoch]
    for key, row in expected.items():
        for name, aggregate in wanted.items():
            scale = scale_of(aggregate, every)
            assert_same(results[key][name], row[name], aggregate, scale, len(every))


@pytest.mark.slow
@settings(
    # Each example is several Spark jobs; the same folding is tried far more often without Spark.
    max_examples=15,
    deadline=None,
    # Every example is several Spark jobs: shrinking a failure would take longer than reading it.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    keys=st.lists(names, min_size=1, max_size=2, unique=True),
    chosen=st.lists(aggregates(), min_size=8, max_size=12),
    sketch=names,
    epochs=st.lists(rows, min_size=1, max_size=3),
    shapes=st.lists(
        st.tuples(st.integers(1, 3), st.booleans(), st.booleans()), min_size=3, max_size=3
    ),
    weak_hash_bits=st.sampled_from([None, None, 1]),
)
def test_every_aggregate_equals_batch(
    spark: SparkSession,
    own: SparkSession,
    keys: list[str],
    chosen: list[Aggregate],
    sketch: str,
    epochs: list[list[Row]],
    shapes: list[tuple[int, bool, bool]],
    weak_hash_bits: int | None,
) -> None:
    wanted = {f"a{i}": aggregate for i, aggregate in enumerate(chosen)}
    if not shapes[0][0] - 1:  # A sketch forbids lifting, so only now and then.
        wanted["sketch"] = hf.approx_count_distinct(sketch)
    check(spark, own, keys, wanted, epochs, shapes, weak_hash_bits)


@pytest.mark.parametrize("grouped", [False, True])
def test_averages_of_decimals_round_as_spark_rounds(
    spark: SparkSession, own: SparkSession, grouped: bool
) -> None:
    random = np.random.default_rng(5)
    # Precision, scale, and so many digits that neither sums nor averages overflow.
    cases = [(5, 5, 5), (18, 2, 18), (38, 4, 34), (38, 33, 34), (38, 38, 36)]
    types = {f"d{p}_{s}": (p, s, digits) for p, s, digits in cases}
    groups = random.integers(0, 60, 500)
    columns = {"key": pa.array(groups)}
    for name, (precision, scale, digits) in types.items():
        numbers = [int("".join(map(str, random.integers(0, 10, digits)))) for _ in groups]
        values = [Decimal(n).scaleb(-scale, Context(prec=60)) for n in numbers]
        columns[name] = pa.array(values, pa.decimal128(precision, scale))
    table = pa.table(columns)
    wanted = {f"avg of {name}": hf.avg(name) for name in types}
    plan = plan_aggregate(spark.createDataFrame(table), "test", ["key"], wanted)
    results = fold(own, plan, [table.slice(0, 211), table.slice(211)], [(2, grouped, False)] * 2)
    batch = batch_aggregate(spark.createDataFrame(table), ["key"], wanted).toArrow()
    assert batch.schema == plan.operator.output_schema
    assert results == {(row["key"],): row for row in batch.to_pylist()}


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(
    ("aggregate", "value"),
    [
        (hf.sum("vast"), 2**63 - 1),
        (hf.sum("huge"), Decimal(10**38 - 1)),
        (hf.avg("huge"), Decimal(10**35)),
    ],
    ids=["sum of bigint", "sum of decimal", "avg of decimal"],
)
def test_overflow_is_an_error_where_it_is_one_in_batch(
    spark: SparkSession, own: SparkSession, aggregate: Aggregate, value: object, grouped: bool
) -> None:
    column = str(aggregate.columns[0])
    table = pa.Table.from_pylist([{"text": "k", column: value}] * 2, schema=SCHEMA)
    with pytest.raises(PySparkException, match=r"OVERFLOW|OUT_OF_RANGE"):
        batch_aggregate(spark.createDataFrame(table), ["text"], {"x": aggregate}).collect()
    plan = plan_aggregate(spark.createDataFrame(table), "test", ["text"], {"x": aggregate})
    # One row per epoch: where the sum itself fits, each epoch alone is well.
    with pytest.raises(InputError, match=rf"'x': {aggregate.kind} of key \(text='k'\) exceeds"):
        fold(own, plan, [table.slice(0, 1), table.slice(1)], [(1, grouped, False)] * 2)


def test_a_sum_that_overflows_within_a_batch_is_an_error_in_either_way(own: SparkSession) -> None:
    table = pa.Table.from_pylist([{"text": "k", "vast": 2**63 - 1}] * 8, schema=SCHEMA)
    plan = plan_aggregate(own.createDataFrame(table), "test", ["text"], {"x": hf.sum("vast")})
    with pytest.raises(InputError, match="exceeds bigint"):
        fold(own, plan, [table], [(1, False, False)])
    with pytest.raises(PySparkException, match="ARITHMETIC_OVERFLOW"):
        fold(own, plan, [table], [(1, True, False)])
