from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from holdfast.sinks import SinkContext, noop


def test_it_stages_and_publishes_nothing(
    make_context: Callable[..., SinkContext], tmp_path: Path
) -> None:
    sink = noop()
    sink.validate(make_context(0))
    sink.open(make_context())
    writer = sink.stager().open(0, 0, "a", pa.schema([("n", pa.int64())]))
    writer.write(pa.table({"n": [1]}))
    assert writer.close() is None
    writer.abort()
    sink.pre_commit([])
    sink.commit([], maybe_repeated=False)
    sink.sweep([])
    sink.close()
    assert list(tmp_path.iterdir()) == []
