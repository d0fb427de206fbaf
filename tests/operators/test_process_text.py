"""Text that is no UTF-8 goes through user code and every kind of state, and comes back the same."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.util import handle_worker_exception

from holdfast.errors import ProcessingError
from holdfast.operators.base import Clock
from holdfast.operators.input_rows import TAG
from holdfast.operators.process.declare import ListState, MapState, ValueState
from holdfast.operators.process.keyed import KeyedProcess
from holdfast.spark.stateful.batch import _run
from holdfast.spark.stateful.frames import _series, _to_arrow
from holdfast.state.schema import HASH
from holdfast.state.text import python_values, text_array
from holdfast.tasks.task import TaskReport
from holdfast.testing import ProcessorTester
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


class Complains(KeyedProcess):
    """Has a message of its own, and a counter, for what it doesn't like."""

    output = "k string"

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        ctx.metrics.add(f"seen {key.k}")
        if rows[0].s == "raise":
            raise ValueError(f"no such key: {key.k}")
        yield (key.k,)


def sent_by_worker(error: BaseException) -> str:
    """What Spark's worker tells the driver of an error."""
    told = io.BytesIO()
    handle_worker_exception(error, told)
    return told.getvalue()[8:].decode()


def test_an_error_that_quotes_it_can_be_sent(tmp_path: Path) -> None:
    run = Harness(Complains, tmp_path, KEYS, (*KEYS, ("s", pa.string())))
    with pytest.raises(ProcessingError) as raised:
        run.run([(BAD, "raise")], 1000)
    assert "no such key: \\udcff\\udcfe bad" in raised.value.message
    # As the tasks of a stream do it.
    raised.value.__cause__, raised.value.__suppress_context__ = None, True
    assert "no such key: \\udcff\\udcfe bad" in sent_by_worker(raised.value)


def test_an_error_of_a_batch_that_quotes_it_can_be_sent(tmp_path: Path) -> None:
    operator = Harness(Complains, tmp_path, KEYS, (*KEYS, ("s", pa.string()))).operator()
    row = {HASH: 1, TAG: 0, "k": BAD, "s": "raise"}
    columns = [text_array([row.get(f.name)], f.type) for f in operator.input_schema]
    batch = pa.RecordBatch.from_arrays(columns, names=operator.input_schema.names)
    with pytest.raises(ProcessingError) as raised:
        list(_run(operator, Clock(0, 0), 0, 1, iter([batch])))
    assert "no such key: \\udcff\\udcfe bad" in sent_by_worker(raised.value)


def test_counters_may_be_named_by_it(tmp_path: Path) -> None:
    run = Harness(Complains, tmp_path, KEYS, (*KEYS, ("s", pa.string())))
    (report,) = run.run([(BAD, "x")], 1000).reports
    again = TaskReport.decoded(report.encoded())
    assert again.metrics == {"seen \\udcff\\udcfe bad": 1}


def test_a_tester_takes_it() -> None:
    tester = ProcessorTester(Remembers(), columns="k string, s string", keys="k")
    (row,) = tester.process([(BAD, BAD)])
    assert (row["k"], row["seen"], row["names"]) == (BAD, [BAD], {BAD: BAD})
    tester.set_state(BAD, last={"text": f"{BAD}!", "n": 1})
    assert tester.state(BAD)["last"] == {"text": f"{BAD}!", "n": 1}
