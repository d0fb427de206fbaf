"""One rule for whatever waits: the same forms of a time-out, one error, and what was waited for in it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.checkpoint.entry import StagedOutput
from holdfast.sinks._memory import MemorySink
from holdfast.testing import EpochSource

FORMS: list[Any] = ["10 ms", 0.01, timedelta(milliseconds=10)]


class Waiting(hf.KeyedProcess):
    """Doesn't end an epoch before a file is there."""

    output = "n int"

    def __init__(self, go_on: Path) -> None:
        self.go_on = go_on

    def process(self, key: Any, rows: Sequence[Any], ctx: hf.Context) -> Iterator[Any]:
        while not self.go_on.exists():
            time.sleep(0.01)
        yield (key.n,)


class SlowSink(MemorySink):
    """Doesn't make output durable before it is told to: no checkpoint is complete before."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.go_on = threading.Event()

    def pre_commit(self, staged: Sequence[StagedOutput]) -> None:
        self.go_on.wait()
        super().pre_commit(staged)


@pytest.fixture
def stuck(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[str], hf.Query]]:
    """Starts a pipeline whose first epoch doesn't end, and none of whose checkpoints is complete."""
    sink, go_on = SlowSink(), tmp_path / "go-on"
    queries = []

    def start(trigger: str) -> hf.Query:
        source = EpochSource(spark, "n int")
        source.add([(1,)])
        waiting = hf.stream(source.df).key_by("n").process(Waiting(go_on))
        queries.append(
            waiting.write_to(sink).start(
                "p", tmp_path / "ck", trigger=trigger, local_dir=tmp_path / "local"
            )
        )
        return queries[0]

    yield start
    go_on.touch()
    sink.go_on.set()
    for query in queries:
        query.stop()


def check(wait: Callable[[], object], said: str) -> None:
    with pytest.raises(hf.TimedOutError, match=rf"{said} within 0.01 s") as raised:
        wait()
    assert isinstance(raised.value, TimeoutError)
    assert isinstance(raised.value, hf.HoldfastError)
    assert raised.value.kind == "timed-out"
    assert raised.value.hint


def test_a_time_out_says_what_was_waited_for(
    stuck: Callable[[str], hf.Query], tmp_path: Path
) -> None:
    query = stuck("0.1 s")
    for timeout in FORMS:
        check(
            partial(query.process_all_available, timeout),
            "input of 'p' that was there wasn't all processed",
        )
        assert query.await_termination(timeout) is False
    (tmp_path / "go-on").touch()
    while query.status.last_epoch < 0:
        assert not query.await_termination("20 ms")
    for timeout in FORMS:
        check(partial(query.checkpoint, timeout), "no checkpoint of 'p' was complete")
    for wait in (query.checkpoint, query.process_all_available, query.await_termination):
        for wrong in ("soon", -1, True):
            with pytest.raises(hf.InputError, match="timeout can't be"):
                wait(wrong)
    assert query.is_active


def test_a_step_that_times_out_says_so(stuck: Callable[[str], hf.Query], tmp_path: Path) -> None:
    query = stuck("manual")
    with pytest.raises(hf.TimedOutError, match=r"no epoch of 'p' ended within 3 s"):
        query.step("3 s")  # long enough for it to begin
    for timeout in FORMS:
        check(partial(query.step, timeout), "the epoch under way of 'p' didn't end")
    with pytest.raises(hf.InputError, match="timeout can't be 'soon'"):
        query.step("soon")
    (tmp_path / "go-on").touch()
    assert query.step(timeout=None) is False
