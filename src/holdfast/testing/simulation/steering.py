"""A program whose second source steers it: broadcast state, which every partition reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa

from holdfast.operators.input_rows import CONTROL
from holdfast.operators.process.broadcast import BroadcastState
from holdfast.operators.process.declare import ValueState
from holdfast.operators.process.keyed import KeyedProcess, KeyedProgram
from holdfast.operators.process.operator import ProcessOperator
from holdfast.testing.simulation.lifting import Lift, lift_rows
from holdfast.testing.simulation.program import (
    Answer,
    EpochInput,
    Feed,
    Port,
    Program,
    Row,
    Stage,
    made,
    rows_of,
)
from holdfast.testing.simulation.words import key_of, some, table

__all__ = ["SteeredProgram", "Weighing"]

_KEYS = ("a", "b", "c", "d", "e", "f")
_COLUMNS = (("k", pa.string()), ("x", pa.int64()))
_CONTROL = (("k", pa.string()), ("weight", pa.int64()))


class Weighing(KeyedProcess):
    """Adds up what its keys bring, each by the weight that it has by then."""

    output = "k string, total long"

    total = ValueState("long", default=0)
    weights = BroadcastState("string", "long")

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        """One total for all rows of a key."""
        del ctx
        self.total.value += self.weights.get(key.k, 1) * sum(row.x for row in rows)
        yield key.k, self.total.value

    def process_broadcast(self, rows: Sequence[Any], ctx: Any) -> None:
        """Each row makes a key heavier, in whatever order they come."""
        del ctx
        for row in rows:
            self.weights[row.k] = self.weights.get(row.k, 1) + row.weight


class SteeredProgram(Program):
    """:class:`Weighing`."""

    name = "steered"

    def __init__(self) -> None:
        program = KeyedProgram(Weighing(), ())
        operator = ProcessOperator(
            "weighing",
            _COLUMNS[:1],
            _COLUMNS,
            program,
            control=_CONTROL,
            broadcast=program.broadcast,
        )
        schema = operator.input_schema
        super().__init__(
            [self._rows, self._weights],
            [
                Stage(
                    operator,
                    (
                        Port(_with_blanks(schema), (Feed(0),)),
                        Port(_lift_control(schema), (Feed(1),), "control"),
                    ),
                    {"sink-0": ""},
                )
            ],
        )

    def _rows(self, batch: int, rng: Random) -> pa.Table:
        del batch
        places = some(rng)
        columns: dict[str, tuple[pa.DataType, list[Any]]] = {
            "k": (pa.string(), [key_of(rng, _KEYS) for _ in places]),
            "x": (pa.int64(), [rng.randrange(12) for _ in places]),
        }
        return table(columns)

    def _weights(self, batch: int, rng: Random) -> pa.Table:
        del batch
        places = range(rng.choice((0, 0, 1, 3)))
        columns: dict[str, tuple[pa.DataType, list[Any]]] = {
            "k": (pa.string(), [rng.choice(_KEYS) for _ in places]),
            "weight": (pa.int64(), [rng.randrange(1, 5) for _ in places]),
        }
        return table(columns)

    def answer(self, epochs: Sequence[EpochInput]) -> Answer:
        """See :meth:`Program.answer`."""
        weights: dict[str, int] = {}
        totals: dict[str, int] = {}
        out: list[tuple[int, Row]] = []
        for epoch in epochs:
            for k, weight in rows_of(epoch.sources[1]):
                weights[k] = weights.get(k, 1) + weight
            touched = set()
            for k, x in rows_of(epoch.sources[0]):
                totals[k] = totals.get(k, 0) + weights.get(k, 1) * x
                touched.add(k)
            out += [(epoch.record.epoch, (k, totals[k])) for k in touched]
        return Answer(made({"sink-0": out}), {"totals": totals, "weights": weights})

    def state(self, tables: Mapping[str, pa.Table]) -> Mapping[Any, Any]:
        """See :meth:`Program.state`."""
        totals = rows_of(tables["weighing.values"].select(["k", "total"]))
        weights = rows_of(tables["weighing.broadcast.weights"].select(["map_key", "value"]))
        return {"totals": dict(totals), "weights": dict(weights)}


def _with_blanks(schema: pa.Schema) -> Lift:
    """Rows of the main stream have nothing in the columns of the control stream."""
    own = pa.schema([field for field in schema if not field.name.startswith(CONTROL)])
    lift = lift_rows(own, 1)

    def lifted(rows: pa.Table, part: int) -> pa.Table:
        return _filled(lift(rows, part), schema)

    return lifted


def _lift_control(schema: pa.Schema) -> Lift:
    """Rows of the control stream have nothing in any other column."""
    lift = lift_rows(pa.schema(list(schema)[2:4]).insert(0, schema.field(0)), 0, source=1)

    def lifted(rows: pa.Table, part: int) -> pa.Table:
        own = lift(rows, part)
        for name in rows.column_names:
            own = own.append_column(CONTROL + name, rows.column(name))
        return _filled(own, schema)

    return lifted


def _filled(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """All columns that an operator takes, those that aren't there without values."""
    known = dict(zip(rows.column_names, rows.columns, strict=True))
    blank = {f.name: pa.nulls(rows.num_rows, f.type) for f in schema if f.name not in known}
    return pa.Table.from_arrays([{**blank, **known}[n] for n in schema.names], names=schema.names)
