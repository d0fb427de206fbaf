"""Values of state: what a processor gives, what a cell holds, and what the processor gets back.

A processor gives tuples and gets tuples. A cell holds a dict by field name, as Arrow takes and gives
it, with timestamps in UTC. As in PySpark, timestamps reach the processor as datetimes without a zone
in the worker's own, structs as Rows, maps as dicts; NumPy scalars, Rows, named tuples and pandas
timestamps are taken for what they hold.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from holdfast.spark.stateful.encoders import MisfitError, encoder
from holdfast.spark.stateful.errors import StateError, wrong_width
from holdfast.types import type_words

__all__ = ["Codec", "decoder", "row_maker"]

Decode = Callable[[Any], Any]

_MISFITS = (MisfitError, TypeError, ValueError, OverflowError, AttributeError)


class Codec:
    """Fields of one state variable: its value, or the key of a map."""

    def __init__(
        self, state: str, schema: pa.Schema, doing: str, required: Sequence[tuple[str, ...]] = ()
    ) -> None:
        self.state, self.schema, self.doing, self.required = state, schema, doing, required
        self._struct = pa.struct(list(schema))
        self.names: tuple[str, ...] = tuple(schema.names)
        self._width = len(self.names)
        self._row = row_maker(self.names)
        self._encoders = [(field.name, encoder(field.type)) for field in schema]
        self._decoders = [decoder(field.type) for field in schema]
        self._plain = all(decode is None for decode in self._decoders)

    def parts(self, value: Any) -> list[Any]:
        """The fields of a value, as a cell holds them."""
        return list(self.encode(value).values())

    def encode(self, value: Any) -> dict[str, Any]:
        """A value as a cell holds it."""
        given = value if type(value) is tuple else tuple(value)
        if len(given) != self._width:
            raise wrong_width(self.doing, self._width, len(given))
        try:
            held = {
                name: None if v is None else encode(v)
                for (name, encode), v in zip(self._encoders, given, strict=True)
            }
        except _MISFITS as error:
            raise self._misfit(given, error) from None
        if self.required:
            self._check_required(held)
        return held

    def decode(self, held: dict[str, Any]) -> tuple[Any, ...]:
        """What a cell holds, as the processor gets it."""
        if self._plain:
            return tuple(held.values())
        return self.decode_parts(tuple(held.values()))

    def decode_parts(self, parts: Sequence[Any]) -> tuple[Any, ...]:
        """The same for fields without names."""
        return tuple(
            value if decode is None or value is None else decode(value)
            for value, decode in zip(parts, self._decoders, strict=True)
        )

    def decode_row(self, held: dict[str, Any]) -> Row:
        """What a cell holds, as a Row."""
        return self._row(self.decode(held))

    def _check_required(self, held: dict[str, Any]) -> None:
        for path in self.required:
            if _has_null(held, self._struct, path):
                raise StateError(
                    self.doing,
                    f"field {'.'.join(path)!r} of state {self.state!r} is declared never to be null, and "
                    "was given None: declare it nullable, or give it a value",
                )

    def _misfit(self, given: tuple[Any, ...], error: Exception) -> StateError:
        for field, value, (_, encode) in zip(self.schema, given, self._encoders, strict=True):
            try:
                if value is not None:
                    encode(value)
            except _MISFITS as reason:
                kind = type(value).__name__
                return StateError(
                    self.doing,
                    f"field {field.name!r} of state {self.state!r} is {type_words(field.type)}, but "
                    f"was given {value!r} ({kind}): {reason}",
                )
        return StateError(self.doing, str(error))


def _has_null(value: Any, kind: pa.DataType, path: Sequence[str]) -> bool:
    """Whether what a path leads to is null somewhere; what is on the way may be, and leads nowhere."""
    if not path or value is None:
        return value is None and not path
    first, rest = path[0], path[1:]
    if pa.types.is_struct(kind):
        return _has_null(value[first], kind.field(first).type, rest)
    if pa.types.is_map(kind):
        inner = kind.key_type if first == "key" else kind.item_type
        return any(_has_null(v, inner, rest) for v in (value if first == "key" else value.values()))
    return any(_has_null(v, kind.value_type, rest) for v in value)


@lru_cache(maxsize=256)
def row_maker(names: tuple[str, ...]) -> Callable[[Iterable[Any]], Row]:
    """Makes Rows with these fields, at a fraction of the time that ``Row(…)`` takes.

    They are of a class of their own, which has the names once for all and finds a field as a named
    tuple does. To code they are Rows: by ``isinstance``, by what they show, and when pickled.

    >>> row = row_maker(("a", "count"))((1, 2))
    >>> row, row.a, row["count"], row.asDict(), row == Row(a=1, count=2)
    (Row(a=1, count=2), 1, 2, {'a': 1, 'count': 2}, True)
    """
    getters = vars(namedtuple("Row", names, rename=True))
    space: dict[str, Any] = {
        # What every tuple or Row has goes before a field of its name, as in PySpark.
        name: getters[name]
        for name in names
        if name in getters and not hasattr(Row, name)
    }
    space |= {"__fields__": Row(*names), "__module__": Row.__module__}
    made: type[Row] = type("Row", (Row,), space)
    return partial(tuple.__new__, made)


def decoder(kind: pa.DataType) -> Decode | None:
    """How a held value becomes the processor's; None: as it is."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return lambda value: value.astimezone().replace(tzinfo=None)
    if pa.types.is_struct(kind):
        return _row_decoder(kind)
    if pa.types.is_list(kind):
        inner = decoder(kind.value_type)
        if inner is None:
            return None
        return lambda value: [None if v is None else inner(v) for v in value]
    if pa.types.is_map(kind):
        return _map_decoder(kind)
    return None


def _row_decoder(kind: pa.DataType) -> Decode:
    fields = [kind.field(i) for i in range(kind.num_fields)]
    row = row_maker(tuple(field.name for field in fields))
    decoders = [decoder(field.type) for field in fields]

    def decode(value: dict[str, Any]) -> Row:
        parts = zip(value.values(), decoders, strict=True)
        return row(v if d is None or v is None else d(v) for v, d in parts)

    return decode


def _map_decoder(kind: pa.DataType) -> Decode | None:
    key, item = decoder(kind.key_type), decoder(kind.item_type)
    if key is None and item is None:
        return None

    def decode(value: dict[Any, Any]) -> dict[Any, Any]:
        return {
            (k if key is None else key(k)): (v if item is None or v is None else item(v))
            for k, v in value.items()
        }

    return decode
