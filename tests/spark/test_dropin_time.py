"""A processor's life: the order of its methods, its timers and its time, without Spark."""

# ruff: noqa: N803 - the names are PySpark's

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from holdfast.errors import ProcessingError
from holdfast.testing import ProcessorTester

CALLS: list[str] = []


class Logged(StatefulProcessor):
    """Notes every call."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def init(self, handle: Any) -> None:
        CALLS.append("init")
        self.handle = handle
        self.value = handle.getValueState("v", "n int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        given = [row.v for row in rows]
        CALLS.append(f"rows {key} {given}")
        for ms in given:
            self.handle.registerTimer(ms)
        yield Row(said="rows")

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        CALLS.append(f"timer {key[0]} {expiredTimerInfo.getExpiryTimeInMs()}")
        yield Row(said="timer")

    def close(self) -> None:
        CALLS.append("close")


def probe_of(processor: Any, mode: str = "None", **given: Any) -> ProcessorTester:
    CALLS.clear()
    arguments: dict[str, Any] = {
        "columns": "id string, v long",
        "keys": "id",
        "output": "said string",
        "time_mode": mode,
    }
    return ProcessorTester(processor, **(arguments | given))


def test_spark_s_watermark_begins_at_0() -> None:
    probe = probe_of(Logged(), "EventTime")
    probe.process([("a", 0), ("a", -3), ("b", 1)])
    assert [call for call in CALLS if call.startswith("timer")] == ["timer a -3", "timer a 0"]
    assert probe.advance(watermark=1) == [{"said": "timer"}]
    assert CALLS[-2] == "timer b 1"


def test_the_driver_learns_from_init_and_close() -> None:
    probe_of(Logged())
    assert CALLS == ["init", "close"]


def test_timers_fire_after_all_rows_by_time_then_key() -> None:
    probe = probe_of(Logged(), "processingTime", processing_time=100)
    CALLS.clear()
    said = probe.process([("b", 50), ("a", 100), ("a", 50), ("a", 101), ("c", 7)])
    rows = [call for call in CALLS if call.startswith("rows")]
    assert [CALLS[0], CALLS[-1]] == ["init", "close"]
    assert sorted(rows) == ["rows ('a',) [100, 50, 101]", "rows ('b',) [50]", "rows ('c',) [7]"]
    # Inclusively, and also in the batch that registered them.
    assert CALLS[4:-1] == ["timer c 7", "timer a 50", "timer b 50", "timer a 100"]
    assert [row["said"] for row in said] == ["rows"] * 3 + ["timer"] * 4
    CALLS.clear()
    probe.advance(processing_time=101)
    assert CALLS == ["init", "timer a 101", "close"]


def test_close_is_not_called_after_a_failure() -> None:
    class Failing(Logged):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            raise ValueError("no")

    probe = probe_of(Failing())
    CALLS.clear()
    with pytest.raises(ProcessingError, match=r"Failing\.handleInputRows raised ValueError"):
        probe.process([("a", 1)])
    assert CALLS == ["init"]


class Times(StatefulProcessor):
    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        now = timerValues.getCurrentProcessingTimeInMs()
        yield Row(said=f"{now} {timerValues.getCurrentWatermarkInMs()} {[r.v for r in rows]}")


@pytest.mark.parametrize(
    ("mode", "first", "then"),
    [("None", "-1 -1", "-1 -1"), ("ProcessingTime", "5 0", "6 70"), ("eventtime", "5 0", "6 70")],
)
def test_both_times_in_every_mode_but_none(mode: str, first: str, then: str) -> None:
    probe = probe_of(Times(), mode, processing_time=5)
    assert probe.process([("a", 1)]) == [{"said": f"{first} [1]"}]
    probe.set_time(processing_time=6, watermark=70)
    assert probe.process([("a", 2)]) == [{"said": f"{then} [2]"}]


def test_rows_are_late_by_the_watermark_of_the_batch_before() -> None:
    columns = "id string, v long, ts timestamp"
    probe = probe_of(Times(), "EventTime", columns=columns, event_time="ts", processing_time=5)

    def at(*seconds: int) -> list[Any]:
        rows = [("a", s, pd.Timestamp(s, unit="s", tz="UTC").to_pydatetime()) for s in seconds]
        return [row["said"] for row in probe.process(rows)]

    assert at(10) == ["5 0 [10]"]
    probe.set_time(watermark=8_000)
    assert at(7, 9) == ["5 8000 [7, 9]"]
    probe.set_time(watermark=12_000)
    assert at(8, 9, 13) == ["5 12000 [9, 13]"]
    assert at(12) == []


class Twice(Logged):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        list(rows)
        self.handle.registerTimer(500)
        self.handle.registerTimer(500)
        self.handle.registerTimer(300)
        self.handle.deleteTimer(7)
        together = zip(self.handle.listTimers(), self.handle.listTimers(), strict=True)
        yield Row(said=repr(list(together)))


def test_registering_twice_and_deleting_nothing_are_warnings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    probe = probe_of(Twice(), "ProcessingTime", processing_time=100)
    with caplog.at_level(logging.WARNING, "holdfast.stateful"):
        said = probe.process([("a", 1)])
    assert said == [{"said": "[(300, 300), (500, 500)]"}]
    assert [record.getMessage() for record in caplog.records] == [
        "key ('a',) has a timer at 500 ms already",
        "key ('a',) has no timer at 7 ms to delete",
    ]


class Fading(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "n long", 10)
        self.items = handle.getListState("items", "n long", 10)
        self.entries = handle.getMapState("entries", "k long", "n long", 10)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        seen = (self.value.get(), list(self.items.get()), sorted(self.entries.iterator()))
        for row in rows:
            if row.v:
                self.value.update((row.v,))
                self.items.appendValue((row.v,))
                self.entries.updateValue((row.v % 10,), (row.v,))
        yield Row(said=repr(seen))


def test_time_to_live_is_per_value_element_and_entry_and_starts_anew_on_write() -> None:
    probe = probe_of(Fading(), "ProcessingTime", processing_time=100)

    def at(ms: int, *values: int) -> str:
        probe.set_time(processing_time=ms)
        (row,) = probe.process([("a", v) for v in values])
        return str(row["said"])

    assert at(100, 11, 12) == "(None, [], [])"
    assert at(105, 21) == "((12,), [(11,), (12,)], [((1,), (11,)), ((2,), (12,))])"
    # Hidden once the batch's time has reached the expiry: what was written at 100 goes at 110.
    assert at(109, 0) == "((21,), [(11,), (12,), (21,)], [((1,), (21,)), ((2,), (12,))])"
    assert at(110, 0) == "((21,), [(21,)], [((1,), (21,))])"
    assert at(115, 0) == "(None, [], [])"


class Named(StatefulProcessor):
    """Its variables have the names of key columns and of one another's kinds."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("id", "n long")
        self.items = handle.getListState("kind.of list", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        (n,) = self.value.get() or (0,)
        for row in rows:
            n += row.v
            self.items.appendValue((row.v,))
        self.value.update((n,))
        yield Row(said=f"{key.count('a')} {n} {list(self.items.get())}")


def test_a_variable_may_be_named_like_a_key() -> None:
    probe = probe_of(Named())
    assert probe.process([("a", 1)]) == [{"said": "1 1 [(1,)]"}]
    assert probe.process([("a", 2)]) == [{"said": "1 3 [(1,), (2,)]"}]


class Greedy(StatefulProcessor):
    """Writes to what it is reading."""

    def init(self, handle: Any) -> None:
        self.items = handle.getListState("items", "n long")
        self.entries = handle.getMapState("entries", "n long", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.items.appendValue((row.v,))
            self.entries.updateValue((row.v,), (row.v,))
        for (n,) in self.items.get():
            self.items.appendValue((n * 10,))
        for (n,), _ in self.entries.iterator():
            self.entries.updateValue((n * 10,), (n,))
            self.entries.removeKey((n,))
        yield Row(said=f"{list(self.items.get())} {sorted(self.entries.keys())}")


def test_reading_is_not_disturbed_by_writing() -> None:
    probe = probe_of(Greedy())
    assert probe.process([("a", 1), ("a", 2)]) == [
        {"said": "[(1,), (2,), (10,), (20,)] [(10,), (20,)]"}
    ]


class Frames(StatefulProcessor):
    """Changes the frames it is given, as pandas code does."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("n", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        for frame in rows:
            frame["twice"] = frame["v"] * 2
            frame.loc[0, "v"] = -1
            ordered = frame.sort_values("v", ascending=False)
            said = f"{ordered['v'].tolist()} {ordered['twice'].tolist()}"
            yield pd.DataFrame({"said": [said]})


def test_frames_are_the_processors_own() -> None:
    probe = probe_of(Frames(), pandas=True)
    said = probe.process([("a", 1), ("b", 5), ("a", 3), ("b", 4)])
    assert sorted(row["said"] for row in said) == ["[3, -1] [6, 2]", "[4, -1] [8, 10]"]


FRAMES: list[tuple[Any, str]] = [
    (Row(said="x"), "which is no DataFrame"),
    (pd.DataFrame({"other": [1]}), r"without 'said': it has \['other'\]"),
    (pd.DataFrame([["x", "y"]]), r"without names: it has \[0, 1\]"),
    (pd.DataFrame({"said": [[1]]}), r"column 'said' should be string, but is \[\[1\]\]"),
]


@pytest.mark.parametrize(("frame", "problem"), FRAMES)
def test_frames_that_do_not_fit_the_output(frame: Any, problem: str) -> None:
    class Wrong(Frames):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            return [frame]

    with pytest.raises(ProcessingError, match=problem) as caught:
        probe_of(Wrong(), pandas=True).process([("a", 1)])
    assert "key (id='a')" in str(caught.value)


def test_frames_are_taken_by_name_or_by_position() -> None:
    class Loose(Frames):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            yield pd.DataFrame({"more": [1], "said": ["x"], "n": [1.0]})
            yield pd.DataFrame([["y", None]])
            yield pd.DataFrame({"n": [], "said": []})
            yield pd.DataFrame({"n": [None, 7], "said": [None, "z"]})

    probe = probe_of(Loose(), output="said string, n int", pandas=True)
    assert probe.process([("a", 1)]) == [
        {"said": "x", "n": 1},
        {"said": "y", "n": None},
        {"said": None, "n": None},
        {"said": "z", "n": 7},
    ]
