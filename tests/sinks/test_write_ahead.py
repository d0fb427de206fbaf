"""Output that waits in checkpoint storage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from holdfast.checkpoint.entry import StagedOutput
from holdfast.errors import CorruptionError, FencedError, InternalError
from holdfast.sinks import Sink, SinkContext, console, memory
from holdfast.storage import Storage, open_storage

MakeContext = Callable[..., SinkContext]
Stage = Callable[..., StagedOutput]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path / "ck")


@pytest.fixture
def sink(make_context: MakeContext, storage: Storage, request: pytest.FixtureRequest) -> Sink:
    sink = memory(request.node.name)
    sink.open(make_context(3, storage=storage))
    return sink


def test_output_is_named_by_claim_epoch_and_partition(
    sink: Sink, stage: Stage, storage: Storage
) -> None:
    output = stage(sink, 7, 2, ("kelp", 1))
    assert output.name.startswith("staged/3-7-2-a0-")
    assert [(i.name, i.size_bytes) for i in storage.list()] == [(output.name, output.size_bytes)]


def test_the_sink_never_deletes_objects_itself(sink: Sink, stage: Stage, storage: Storage) -> None:
    outputs = [stage(sink, epoch, 0, ("kelp", epoch)) for epoch in (0, 1)]
    sink.commit(outputs[:1], maybe_repeated=False)
    sink.sweep([])
    assert {info.name for info in storage.list("staged/")} == {o.name for o in outputs}


def test_two_sinks_of_one_attempt_do_not_overwrite_each_other(
    make_context: MakeContext, storage: Storage
) -> None:
    names = set()
    for n in (1, 2):
        sink = memory(f"two-{n}")
        sink.open(make_context(storage=storage, sink=f"sink-{n}"))
        writer = sink.stager().open(0, 0, "same", pa.schema([("n", pa.int64())]))
        writer.write(pa.table({"n": [n]}))
        output = writer.close()
        assert output is not None
        names.add(output.name)
    assert len(names) == 2


@pytest.mark.parametrize("position", [0, 40, -1])
def test_a_flipped_bit_is_an_error_that_names_the_object(
    sink: Sink, stage: Stage, storage: Storage, position: int
) -> None:
    output = stage(sink, 0, 0, *[("kelp", n) for n in range(100)])
    data = bytearray(storage.get(output.name))
    data[position] ^= 1
    storage.put(output.name, data)
    with pytest.raises(CorruptionError, match=f"{output.name} of epoch 0 .* doesn't hold"):
        sink.commit([output], maybe_repeated=False)


def test_a_missing_or_short_object_is_an_error_that_names_it(
    sink: Sink, stage: Stage, storage: Storage
) -> None:
    output = stage(sink, 0, 0, ("kelp", 1))
    data = storage.get(output.name)
    storage.put(output.name, data[:-8])
    with pytest.raises(CorruptionError, match=f"{output.name} of epoch 0 .* doesn't hold"):
        sink.commit([output], maybe_repeated=False)
    storage.delete([output.name])
    with pytest.raises(CorruptionError, match=f"{output.name} of epoch 0 .* is missing"):
        sink.commit([output], maybe_repeated=False)
    storage.put(output.name, data)
    sink.commit([output], maybe_repeated=False)


def test_a_wrong_number_of_rows_is_an_error(sink: Sink, stage: Stage) -> None:
    output = stage(sink, 0, 0, ("kelp", 1))
    wrong = StagedOutput(0, 0, output.name, 2, output.size_bytes)
    with pytest.raises(CorruptionError, match="holds 1 rows instead of 2"):
        sink.commit([wrong], maybe_repeated=False)


def test_a_task_holds_little_however_much_it_writes(sink: Sink) -> None:
    schema = pa.schema([("n", pa.int64())])
    noise = np.random.default_rng(7).integers(0, 2**62, 2**20)
    writer = sink.stager().open(0, 0, "big", schema)
    before = pa.total_allocated_bytes()
    highest = 0
    for _ in range(16):  # 128 MiB
        writer.write(pa.table({"n": noise}))
        highest = max(highest, pa.total_allocated_bytes() - before)
    output = writer.close()
    assert output is not None
    assert output.rows == 2**24
    assert highest < 64 * 2**20


def test_a_sink_must_be_opened_first() -> None:
    with pytest.raises(InternalError, match="before it was opened"):
        console().stager()


def test_a_driver_that_is_fenced_while_it_reads_delivers_no_more(
    make_context: MakeContext, stage: Stage, storage: Storage
) -> None:
    """It looked before it began; what comes after the first delivery takes time."""
    sink, looks = memory("fenced-meanwhile"), iter([None, FencedError("another has taken over")])

    def look() -> None:
        found = next(looks)
        if found is not None:
            raise found

    sink.open(make_context(3, storage=storage, check_not_fenced=look))
    outputs = [stage(sink, epoch, 0, ("kelp", epoch)) for epoch in (0, 1)]
    with pytest.raises(FencedError, match="another has taken over"):
        sink.commit(outputs, maybe_repeated=False)
    assert [row["n"] for row in sink.rows()] == [0]
