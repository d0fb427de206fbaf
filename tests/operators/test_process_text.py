"""Text that is no UTF-8 goes through user code and every kind of state, and comes back the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.operators.process.declare import ListState, MapState, ValueState
from holdfast.operators.process.keyed import KeyedProcess
from holdfast.spark.stateful.frames import _series, _to_arrow
from holdfast.state.text import python_values, text_array
from tests.operators.process_harness import Harness

KEYS = (("k", pa.string()),)
BAD = "\udcff\udcfe bad"


class Remembers(KeyedProcess):
    """Keeps what it saw in every kind of state, and looks again a second later."""

    output = "k string, last string, seen array<string>, names map<string,string>, fired boolean"
    last = ValueState("struct<text:string,n:long>")
    seen = ListState("string")
    names = MapState("string", "string")

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        for row in rows:
            self.last.value = {"text": row.s, "n": len(self.seen)}
            self.seen.append(row.s)
            self.names[row.s] = row.s
        ctx.timers.set(3000, "processing")
        yield self._all(key.k, fired=False)

    def on_timer(self, key: Any, when: datetime, ctx: Any) -> Iterator[Any]:
        yield self._all(key.k, fired=True)

    def _all(self, key: str, *, fired: bool) -> tuple[Any, ...]:
        return key, self.last.value["text"], list(self.seen), dict(self.names.items()), fired


def test_text_that_is_no_utf8_goes_through_every_kind_of_state(tmp_path: Path) -> None:
    run = Harness(Remembers, tmp_path, KEYS, (*KEYS, ("s", pa.string())))
    outputs = []
    for epoch in range(3):
        rows = [(BAD, f"{BAD}{epoch}"), ("é", f"é{epoch}")] if epoch < 2 else []
        outputs.append(run.run(rows, 1000 + 1000 * epoch).output)
        run.restart()
    run.compact()
    texts = [f"{BAD}0", f"{BAD}1"]
    seen = [row for output in outputs for row in output if row["k"] == BAD]
    assert [row["seen"] for row in seen if not row["fired"]] == [texts[:1], texts]
    assert seen[-1] == {
        "k": BAD,
        "last": texts[1],
        "seen": texts,
        "names": [(text, text) for text in texts],
        "fired": True,
    }


def test_pandas_frames_have_it_as_python_does() -> None:
    cases: list[tuple[pa.DataType, list[Any]]] = [
        (pa.string(), [BAD, None, "é"]),
        (pa.list_(pa.string()), [[BAD], None, []]),
    ]
    for kind, values in cases:
        array = text_array(values, kind)
        series = _series(pa.chunked_array([array]), "UTC")
        again = _to_arrow(list(series), kind, "UTC")
        assert python_values(again) == values
