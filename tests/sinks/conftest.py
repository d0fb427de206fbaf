from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.checkpoint.entry import StagedOutput
from holdfast.sinks import Sink, SinkContext
from holdfast.storage import open_storage

SCHEMA = pa.schema([("word", pa.string()), ("n", pa.int64())])

MakeContext = Callable[..., SinkContext]
Stage = Callable[..., StagedOutput]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The conformance suite's tests that start processes are slow, for every sink."""
    for item in items:
        if item.path.parent == Path(__file__).parent and (
            "killed" in item.name or "processes" in item.name
        ):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def make_context(tmp_path: Path) -> MakeContext:
    def make(claim: int = 1, **changed: Any) -> SinkContext:
        parts: dict[str, Any] = {
            "pipeline": "tide",
            "sink": "sink-0",
            "claim": claim,
            "storage": open_storage(tmp_path / "ck"),
            "schema": SCHEMA,
            "key_names": ("word",),
        }
        return SinkContext(**{**parts, **changed})

    return make


@pytest.fixture
def stage() -> Stage:
    """Stages rows as one task attempt."""
    attempts = itertools.count()

    def stage_rows(sink: Sink, epoch: int, partition: int, *rows: tuple[str, int]) -> StagedOutput:
        writer = sink.stager().open(epoch, partition, f"a{next(attempts)}", SCHEMA)
        writer.write(pa.Table.from_pylist([{"word": w, "n": n} for w, n in rows], SCHEMA))
        staged = writer.close()
        assert staged is not None
        return staged

    return stage_rows
