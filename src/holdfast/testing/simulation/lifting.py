"""What Spark's plans make of rows: hash, keys, and what an operator asks for besides.

The same columns as ``spark/plans/`` select, made with Arrow. Hashes are Spark's ``xxhash64``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from holdfast.operators.aggregates.kinds import AggregateSpec
from holdfast.operators.input_rows import CONTROL, SOURCE
from holdfast.state.hashing import partition_of, partition_range
from holdfast.state.schema import HASH

__all__ = [
    "Lift",
    "buffers_of",
    "cut",
    "lift_groups",
    "lift_rows",
    "lift_side",
    "spark_hash",
    "spark_hashes",
]

Lift = Callable[[pa.Table, int], pa.Table]
"""Makes of the rows of a part of a feed, and the number of that part, what an operator takes."""

_SEED = 42
_TAG_BITS = 33
_known: dict[tuple[Any, ...], int] = {}


def spark_hash(key: Sequence[Any]) -> int:
    """Spark's ``xxhash64`` of a key of strings and bigints, as an unsigned number.

    >>> spark_hash(["ann"]), spark_hash([7]), spark_hash([None])
    (7160020621161744715, 15582532517514291953, 42)
    """
    digest = _SEED
    for part in key:
        # What is hashed so far is the next column's seed; a null changes nothing.
        if isinstance(part, str):
            digest = xxhash.xxh64_intdigest(part.encode(), digest)
        elif part is not None:
            assert type(part) is int, "another type than string and bigint"
            digest = xxhash.xxh64_intdigest(part.to_bytes(8, "little", signed=True), digest)
    return digest


def spark_hashes(keys: Sequence[pa.ChunkedArray]) -> npt.NDArray[np.uint64]:
    """The hash of each row of some columns."""
    rows = list(zip(*(column.to_pylist() for column in keys), strict=True))
    for row in set(rows).difference(_known):
        _known[row] = spark_hash(row)
    return np.array([_known[row] for row in rows], np.uint64)


def cut(rows: pa.Table, keys: int, partitions: int, part: int = 0) -> list[pa.Table]:
    """Lifted rows as the shuffle gives them to each partition; those of a control stream to all.

    ``part`` says where rows without a key come from: they go by that.
    """
    if partitions == 1:
        return [rows]
    if not keys:
        first = np.uint64(partition_range(part % partitions, partitions).first)
        hashes = np.full(rows.num_rows, first, np.uint64)
        rows = rows.set_column(0, pa.field(HASH, pa.int64()), pa.array(hashes.view(np.int64)))
    owners = partition_of(rows.column(0).to_numpy().view(np.uint64), partitions)
    everywhere: Any = False
    if any(name.startswith(CONTROL) for name in rows.column_names):
        everywhere = rows.column(SOURCE).to_numpy() == 1
    return [rows.filter(pa.array((owners == p) | everywhere)) for p in range(partitions)]


def lift_rows(schema: pa.Schema, keys: int, source: int = 0) -> Lift:
    """Whole rows, as ``spark/plans/rows.py`` lifts them: for a schema that begins so.

    A key column is in the rows under its own name. Without keys the hash is 0, until :func:`cut`.
    """
    columns = schema.names[keys + 3 :]

    def lift(rows: pa.Table, part: int) -> pa.Table:
        count = rows.num_rows
        named = [rows.column(name) for name in schema.names[1 : keys + 1]]
        tags = np.arange(count, dtype=np.int64) + (part << _TAG_BITS)
        arrays = [
            _signed(named) if keys else pa.array(np.zeros(count, np.int64)),
            *named,
            pa.array(tags),
            pa.array(np.full(count, source, np.int8)),
            *(rows.column(name) for name in columns),
        ]
        return pa.Table.from_arrays(arrays, names=schema.names)

    return lift


def _nothing(rows: pa.Table) -> list[Any]:
    del rows
    return []


def lift_side(schema: pa.Schema, keys: int, side: int, slots: Mapping[str, str]) -> Lift:
    """Rows of one side of a join, its columns in their slots, as ``spark/plans/join.py`` lifts them."""
    columns = {slot: name for name, slot in slots.items()}

    def lift(rows: pa.Table, part: int) -> pa.Table:
        packed = dict(zip(rows.column_names, rows.columns, strict=True))
        for field in list(schema)[keys + 3 :]:
            at = columns.get(field.name)
            packed[field.name] = pa.nulls(rows.num_rows, field.type) if at is None else packed[at]
        return whole(pa.table(packed), part)

    whole = lift_rows(schema, keys, side)
    return lift


def lift_groups(
    schema: pa.Schema,
    keys: int,
    specs: Sequence[AggregateSpec],
    between: Callable[[pa.Table], list[Any]] = _nothing,
) -> Lift:
    """Buffer rows, one for each row, as ``spark/plans/lift.py`` lifts them.

    ``between`` makes the columns between keys and buffers.
    """

    def lift(rows: pa.Table, part: int) -> pa.Table:
        del part
        named = [rows.column(name) for name in schema.names[1 : keys + 1]]
        buffers = [array for spec in specs for array in buffers_of(spec, rows)]
        arrays = [_signed(named), *named, *between(rows), *buffers]
        return pa.Table.from_arrays(arrays, names=schema.names)

    return lift


def buffers_of(spec: AggregateSpec, rows: pa.Table) -> list[Any]:
    """The buffers of each row, as the expressions of ``spark/plans/buffers.py`` make them."""
    inputs = [rows.column(i.name) for i in spec.inputs]
    if spec.kind == "count":
        return [_present(inputs[0]) if inputs else pa.array(np.ones(rows.num_rows, np.int64))]
    if spec.kind in ("sum", "min", "max"):
        return inputs
    if spec.kind == "avg":
        return [inputs[0].cast(pa.float64()), _present(inputs[0])]
    if spec.kind == "collect_set":
        return [_list_of(inputs[0], inputs[0])]
    assert spec.kind == "collect_list", f"no buffers of {spec.kind} are known here"
    value, order = inputs
    return [_list_of(order, value), _list_of(value, value)]


def _signed(keys: Sequence[pa.ChunkedArray]) -> pa.Array:
    """Hashes as Spark has them: it knows no unsigned numbers."""
    return pa.array(spark_hashes(keys).view(np.int64))


def _present(column: pa.ChunkedArray) -> Any:
    return column.is_valid().cast(pa.int64())


def _list_of(items: pa.ChunkedArray, present: pa.ChunkedArray) -> pa.Array:
    """Of each row a list of its item, where there is one."""
    valid = present.is_valid()
    ends = np.cumsum(valid.to_numpy())
    offsets = pa.array(np.concatenate(([0], ends)).astype(np.int32))
    values = pc.filter(items, valid).combine_chunks()
    return pa.ListArray.from_arrays(offsets, values, type=pa.list_(pa.field("element", items.type)))
