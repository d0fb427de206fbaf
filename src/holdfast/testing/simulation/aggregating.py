"""Programs of aggregates: one alone, and one that others read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa

from holdfast.operators.aggregates.kinds import AggregateSpec, Input
from holdfast.operators.aggregates.operator import AggregateOperator
from holdfast.testing.simulation.lifting import lift_groups
from holdfast.testing.simulation.program import (
    Answer,
    EpochInput,
    Feed,
    Outcome,
    Port,
    Program,
    Row,
    Stage,
    made,
    newest,
    rows_of,
)
from holdfast.testing.simulation.words import key_of, some, table

__all__ = ["AggregateProgram", "Totals"]

_KEYS = ("a", "b", "c", "d", "e", "f", "g", None)
_LIMIT = 12


class Totals:
    """The state of one key of :class:`AggregateProgram`."""

    def __init__(self) -> None:
        self.n = 0
        self.xs: list[int] = []
        self.words: set[str] = set()
        self.log: list[tuple[int, int]] = []

    def take(self, number: int, x: int | None, word: str | None) -> None:
        """Take a row in."""
        self.n += 1
        if x is not None:
            self.xs.append(x)
            self.log = sorted([*self.log, (number, x)])[:_LIMIT]
        if word is not None:
            self.words = {*sorted({*self.words, word})[:3]}

    @property
    def results(self) -> Row:
        """What the aggregates come to."""
        xs = self.xs
        mean = sum(xs) / len(xs) if xs else None
        total = sum(xs) if xs else None
        ends = (min(xs), max(xs)) if xs else (None, None)
        words, log = tuple(sorted(self.words)), tuple(x for _, x in self.log)
        return (self.n, len(xs), total, *ends, mean, words, log)


class AggregateProgram(Program):
    """Counts, sums, extremes, a mean and lists per key."""

    name = "aggregate"

    def __init__(self) -> None:
        x, word, number = (
            Input("x", pa.int64()),
            Input("word", pa.string()),
            Input("number", pa.int64()),
        )
        specs = (
            AggregateSpec("n", "count"),
            AggregateSpec("with_x", "count", (Input("x", pa.bool_()),)),
            AggregateSpec("total", "sum", (x,)),
            AggregateSpec("least", "min", (x,)),
            AggregateSpec("most", "max", (x,)),
            AggregateSpec("mean", "avg", (x,)),
            AggregateSpec("words", "collect_set", (word,), (("limit", 3),)),
            AggregateSpec("log", "collect_list", (x, number), (("limit", _LIMIT),)),
        )
        operator = AggregateOperator("totals", [("k", pa.string())], specs)
        lift = lift_groups(operator.input_schema, 1, specs)
        port = Port(lift, (Feed(0),))
        super().__init__([self._rows], [Stage(operator, (port,), {"sink-0": ""})])

    def _rows(self, batch: int, rng: Random) -> pa.Table:
        places = some(rng)
        columns: dict[str, tuple[pa.DataType, list[Any]]] = {
            "k": (pa.string(), [key_of(rng, _KEYS) for _ in places]),
            "x": (pa.int64(), [rng.choice([None, *range(-5, 20)]) for _ in places]),
            "word": (pa.string(), [rng.choice([None, "u", "v", "w", "x", "y"]) for _ in places]),
            "number": (pa.int64(), [batch * 100 + place for place in places]),
        }
        return table(columns)

    def answer(self, epochs: Sequence[EpochInput]) -> Answer:
        """See :meth:`Program.answer`."""
        keys: dict[str | None, Totals] = {}
        out: list[tuple[int, Row]] = []
        for epoch in epochs:
            touched = set()
            for k, x, word, number in rows_of(epoch.sources[0]):
                keys.setdefault(k, Totals()).take(number, x, word)
                touched.add(k)
            out += [(epoch.record.epoch, (k, *keys[k].results)) for k in touched]
        state = {k: (one.n, sum(one.xs) if one.xs else None) for k, one in keys.items()}
        return Answer(made({"sink-0": out}), {"totals.groups": state})

    def fold(self, outcome: Outcome) -> Mapping[str, Any]:
        """The newest row of each key."""
        return {sink: newest(epochs) for sink, epochs in outcome.items()}

    def state(self, tables: Mapping[str, pa.Table]) -> Mapping[Any, Any]:
        """See :meth:`Program.state`."""
        rows = rows_of(tables["totals.groups"].select(["k", "n.count", "total.sum"]))
        return {"totals.groups": {k: (n, total) for k, n, total in rows}}
