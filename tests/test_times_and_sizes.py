"""One rule for lengths of time, and one for sizes, wherever they are asked for."""

from __future__ import annotations

import math
import threading
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast as hf
from holdfast.driver.options import Options
from holdfast.durations import parse_duration, parse_ms, parse_timeout
from holdfast.sizes import parse_size

ANY: Any = None


@given(st.integers(0, 10**9))
def test_a_time_is_the_same_however_it_is_written(ms: int) -> None:
    each = (f"{ms} ms", f"{ms}ms", f" {ms} Milliseconds ", ms / 1000, timedelta(milliseconds=ms))
    assert {parse_ms(one) for one in each} == {ms}
    assert parse_ms(f"-{ms} ms", negative=True) == -ms
    assert parse_ms(timedelta(milliseconds=-ms), negative=True) == -ms


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1 week", 604_800), ("2 days", 172_800), ("1.5h", 5400), ("3 min", 180), ("4 sec", 4),
        ("1 hour 30 minutes", 5400), ("1m30s", 90), ("0 s", 0),
    ],
)  # fmt: skip
def test_units_of_time(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


NO_TIMES: list[Any] = [
    "", "soon", "10", "5 parsecs", "1 s and 2 s", "-", "--1 s", True, None, [1], math.nan,
    math.inf, b"1 s",
]  # fmt: skip


@pytest.mark.parametrize("given_", NO_TIMES, ids=repr)
def test_what_is_no_time(given_: Any) -> None:
    for negative in (False, True):
        with pytest.raises(hf.InputError, match="delay can't be"):
            parse_duration(given_, "delay", negative=negative)


@pytest.mark.parametrize("given_", [-1, "-1 s", timedelta(seconds=-1)], ids=repr)
def test_a_time_that_is_negative(given_: Any) -> None:
    with pytest.raises(hf.InputError, match="delay can't be negative"):
        parse_duration(given_, "delay")


def test_a_timeout_that_no_lock_could_wait_is_as_long_as_one_can() -> None:
    assert threading.Event().wait(parse_timeout(0)) is False
    assert parse_timeout("1000000 weeks") == threading.TIMEOUT_MAX
    assert parse_timeout(None) is None
    with pytest.raises(hf.InputError, match="timeout can't be 'soon'"):
        parse_timeout("soon")


@given(st.integers(0, 2**40))
def test_a_size_is_the_same_however_it_is_written(kib: int) -> None:
    each: tuple[Any, ...] = (kib << 10, f"{kib} KiB", f"{kib}kib", f"{kib}k", f"{kib << 10} bytes")
    assert {parse_size(one) for one in each} == {kib << 10}
    assert parse_size(f"{kib} kB") == parse_size(f"{kib} KB") == kib * 1000


@pytest.mark.parametrize(
    "given_", ["", "big", "10", "5 XB", "-1 MiB", -1, True, None, math.nan, math.inf], ids=repr
)
def test_what_is_no_size(given_: Any) -> None:
    with pytest.raises(hf.InputError, match="memory_bytes can't be"):
        parse_size(given_, "memory_bytes")


def options(**given_: Any) -> Options:
    settings: dict[str, Any] = {
        "name": "p", "checkpoint_dir": "ck", "checkpoint_interval": None, "trigger": 0,
        "partitions": None, "durability": "checkpoint", "keep_last": 1, "keep_for": None,
        "max_ahead_bytes": 1, "max_ahead": 1, "memory_bytes": 1 << 20, "local_dir": None,
        "local_limit_bytes": None, "from_entry": None, "drop_state": (), "clock": None,
        "on_checkpoint": (), "end_of_input": False,
    }  # fmt: skip
    return Options.checked(**{**settings, **given_})


SECOND: list[Any] = ["1 s", "1000 ms", 1, 1.0, timedelta(seconds=1)]


@pytest.mark.parametrize("second", SECOND, ids=repr)
def test_whoever_asks_for_a_time_takes_every_form_of_it(second: Any) -> None:
    assert hf.tumbling(second, offset=second) == hf.tumbling(1, offset=1)
    assert hf.sliding(second, second) == hf.sliding(1, 1)
    assert hf.session(second) == hf.session(1)
    assert hf.emit(early_every=second) == hf.emit(early_every=1)
    assert hf.ValueState("long", ttl=second).ttl == hf.ValueState("long", ttl=1).ttl
    asked = options(checkpoint_interval=second, trigger=second, keep_for=second, max_ahead=second)
    assert (asked.checkpoint_interval_s, asked.trigger_s, asked.max_ahead_s) == (1, 1, 1)
    assert asked.retention.keep_for_s == 1


@pytest.mark.parametrize("second", SECOND, ids=repr)
def test_streams_take_every_form_of_a_time(spark: Any, second: Any) -> None:
    ticks = hf.stream(spark.readStream.format("rate").load())
    timed = ticks.with_watermark("timestamp", second, allowed_lateness=second, idle_timeout=second)
    mark = timed.watermark
    assert mark is not None
    assert (mark.delay_ms, mark.lateness_ms, mark.idle_ms) == (1000, 1000, 1000)
    tocks = timed.with_column_renamed("timestamp", "at")
    assert timed.join(tocks, "value", between=("-1 s", second)).bounds_ms == (-1000, 1000)
    assert timed.join(tocks, "value", between=(timedelta(0), second)).bounds_ms == (0, 1000)
    with pytest.raises(hf.InputError, match="between can't be 'soon'"):
        timed.join(tocks, "value", between=("soon", second))


def test_a_tester_takes_a_lateness_as_a_stream_does() -> None:
    class Seen(hf.KeyedProcess):
        output = "user string"

        def process(self, key: Any, rows: Any, ctx: Any) -> Any:
            yield (key.user,)

    def out(lateness: hf.Duration) -> list[Any]:
        tester = hf.testing.ProcessorTester(
            Seen(), columns="user string, at timestamp", keys="user", event_time="at",
            allowed_lateness=lateness, watermark=10_000,
        )  # fmt: skip
        from datetime import datetime, timezone

        return tester.process([("ann", datetime.fromtimestamp(9, timezone.utc))])

    assert out("1 s") == [] == out(1)
    assert out("1001 ms") == [{"user": "ann"}] == out(timedelta(seconds=2))


def test_sizes_of_a_start() -> None:
    asked = options(max_ahead_bytes="2 GiB", memory_bytes="64 MiB", local_limit_bytes="1.5g")
    sizes = (asked.max_ahead_bytes, asked.memory_bytes, asked.local_limit_bytes)
    assert sizes == (2 << 30, 64 << 20, 3 << 29)
    with pytest.raises(hf.InputError, match="memory_bytes must be at least 1,048,576 bytes"):
        options(memory_bytes="5 kB")
    with pytest.raises(hf.InputError, match="local_limit_bytes can't be 'much'"):
        options(local_limit_bytes="much")
