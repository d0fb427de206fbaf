"""One rule for whatever waits: the same forms of a time-out, one error, and what was waited for in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.spark.query import Query
from tests.spark.running_support import LONG_S, Pipeline

FORMS: list[Any] = ["10 ms", 0.01, timedelta(milliseconds=10)]


@pytest.fixture
def stuck() -> Iterator[Query]:
    """A pipeline by hand whose epoch doesn't end, and whose checkpoints don't come about."""
    pipeline = Pipeline(every_epoch=False, manual=True, lost=False)
    parts: Any = pipeline.running.parts
    goes_on = threading.Event()
    fail = pipeline.coordinator.checkpoint

    def fail_late() -> None:
        goes_on.wait(LONG_S)
        fail()

    parts.loop.run = lambda *_: goes_on.wait(LONG_S)
    parts.coordinator.checkpoint = fail_late
    waits_for_input: Any = pipeline.query
    waits_for_input.processAllAvailable = pipeline.query.waited_for.wait
    query = Query(parts, lambda: parts)
    yield query
    goes_on.set()
    with pytest.raises(hf.StorageError, match="on a host that is gone"):
        query.stop()


WAITS: list[tuple[Callable[[Query, Any], object], str]] = [
    (lambda query, timeout: query.checkpoint(timeout), "no checkpoint of 'p' was complete"),
    (lambda query, timeout: query.step(timeout), "no epoch of 'p' ended"),
    (
        lambda query, timeout: query.process_all_available(timeout),
        "input of 'p' that was there wasn't all processed",
    ),
]


@pytest.mark.parametrize("timeout", FORMS, ids=repr)
@pytest.mark.parametrize(("wait", "said"), WAITS, ids=lambda each: str(each)[:20])
def test_a_time_out_says_what_was_waited_for(
    stuck: Query, wait: Callable[[Query, Any], object], said: str, timeout: Any
) -> None:
    with pytest.raises(hf.TimedOutError, match=rf"{said} within 0.01 s") as raised:
        wait(stuck, timeout)
    assert isinstance(raised.value, TimeoutError)
    assert isinstance(raised.value, hf.HoldfastError)
    assert raised.value.kind == "timed-out"
    assert raised.value.hint
    assert stuck.is_active


@pytest.mark.parametrize("timeout", FORMS, ids=repr)
def test_waiting_for_the_end_answers_instead(stuck: Query, timeout: Any) -> None:
    assert stuck.await_termination(timeout) is False


@pytest.mark.parametrize("wait", [wait for wait, _ in WAITS] + [Query.await_termination])
def test_what_is_no_time_is_refused_at_once(
    stuck: Query, wait: Callable[[Query, Any], object]
) -> None:
    for wrong in ("soon", -1, True):
        with pytest.raises(hf.InputError, match="timeout can't be"):
            wait(stuck, wrong)
