"""Plan a keyed aggregate on an input: its operator, and how rows become buffer rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it
from pyspark.sql.types import LongType, StructField, StructType

from holdfast.errors import InputError
from holdfast.operators.aggregates.asked import Aggregate
from holdfast.operators.aggregates.kinds import AggregateSpec, Input
from holdfast.operators.aggregates.operator import AggregateOperator
from holdfast.operators.aggregates.sketch import datasketches
from holdfast.operators.base import Clock, Operator
from holdfast.spark.jvm.grouping import Grouped, group_partitions
from holdfast.spark.plans.base import OperatorPlan
from holdfast.spark.plans.buffers import clean, grouped, lifted, must_group
from holdfast.spark.plans.resolve import Resolved, Resolver
from holdfast.spark.plans.times import TimeBound
from holdfast.spark.types import spark_schema
from holdfast.state.schema import HASH

__all__ = ["AggregatePlan", "Lifted", "hash_and_keys", "plan_aggregate", "resolve_aggregates"]

_PANE = "_holdfast_group"


@dataclass(frozen=True)
class AggregatePlan(OperatorPlan):
    """How the batches of an input become buffer rows for an operator."""

    operator: Operator
    keys: tuple[Column, ...]
    """Hash and keys."""
    row_buffers: tuple[Column, ...] | None
    """The buffers of a row; None if some aggregate has buffers of groups only."""
    group_buffers: tuple[Column, ...]
    condition: Column | None = None
    """Which rows count; None for all."""
    pane: Column | None = None
    """What rows of a key are grouped by besides; a bigint that isn't sent."""
    bound: TimeBound | None = None
    """What the pane depends on in each epoch."""

    @property
    def _schema(self) -> StructType:
        fields = spark_schema(pa.schema(list(self.operator.input_schema)[1:])).fields
        return StructType([StructField(HASH, LongType()), *fields])

    @property
    def must_preaggregate(self) -> bool:
        """Whether rows can't be lifted one by one."""
        return self.row_buffers is None

    @property
    def may_preaggregate(self) -> bool:
        """Whether rows can be grouped before they are sent."""
        return True

    @property
    def expressions(self) -> tuple[str, ...]:
        """See :attr:`OperatorPlan.expressions`: of two sums, which column each sums up."""
        counting = () if self.condition is None else (self.condition,)
        return tuple(map(str, (*self.keys, *self.group_buffers, *counting)))

    def lift(self, frame: DataFrame, *, first: bool = False, port: int = 0) -> DataFrame:
        """One buffer row per row: hash (a bigint with the bits of the hash), keys, buffers."""
        del first, port
        if self.row_buffers is None:
            raise ValueError(f"{self.operator.id!r} needs pre-aggregation")
        return self._counting(frame).select(*self.keys, *self.row_buffers)

    def needed_columns(self, frame: DataFrame, port: int) -> DataFrame:
        """See :meth:`OperatorPlan.needed_columns`."""
        del port
        return self._counting(frame).groupBy(*self.keys).agg(*self.group_buffers)

    def at(self, clock: Clock) -> None:
        """See :meth:`OperatorPlan.at`."""
        if self.bound is not None:
            self.bound.at(clock)

    def preaggregate(self, frame: DataFrame) -> Grouped:
        """One buffer row per key and partition of the frame, in the same columns."""
        counting, schema = self._counting(frame), self._schema
        if self.pane is None:
            return group_partitions(counting, self.keys, self.group_buffers, schema)
        keys = [*self.keys, self.pane.alias(_PANE)]
        at = len(self.keys)
        fields = [*schema.fields[:at], StructField(_PANE, LongType()), *schema.fields[at:]]
        made = group_partitions(counting, keys, self.group_buffers, StructType(fields))
        return made._replace(without=(_PANE,))

    def _counting(self, frame: DataFrame) -> DataFrame:
        return frame if self.condition is None else frame.filter(self.condition)


