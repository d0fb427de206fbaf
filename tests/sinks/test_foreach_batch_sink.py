from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.checkpoint.entry import StagedOutput
from holdfast.errors import ConfigurationError, FencedError, HoldfastError, InputError
from holdfast.sinks import Sink, SinkContext, foreach_batch
from holdfast.testing import SinkTests
from holdfast.testing.sinks import Rows

MakeContext = Callable[..., SinkContext]
Stage = Callable[..., StagedOutput]


def replace_epoch(folder: Path, table: pa.Table, epoch: int, maybe_repeated: bool) -> None:
    """What the documentation advises: write under the epoch's number."""
    folder.mkdir(exist_ok=True)
    temporary = folder / f".{epoch}-{os.getpid()}"
    with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    temporary.replace(folder / str(epoch))


class TestForeachBatchSink(SinkTests):
    failpoints = ("sink.write_ahead.before_deliver", "sink.write_ahead.after_deliver")

    def make_sink(self, place: str) -> Sink:
        sink = foreach_batch(partial(replace_epoch, Path(place)))
        sink.place = Path(place)  # type: ignore[attr-defined]
        return sink

    def published(self, sink: Sink) -> Mapping[int, Rows]:
        folder: Path = sink.place  # type: ignore[attr-defined]
        files = [] if not folder.exists() else [p for p in folder.iterdir() if p.name[0] != "."]
        return {int(p.name): pa.ipc.open_file(p).read_all().to_pylist() for p in files}


class Calls:
    """A user's function that notes its calls, and fails where it is told to."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bool, list[str]]] = []
        self.fail_at: int | None = None

    def __call__(self, df: Any, epoch: int, maybe_repeated: bool) -> None:
        self.seen.append((epoch, maybe_repeated, df.column("word").to_pylist()))
        if epoch == self.fail_at:
            raise ZeroDivisionError("tide out")


def opened(calls: Callable[[Any, int, bool], object], context: SinkContext) -> Sink:
    sink = foreach_batch(calls)
    sink.open(context)
    return sink


@pytest.fixture
def context(make_context: MakeContext) -> SinkContext:
    return make_context(to_dataframe=lambda table: table)


def test_it_is_called_per_epoch_in_order_with_all_partitions(
    context: SinkContext, stage: Stage
) -> None:
    calls = Calls()
    sink = opened(calls, context)
    outputs = [stage(sink, e, p, (f"{e}.{p}", 1)) for e in (8, 7) for p in (1, 0)]
    sink.commit(outputs, maybe_repeated=False)
    assert calls.seen == [(7, False, ["7.0", "7.1"]), (8, False, ["8.0", "8.1"])]


def test_a_failed_call_is_repeated_and_says_so_and_the_others_are_not(
    context: SinkContext, stage: Stage
) -> None:
    calls = Calls()
    sink = opened(calls, context)
    outputs = [stage(sink, epoch, 0, (f"{epoch}", 1)) for epoch in (0, 1, 2)]
    calls.fail_at = 1
    with pytest.raises(HoldfastError, match="ZeroDivisionError for epoch 1: tide out") as caught:
        sink.commit(outputs, maybe_repeated=False)
    assert isinstance(caught.value.__context__, ZeroDivisionError)
    assert 'raise ZeroDivisionError("tide out")' in str(caught.value)
    assert "_foreach_batch.py" not in str(caught.value)  # the user's part of the traceback alone
    calls.fail_at = None
    sink.commit(outputs, maybe_repeated=False)
    assert calls.seen == [(0, False, ["0"]), (1, False, ["1"]), (1, True, ["1"]), (2, False, ["2"])]


def test_an_error_is_shown_once_with_the_users_lines_and_its_causes(
    context: SinkContext, stage: Stage
) -> None:
    def look(df: Any) -> None:
        raise KeyError("no such tide")

    def write(df: Any, epoch: int, maybe_repeated: bool) -> None:
        try:
            look(df)
        except KeyError as error:
            raise ValueError("not written") from error

    sink = opened(write, context)
    with pytest.raises(HoldfastError) as caught:
        sink.commit([stage(sink, 0, 0, ("kelp", 1))], maybe_repeated=False)
    shown = "".join(traceback.format_exception(caught.value))
    for line in (
        'raise KeyError("no such tide")',
        "look(df)",
        'raise ValueError("not written") from error',
        "The above exception was the direct cause",
        "\nKeyError: 'no such tide'",
        "\nValueError: not written",
    ):
        assert shown.count(line) == 1, shown


def test_a_function_that_exits_is_called_again(context: SinkContext, stage: Stage) -> None:
    """``sys.exit()`` ends a thread, not the program: nobody would notice."""
    sink = opened(lambda *_: sys.exit("enough"), context)
    output = stage(sink, 0, 0, ("kelp", 1))
    with pytest.raises(HoldfastError, match="raised SystemExit for epoch 0: enough"):
        sink.commit([output], maybe_repeated=False)


def test_after_a_restart_all_that_nobody_acknowledged_is_flagged(
    make_context: MakeContext, context: SinkContext, stage: Stage
) -> None:
    first = opened(Calls(), context)
    outputs = [stage(first, epoch, 0, (f"{epoch}", 1)) for epoch in (0, 1)]
    first.commit(outputs, maybe_repeated=False)
    calls = Calls()
    second = opened(calls, make_context(2, to_dataframe=lambda table: table))
    second.commit(outputs, maybe_repeated=True)
    second.commit([stage(second, 2, 0, ("2", 1))], maybe_repeated=False)
    assert calls.seen == [(0, True, ["0"]), (1, True, ["1"]), (2, False, ["2"])]


def test_the_function_gets_a_dataframe(make_context: MakeContext, stage: Stage) -> None:
    seen: list[object] = []
    context = make_context(to_dataframe=lambda table: json.dumps(table.to_pylist()))
    sink = opened(lambda df, epoch, maybe_repeated: seen.append(df), context)
    sink.commit([stage(sink, 0, 0, ("kelp", 1))], maybe_repeated=False)
    assert seen == ['[{"word": "kelp", "n": 1}]']


def test_being_fenced_is_not_the_functions_fault(context: SinkContext, stage: Stage) -> None:
    def fenced(df: Any, epoch: int, maybe_repeated: bool) -> None:
        raise FencedError("taken over")

    sink = opened(fenced, context)
    with pytest.raises(FencedError, match="taken over"):
        sink.commit([stage(sink, 0, 0, ("kelp", 1))], maybe_repeated=False)


def test_it_needs_a_function_and_a_session(make_context: MakeContext) -> None:
    with pytest.raises(InputError, match="needs a function"):
        foreach_batch("print")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"write\(df, epoch, maybe_repeated\)"):

        @foreach_batch  # type: ignore[arg-type]
        def write(df: object, epoch: int) -> None: ...

    foreach_batch(lambda *given: None)
    with pytest.raises(ConfigurationError, match="needs a Spark session"):
        foreach_batch(Calls()).validate(make_context(0))
    assert foreach_batch(Calls()).describe() == "foreach_batch(Calls)"
