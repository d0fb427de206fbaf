"""A program whose user code comes to something else whenever it is run: attempts at a task differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from holdfast import runtime
from holdfast.operators.aggregates.operator import AggregateOperator
from holdfast.operators.process.declare import ValueState
from holdfast.operators.process.keyed import KeyedProcess, KeyedProgram
from holdfast.operators.process.operator import ProcessOperator
from holdfast.testing.simulation.lifting import lift_groups, lift_rows
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
    rows_of,
)
from holdfast.testing.simulation.windowing import SPECS, timed_rows
from holdfast.testing.simulation.words import TIME

__all__ = ["DrawProgram", "Lots"]

_COLUMNS = (("k", pa.string()), ("x", pa.int64()), ("ts", TIME))
_MOST = 1 << 20


class Lots(KeyedProcess):
    """Draws a lot for each key and epoch, remembers what they add up to, and tells the lot."""

    output = "k string, x long"

    total = ValueState("long", default=0)

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        """One lot for all rows."""
        del rows, ctx
        lot = int(runtime.new_id(), 16) % _MOST
        self.total.value += lot
        yield key.k, lot


class DrawProgram(Program):
    """:class:`Lots`, and what its reader makes of them: both must have seen the same lots."""

    name = "draw"

    def __init__(self) -> None:
        key = ("k", pa.string())
        lots = ProcessOperator("lots", (key,), _COLUMNS, KeyedProgram(Lots(), ()))
        sums = AggregateOperator("sums", [key], SPECS)
        super().__init__(
            [timed_rows],
            [
                Stage(lots, (Port(lift_rows(lots.input_schema, 1), (Feed(0),)),)),
                Stage(
                    sums,
                    (Port(lift_groups(sums.input_schema, 1, SPECS), (Feed(stage="lots"),)),),
                    {"sink-0": ""},
                ),
            ],
        )

    def answer(self, epochs: Sequence[EpochInput]) -> Answer:
        """How many lots each key has had by then: nobody knows which."""
        counts: dict[Any, int] = {}
        out: list[tuple[int, Row]] = []
        for epoch in epochs:
            for k in {row[0] for row in rows_of(epoch.sources[0])}:
                counts[k] = counts.get(k, 0) + 1
                out.append((epoch.record.epoch, (k, counts[k])))
        return Answer(made({"sink-0": out}), {"counts": counts, "differ": []})

    def outcome(self, published: Mapping[str, Iterable[tuple[int, pa.Table]]]) -> Outcome:
        """See :meth:`Program.outcome`; without what was drawn."""
        return made(
            {s: [(e, r[:2]) for e, t in of for r in rows_of(t)] for s, of in published.items()}
        )

    def state(self, tables: Mapping[str, pa.Table]) -> Mapping[Any, Any]:
        """See :meth:`Program.state`."""
        drawn: dict[Any, Any] = dict(rows_of(tables["lots.values"].select(["k", "total"])))
        read = rows_of(tables["sums.groups"].select(["k", "n.count", "total.sum"]))
        return {
            "counts": {k: n for k, n, _ in read},
            "differ": [(k, total, drawn[k]) for k, _, total in read if drawn[k] != total],
        }
