"""Reading values that an earlier version of a program wrote, as the types of today's.

Numbers may have become wider; structs may have gained, lost or reordered fields, found by name.
"""

from __future__ import annotations

import pyarrow as pa

from holdfast.errors import CorruptionError

__all__ = ["adapt"]


def adapt(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values in another type.

    >>> old = pa.array([{"a": 1, "b": "x"}, None])
    >>> adapt(old, pa.struct([("c", pa.bool_()), ("a", pa.int64())])).to_pylist()
    [{'c': None, 'a': 1}, None]
    """
    if array.type == kind:
        return array
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        return _struct(array, kind)
    if pa.types.is_list(kind) and pa.types.is_list(array.type):
        values = adapt(array.values, kind.value_type)
        return _like(array, pa.ListArray.from_arrays(array.offsets, values, kind), kind)
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        items = adapt(array.items, kind.item_type)
        keys = adapt(array.keys, kind.key_type)
        return _like(array, pa.MapArray.from_arrays(array.offsets, keys, items, kind), kind)
    try:
        return array.cast(kind)
    except pa.ArrowException as error:
        raise CorruptionError(
            f"values of type {array.type} in a run can't be read as {kind}: {error}",
            hint="check that the run belongs to this table; restore it from another copy",
        ) from error


def _struct(array: pa.Array, kind: pa.DataType) -> pa.Array:
    there = {array.type.field(i).name: i for i in range(array.type.num_fields)}
    fields = [kind.field(i) for i in range(kind.num_fields)]
    columns = [
        adapt(array.field(there[f.name]), f.type)
        if f.name in there
        else pa.nulls(len(array), f.type)
        for f in fields
    ]
    if not fields:
        return pa.array([{} if there else None for there in array.is_valid().to_pylist()], kind)
    return pa.StructArray.from_arrays(columns, fields=fields, mask=array.is_null())


def _like(old: pa.Array, new: pa.Array, kind: pa.DataType) -> pa.Array:
    """The new lists, null where the old ones are."""
    if not old.null_count:
        return new
    validity = pa.array(old.is_valid().to_numpy(zero_copy_only=False))
    return pa.Array.from_buffers(
        kind,
        len(new),
        [validity.buffers()[1], new.buffers()[1]],
        children=[new.values if pa.types.is_list(kind) else _entries(new)],
    )


def _entries(maps: pa.Array) -> pa.Array:
    fields = [maps.type.key_field, maps.type.item_field]
    return pa.StructArray.from_arrays([maps.keys, maps.items], fields=fields)
