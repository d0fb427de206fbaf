"""Which changes of a program's state a restart may bring, and which it refuses.

States may be added and removed, types may become wider, structs may gain, lose and reorder fields (by
name). A state may not change its kind, nor a type become narrower or another one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import pyarrow as pa

from holdfast.errors import ConfigurationError
from holdfast.state.schema import TableSchema
from holdfast.types import type_words

__all__ = ["can_become", "check_evolution"]

logger = logging.getLogger("holdfast.process")

_WIDER = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float64()),
    pa.float32(): (pa.float64(),),
    pa.date32(): (pa.timestamp("us"),),
}
# Kinds of state with a table of their own, named <operator>.<kind>.<state>.
_NAMED = ("map", "list", "broadcast", "operator-list", "union-list")
_HINT = "go on with the type it was made with, or give the state another name"


def check_evolution(
    earlier: Mapping[str, TableSchema], now: Iterable[TableSchema], entry: int
) -> None:
    """Raise ``ConfigurationError`` if the tables of an entry can't be read as those of a program."""
    current = {schema.table: schema for schema in now}
    kinds = _kinds(earlier.values())
    for name, kind in _kinds(current.values()).items():
        if kinds.get(name, kind) != kind:
            raise ConfigurationError(
                f"state {name!r} was a {kinds[name]} in entry {entry} and is now a {kind} "
                "[STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE]",
                hint="the kind of a state can't change: give the new one another name",
            )
    for table, before in earlier.items():
        after = current.get(table)
        if after is None:
            logger.warning("state table %s of entry %d is no longer used", table, entry)
        else:
            _check_columns(before, after, entry)


def _kinds(tables: Iterable[TableSchema]) -> dict[str, str]:
    """The kind of each state, by its name."""
    kinds = {}
    for schema in tables:
        parts = schema.table.split(".")
        if len(parts) >= 3 and parts[1] in _NAMED:
            kinds[".".join(parts[2:])] = parts[1]
        elif parts[-1] == "values":
            hidden = {c.expires for c in schema.values}
            for column in schema.values:
                if column.id not in hidden and not column.name.startswith("timers."):
                    kinds[column.name] = "value"
    return kinds


def _check_columns(before: TableSchema, after: TableSchema, entry: int) -> None:
    types = {column.id: column for column in before.columns}
    keys = {column.id for column in after.keys}
    for column in after.columns:
        old = types.get(column.id)
        # The hash of a key is made of its value, so only few types may change there.
        may_change = _same_hash if column.id in keys else can_become
        if old is None or (can_become(old.type, column.type) and may_change(old.type, column.type)):
            continue
        raise ConfigurationError(
            f"{after.table}: {column.name!r} was {type_words(old.type)} in entry {entry} and is now "
            f"{type_words(column.type)}, which can't take its place "
            "[STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION]",
            hint=_HINT,
        )


def _same_hash(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether a key of one type and its equal of the other have one hash."""
    return old == new or bool(pa.types.is_integer(old) and pa.types.is_integer(new))


def can_become(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of one type can be read as the other.

    >>> can_become(pa.int32(), pa.int64()), can_become(pa.int64(), pa.int32())
    (True, False)
    """
    if old == new or new in _WIDER.get(old, ()):
        return True
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        whole = new.precision - new.scale >= old.precision - old.scale
        return bool(whole and new.scale >= old.scale)
    if pa.types.is_list(old) and pa.types.is_list(new):
        return can_become(old.value_type, new.value_type)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return old.key_type == new.key_type and can_become(old.item_type, new.item_type)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        names = {old.field(i).name: old.field(i).type for i in range(old.num_fields)}
        fields = [new.field(i) for i in range(new.num_fields)]
        return all(f.name not in names or can_become(names[f.name], f.type) for f in fields)
    return False
