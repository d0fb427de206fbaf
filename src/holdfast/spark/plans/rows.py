"""Rows on their way to user code: hash, keys, the order of their source, and all their columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it
from pyspark.sql.types import StructField

from holdfast.driver.pacing import StageShape
from holdfast.errors import InputError
from holdfast.operators.base import Operator
from holdfast.operators.input_rows import CONTROL, INITIAL, SOURCE, TAG
from holdfast.spark.plans.base import OperatorPlan
from holdfast.spark.plans.buffers import clean
from holdfast.spark.plans.resolve import Resolved, Resolver
from holdfast.spark.types import arrow_type_nested, spark_schema
from holdfast.state.hashing import partition_range, partition_sql
from holdfast.state.schema import HASH
from holdfast.types import quoted

__all__ = ["RowPlan", "check_alike", "columns_of", "resolve_keys"]

_PARTITION = "_holdfast_partition"


def columns_of(df: DataFrame) -> list[tuple[str, pa.DataType]]:
    """The columns of a DataFrame, as Arrow types."""
    names = df.columns
    for name in names:
        if [n.lower() for n in names].count(name.lower()) > 1:
            raise InputError(f"two columns of the input are named {name!r}", hint="rename one")
    return [(field.name, arrow_type_nested(field.name, field.dataType)) for field in df.schema]


def check_alike(mine: DataFrame, theirs: DataFrame) -> None:
    """Raise unless two streams have the same columns, in any order."""
    left, right = dict(columns_of(mine)), dict(columns_of(theirs))
    if left == right:
        return
    differ = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    words = (
        f"{name} ({left.get(name, 'missing')} and {right.get(name, 'missing')})" for name in differ
    )
    raise InputError(
        "the streams of a union differ in " + ", ".join(words),
        hint="select, cast or rename columns so that all have the same",
    )


def resolve_keys(df: DataFrame, keys: Sequence[str | Column]) -> list[Resolved]:
    """The key columns of a DataFrame."""
    resolver = Resolver(df)
    return [resolver.key(key) for key in keys]


@dataclass(frozen=True)
class RowPlan(OperatorPlan):
    """Brings whole rows to the tasks of an operator, each key's in one task."""

    operator: Operator
    keys: tuple[Resolved, ...]
    columns: tuple[str, ...]
    control: tuple[str, ...] | None = None
    """The columns of a control stream, whose rows go to every partition."""
    initial: DataFrame | None = None
    """Rows of a batch DataFrame that come before all others."""
    initial_keys: tuple[Resolved, ...] = ()
    weak_hash_bits: int | None = None

    @property
    def ports(self) -> tuple[str, ...]:
        """The rows, and those of a control stream."""
        return ("main",) if self.control is None else ("main", "control")

    @property
    def expressions(self) -> tuple[str, ...]:
        """See :attr:`OperatorPlan.expressions`."""
        return tuple(str(key.column) for key in self.keys)

    def lift(self, frame: DataFrame, *, first: bool, port: int = 0) -> DataFrame:
        """The columns of the operator's input."""
        if port == 1:
            return self._lift_control(frame)
        lifted = self._columns(frame, self.keys, self.columns)
        if self.control is not None:
            fields = {field.name: field for field in self.operator.input_schema}
            blank = pa.schema([fields[CONTROL + name] for name in self.control])
            lifted = lifted.select("*", *_nothing(blank))
        if self.initial is None:
            return lifted
        blanks = [F.lit(None).cast(f.dataType).alias(f.name) for f in self._initial_fields()]
        lifted = lifted.select("*", *blanks)
        if not first:
            return lifted
        return lifted.unionByName(self._initial(lifted), allowMissingColumns=True)

    def _lift_control(self, frame: DataFrame) -> DataFrame:
        assert self.control is not None
        own = {
            HASH: F.lit(0).cast("long"),
            TAG: F.monotonically_increasing_id(),
            SOURCE: F.lit(1).cast("byte"),
            **{CONTROL + name: _column(name) for name in self.control},
        }
        columns = []
        for field, nothing in zip(
            self.operator.input_schema, _nothing(self.operator.input_schema), strict=True
        ):
            columns.append(own[field.name].alias(field.name) if field.name in own else nothing)
        return frame.select(*columns)

    def partitioned(
        self, frame: DataFrame, shape: StageShape, wanted: frozenset[int] | None = None
    ) -> DataFrame:
        """Every row where its key's partition is; rows of a control stream everywhere."""
        if shape.shuffle and not self.keys:
            frame = frame.withColumn(HASH, _first_hash(shape.partitions))
        if not shape.shuffle or self.control is None:
            return super().partitioned(frame, shape, wanted)
        own = F.expr(partition_sql(HASH, shape.partitions))
        everywhere = F.sequence(F.lit(0), F.lit(shape.partitions - 1))
        where = F.explode(F.when(F.col(SOURCE) == 1, everywhere).otherwise(F.array(own)))
        placed = frame.withColumn(_PARTITION, where)
        if wanted is not None:
            placed = placed.filter(F.col(_PARTITION).isin(*sorted(wanted)))
        return placed.repartitionById(shape.partitions, F.col(_PARTITION)).drop(_PARTITION)

    def _columns(
        self, batch: DataFrame, keys: Sequence[Resolved], columns: Sequence[str]
    ) -> DataFrame:
        cleaned = [clean(key.column, key.type).alias(key.name) for key in keys]
        names = {key.name for key in keys}
        return batch.select(
            self._hash(cleaned),
            *cleaned,
            F.monotonically_increasing_id().alias(TAG),
            F.lit(0).cast("byte").alias(SOURCE),
            *(_column(name) for name in columns if name not in names),
        )

    def _hash(self, keys: Sequence[Column]) -> Column:
        if not keys:
            return F.lit(0).cast("long").alias(HASH)
        hashed = F.xxhash64(*keys)
        if self.weak_hash_bits is not None:
            hashed = hashed.bitwiseAND(F.lit(-(1 << (64 - self.weak_hash_bits))))
        return hashed.alias(HASH)

    def _initial_fields(self) -> list[StructField]:
        assert self.initial is not None
        fields = self.initial.schema.fields
        return [StructField(INITIAL + field.name, field.dataType) for field in fields]

    def _initial(self, frame: DataFrame) -> DataFrame:
        assert self.initial is not None
        cleaned = [
            clean(key.column, key.type).alias(own.name)
            for key, own in zip(self.initial_keys, self.keys, strict=True)
        ]
        rows = self.initial.select(
            self._hash(cleaned),
            *cleaned,
            F.monotonically_increasing_id().alias(TAG),
            F.lit(2).cast("byte").alias(SOURCE),
            *(_column(name).alias(INITIAL + name) for name in self.initial.columns),
        )
        known = set(rows.columns)
        missing = [
            F.lit(None).cast(f.dataType).alias(f.name)
            for f in frame.schema.fields
            if f.name not in known
        ]
        return rows.select("*", *missing)


def _first_hash(partitions: int) -> Column:
    """For rows without a key: the first hash of a partition, chosen by where the row comes from."""
    firsts = [partition_range(p, partitions).first for p in range(partitions)]
    signed = [
        F.lit(first - (1 << 64) if first >= 1 << 63 else first).cast("long") for first in firsts
    ]
    return F.element_at(F.array(*signed), F.spark_partition_id() % partitions + 1)


def _nothing(schema: pa.Schema) -> list[Column]:
    """A null for every column; a hash is a bigint to Spark."""
    fields = [pa.field(HASH, pa.int64()) if f.name == HASH else f for f in schema]
    spark = spark_schema(pa.schema(fields)).fields
    return [F.lit(None).cast(field.dataType).alias(field.name) for field in spark]


def _column(name: str) -> Column:
    return F.col(quoted(name))