@dataclass(frozen=True, slots=True)
class Lifted:
    """Keys and aggregates, resolved against the columns of an input."""

    keys: tuple[Resolved, ...]
    specs: tuple[AggregateSpec, ...]
    inputs: Mapping[str, tuple[Resolved, ...]]
    """Per aggregate the columns it reads."""
    ansi: bool
    """Whether Spark's own sums fail when they overflow, as Holdfast's do."""

    def rows(self, names: Sequence[str]) -> tuple[Column, ...] | None:
        """The buffers of a row, under these names; None if some aggregate has none."""
        if any(must_group(spec) for spec in self.specs):
            datasketches()
            return None
        return _named(
            [c for s in self.specs for c in lifted(s, _columns(self.inputs[s.name]))], names
        )

    def groups(self, names: Sequence[str]) -> tuple[Column, ...]:
        """The buffers of a group of rows, under these names."""
        return _named(
            [
                c
                for s in self.specs
                for c in grouped(s, _columns(self.inputs[s.name]), ansi=self.ansi)
            ],
            names,
        )


def resolve_aggregates(
    df: DataFrame, keys: Sequence[str | Column], aggregates: Mapping[str, Aggregate]
) -> Lifted:
    """Find out what the columns are that keys and aggregates name."""
    _check_given(aggregates)
    resolver = Resolver(df)
    key_columns = tuple(resolver.key(key) for key in keys)
    inputs = {
        name: tuple(resolver.input(name, c, any_type=a.kind == "count") for c in a.columns)
        for name, a in aggregates.items()
    }
    specs = tuple(_spec(name, aggregate, inputs[name]) for name, aggregate in aggregates.items())
    _check_names([k.name for k in key_columns] + list(aggregates))
    ansi = df.sparkSession.conf.get("spark.sql.ansi.enabled") == "true"
    return Lifted(key_columns, specs, inputs, ansi)


def plan_aggregate(
    df: DataFrame,
    operator_id: str,
    keys: Sequence[str | Column],
    aggregates: Mapping[str, Aggregate],
    *,
    weak_hash_bits: int | None = None,
) -> AggregatePlan:
    """Resolve keys and aggregates against the columns of ``df``, which may be a stream.

    Runs no Spark job. ``weak_hash_bits`` keeps only so many bits of every hash: for tests in which
    different keys share one.
    """
    if not keys:
        raise InputError(
            "an aggregate needs a key",
            hint="name at least one column; for one total over everything key by a constant, "
            "F.lit(0).alias('all')",
        )
    found = resolve_aggregates(df, keys, aggregates)
    operator = AggregateOperator(operator_id, [(k.name, k.type) for k in found.keys], found.specs)
    buffers = operator.tables[0].value_names
    return AggregatePlan(
        operator,
        hash_and_keys(found.keys, weak_hash_bits),
        found.rows(buffers),
        found.groups(buffers),
    )


def _spec(name: str, aggregate: Aggregate, inputs: Sequence[Resolved]) -> AggregateSpec:
    columns = tuple(Input(i.name, i.type) for i in inputs)
    return AggregateSpec(name, aggregate.kind, columns, tuple(sorted(aggregate.options.items())))


def _columns(inputs: Sequence[Resolved]) -> list[Column]:
    return [i.column for i in inputs]


def _named(columns: Sequence[Column], names: Sequence[str]) -> tuple[Column, ...]:
    return tuple(c.alias(name) for c, name in zip(columns, names, strict=True))


def hash_and_keys(keys: Sequence[Resolved], weak_hash_bits: int | None) -> tuple[Column, ...]:
    """The hash of some keys, and the keys, cleaned."""
    columns = [clean(key.column, key.type).alias(key.name) for key in keys]
    hashed = F.xxhash64(*columns)
    if weak_hash_bits is not None:
        # The highest bits stay, so that keys still spread over partitions.
        hashed = hashed.bitwiseAND(F.lit(-(1 << (64 - weak_hash_bits))))
    return (hashed.alias(HASH), *columns)


def _check_given(aggregates: Mapping[str, object]) -> None:
    if not aggregates:
        raise InputError("no aggregate was named", hint="for example aggregate(n=hf.count())")
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise InputError(
                f"{name!r} is {aggregate!r}, which is no aggregate",
                hint="use hf.count(), hf.sum('x') and the like, not PySpark's own functions",
            )


def _check_names(names: Sequence[str]) -> None:
    """Names that differ in case alone would be one column to Spark's readers."""
    lowered = [name.lower() for name in names]
    for name in names:
        if lowered.count(name.lower()) > 1:
            raise InputError(
                f"two columns of the result would be named {name!r}",
                hint="give the key column or the aggregate another name",
            )
