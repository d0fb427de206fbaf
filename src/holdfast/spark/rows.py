"""Rows on their way to user code: hash, keys, the order of their source, and all their columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it
from pyspark.sql.types import StructField

from holdfast.errors import InputError, InternalError
from holdfast.operators.arriving import CONTROL, INITIAL, SOURCE, TAG
from holdfast.operators.base import Operator
from holdfast.spark.buffers import clean
from holdfast.spark.pacing import Shape
from holdfast.spark.preaggregate import Preaggregated
from holdfast.spark.resolve import Resolved, Resolver
from holdfast.spark.types import arrow_type_nested
from holdfast.state.hashing import partition_range, partition_sql
from holdfast.state.schema import HASH

__all__ = ["MAIN", "RowPlan", "columns_of", "resolve_keys", "tagged_union"]

MAIN = "_holdfast_main"
_PARTITION = "_holdfast_partition"


def columns_of(df: DataFrame) -> list[tuple[str, pa.DataType]]:
    """The columns of a DataFrame, as Arrow types."""
    names = df.columns
    for name in names:
        if [n.lower() for n in names].count(name.lower()) > 1:
            raise InputError(f"two columns of the input are named {name!r}", hint="rename one")
    return [(field.name, arrow_type_nested(field.name, field.dataType)) for field in df.schema]


def tagged_union(main: DataFrame, control: DataFrame) -> DataFrame:
    """Two streams as one: each row in a column of its stream, the other one null."""
    main_type, control_type = main.schema.simpleString(), control.schema.simpleString()
    left = main.select(
        F.struct(*map(_quoted, main.columns)).alias(MAIN),
        F.lit(None).cast(control_type).alias(CONTROL),
        F.lit(0).cast("byte").alias(SOURCE),
    )
    right = control.select(
        F.lit(None).cast(main_type).alias(MAIN),
        F.struct(*map(_quoted, control.columns)).alias(CONTROL),
        F.lit(1).cast("byte").alias(SOURCE),
    )
    return left.unionAll(right)


def resolve_keys(df: DataFrame, keys: Sequence[str | Column]) -> list[Resolved]:
    """The key columns of a DataFrame."""
    resolver = Resolver(df)
    return [resolver.key(key) for key in keys]


@dataclass(frozen=True)
class RowPlan:
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
    def may_preaggregate(self) -> bool:
        """Never: user code sees every row."""
        return False

    @property
    def must_preaggregate(self) -> bool:
        """Never."""
        return False

    def preaggregate(self, batch: DataFrame) -> Preaggregated:
        """Not possible."""
        del batch
        raise InternalError("rows for user code can't be grouped beforehand")

    def lift(self, batch: DataFrame, *, first: bool) -> DataFrame:
        """The columns of the operator's input."""
        tagged = batch
        if self.control is not None:
            inner = [F.col(f"{MAIN}.{_tick(name)}").alias(name) for name in self.columns]
            outer = [F.col(f"`{CONTROL}`.{_tick(n)}").alias(CONTROL + n) for n in self.control]
            tagged = batch.select(*inner, *outer, F.col(SOURCE))
        frame = self._columns(tagged, self.keys, self.columns, self.control is not None)
        if self.initial is None:
            return frame
        blank = [F.lit(None).cast(f.dataType).alias(f.name) for f in self._initial_fields()]
        if not first:
            return frame.select("*", *blank)
        return frame.select("*", *blank).unionByName(self._initial(frame), allowMissingColumns=True)

    def partitioned(self, frame: DataFrame, shape: Shape) -> DataFrame:
        """Every row where its key's partition is; rows of a control stream everywhere."""
        if not shape.shuffle:
            return frame.coalesce(1)
        if not self.keys:
            frame = frame.withColumn(HASH, _first_hash(shape.partitions))
        own = F.expr(partition_sql(HASH, shape.partitions))
        if self.control is None:
            return frame.repartitionById(shape.partitions, own)
        everywhere = F.sequence(F.lit(0), F.lit(shape.partitions - 1))
        where = F.explode(F.when(F.col(SOURCE) == 1, everywhere).otherwise(F.array(own)))
        placed = frame.withColumn(_PARTITION, where)
        return placed.repartitionById(shape.partitions, F.col(_PARTITION)).drop(_PARTITION)

    def _columns(
        self, batch: DataFrame, keys: Sequence[Resolved], columns: Sequence[str], several: bool
    ) -> DataFrame:
        cleaned = [clean(key.column, key.type).alias(key.name) for key in keys]
        names = {key.name for key in keys}
        source = F.col(SOURCE) if several else F.lit(0).cast("byte").alias(SOURCE)
        control = [_quoted(CONTROL + name) for name in self.control or ()] if several else []
        return batch.select(
            self._hash(cleaned),
            *cleaned,
            F.monotonically_increasing_id().alias(TAG),
            source,
            *(_quoted(name) for name in columns if name not in names),
            *control,
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
            *(_quoted(name).alias(INITIAL + name) for name in self.initial.columns),
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


def _tick(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _quoted(name: str) -> Column:
    return F.col(_tick(name))
