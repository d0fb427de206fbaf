"""Timers and times to live at their edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.checkpoint.time import Watermark
from holdfast.errors import InputError, ProcessingError
from holdfast.operators.process.declare import ListState, MapState, ValueState
from holdfast.operators.process.keyed import KeyedProcess, from_ms, to_ms
from holdfast.testing import ProcessorTester
from tests.operators.everything import at
from tests.operators.process_harness import HASHES, Harness

KEYS = (("k", pa.string()),)
COLUMNS = (*KEYS, ("do", pa.string()), ("ts", pa.timestamp("us", "UTC")))


class Doing(KeyedProcess):
    """Runs the statements of its rows; a timer says that it fired, and what it was told to do."""

    output = "k string, seen string"
    n = ValueState("long", ttl=0.01)
    e = ValueState("long", ttl=0.01, ttl_clock="event")
    r = ValueState("long", ttl=0.01, ttl_on="read")
    lives = ValueState("long")
    items = ListState("long", ttl=0.01)
    m = MapState("string", "long", ttl=0.01)
    then = ValueState("string")
    plain = ListState("long")

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        for row in rows:
            yield from self._do(key, row.do, ctx)

    def on_timer(self, key: Any, when: datetime, ctx: Any) -> Iterator[Any]:
        yield key.k, f"{ctx.timer_clock} {to_ms(when)}"
        if self.then.value:
            yield from self._do(key, self.then.value, ctx)

    def _do(self, key: Any, text: str, ctx: Any) -> Iterator[Any]:
        scope = {"self": self, "ctx": ctx, "at": from_ms}
        if text.startswith("="):
            yield key.k, str(eval(text[1:], scope))
        else:
            exec(text, scope)


def started(folder: Path, watermark: bool = True, **options: Any) -> Harness:
    return Harness(
        Doing, folder, KEYS, COLUMNS, watermark=Watermark(0) if watermark else None, **options
    )


def do(
    harness: Harness, now: int, *statements: str, ts: int | None = None, key: str = "a"
) -> list[Any]:
    when = None if ts is None else at(ts)
    output = harness.run([(key, text, when) for text in statements], now).output
    return [row["seen"] for row in output]


def test_a_timer_fires_when_the_clock_reaches_it_and_once(tmp_path: Path) -> None:
    harness = started(tmp_path)
    do(harness, 1000, "ctx.timers.set(1010, 'processing')", "ctx.timers.set(50)")
    assert do(harness, 1009) == []
    assert do(harness, 1010) == ["processing 1010"]
    assert do(harness, 1011, "pass", ts=50) == []
    assert do(harness, 1012) == ["event 50"]
    assert do(harness, 1013, "pass", ts=90) == []
    assert do(harness, 1014) == []
    assert harness.state("process.values") == []


def test_a_timer_in_the_past_fires_in_its_epoch_after_all_rows(tmp_path: Path) -> None:
    harness = started(tmp_path)
    rows = [
        ("a", "ctx.timers.set(3, 'processing')", None),
        ("b", "='row'", None),
        ("a", "='row'", None),
    ]
    output = [(row["k"], row["seen"]) for row in harness.run(rows, 1000).output]
    assert sorted(output[:2]) == [("a", "row"), ("b", "row")]
    assert output[2:] == [("a", "processing 3")]


def test_event_timers_in_the_past_wait_for_the_first_watermark(tmp_path: Path) -> None:
    harness = started(tmp_path)
    assert do(harness, 1000, "ctx.timers.set(3)", ts=500) == []
    assert do(harness, 1001) == ["event 3"]
    assert do(harness, 1002, "ctx.timers.set(4)", "='row'", ts=501) == ["row", "event 4"]


def test_timers_of_all_keys_fire_in_order_of_time_then_key(tmp_path: Path) -> None:
    harness = started(tmp_path)
    rows = [
        ("b", "ctx.timers.set(20, 'processing')", None),
        ("a", "ctx.timers.set(20, 'processing')", None),
        ("c", "ctx.timers.set(10, 'processing')", None),
        ("a", "ctx.timers.set(30, 'processing')", None),
        ("a", "ctx.timers.set(20)", at(90)),
    ]
    harness.run(rows, 1)
    output = [(row["k"], row["seen"]) for row in harness.run([], 50).output]
    assert output == [
        ("c", "processing 10"),
        ("a", "event 20"),
        ("a", "processing 20"),
        ("b", "processing 20"),
        ("a", "processing 30"),
    ]


def test_setting_twice_is_setting_once_and_deleting_nothing_is_fine(tmp_path: Path) -> None:
    harness = started(tmp_path)
    do(harness, 1, "ctx.timers.set(9, 'processing')", "ctx.timers.set(9, 'processing')")
    do(harness, 2, "ctx.timers.set(9, 'processing')", "ctx.timers.delete(77)")
    do(harness, 3, "ctx.timers.set(8, 'processing')", "ctx.timers.delete(8, 'processing')")
    shown = do(harness, 4, "=[to.microsecond // 1000 for to in ctx.timers.list('processing')]")
    assert shown == ["[9]"]
    assert do(harness, 20) == ["processing 9"]


def test_a_deleted_timer_can_be_set_again(tmp_path: Path) -> None:
    harness = started(tmp_path)
    do(harness, 1, "ctx.timers.set(9, 'processing')")
    do(harness, 2, "ctx.timers.delete(9, 'processing')")
    do(harness, 3, "ctx.timers.set(9, 'processing')")
    assert do(harness, 9) == ["processing 9"]


def test_a_timer_may_delete_and_set_others(tmp_path: Path) -> None:
    harness = started(tmp_path)
    do(harness, 1, *(f"ctx.timers.set({ms}, 'processing')" for ms in (10, 11, 40)))
    do(harness, 2, "self.then.value = \"ctx.timers.delete(11, 'processing')\"")
    assert do(harness, 20) == ["processing 10"]
    do(harness, 21, "self.then.value = \"ctx.timers.set(60, 'processing')\"")
    assert do(harness, 50) == ["processing 40"]
    assert do(harness, 60) == ["processing 60"]


@pytest.mark.parametrize("merge", [False, True])
def test_a_timer_set_again_by_itself_waits_until_its_clock_moves(
    merge: bool, tmp_path: Path
) -> None:
    """Also if another timer of the key is due before, and however its hints were merged."""
    harness = started(tmp_path)
    do(harness, 1, "self.then.value = 'ctx.timers.set(50)'", "ctx.timers.set(50)", ts=50)
    assert do(harness, 2, "ctx.timers.set(3, 'processing')") == ["event 50"]
    if merge:
        harness.compact()
    assert do(harness, 3) == ["processing 3"]
    assert do(harness, 4, "='row'") == ["row"]
    assert do(harness, 5, "pass", ts=51) == []
    assert do(harness, 6) == ["event 50"]


def test_a_restart_fires_what_was_set_before(tmp_path: Path) -> None:
    harness = started(tmp_path)
    do(harness, 1, "ctx.timers.set(10, 'processing')", "ctx.timers.set(50)", ts=40)
    harness.restart()
    harness.compact()
    assert do(harness, 12, "pass", ts=60) == ["processing 10"]
    harness.restart()
    assert do(harness, 12) == ["event 50"]


def test_time_goes_on_though_a_key_is_never_seen_again(tmp_path: Path) -> None:
    harness = started(tmp_path, hashed=HASHES["one for all"])
    do(harness, 1, "ctx.timers.set(100)", ts=10, key="gone")
    for now in range(2, 12):
        assert do(harness, now, "pass", ts=20 + now, key=f"k{now}") == []
    do(harness, 20, "pass", ts=100, key="other")
    assert do(harness, 21) == ["event 100"]


def test_a_value_is_there_until_its_expiry_and_not_at_it(tmp_path: Path) -> None:
    harness = started(tmp_path)
    do(harness, 1000, "self.n.value = 1", "self.items.append(2)", "self.m['x'] = 3")
    read = ("=self.n.value", "=list(self.items)", "=dict(self.m)")
    assert do(harness, 1009, *read) == ["1", "[2]", "{'x': 3}"]
    assert do(harness, 1010, *read) == ["None", "[]", "{}"]
    assert harness.state("process.values") == []


def test_event_time_to_live_goes_by_the_watermark(tmp_path: Path) -> None:
    harness = started(tmp_path)
    do(harness, 1, "pass", ts=100)
    do(harness, 2, "self.e.value = 1", ts=109)
    assert do(harness, 5000, "=self.e.value", ts=110) == ["1"]
    assert do(harness, 5001, "=self.e.value", ts=None) == ["None"]


def test_what_is_set_before_the_first_watermark_stays_until_it_is_set_again(
    tmp_path: Path,
) -> None:
    harness = started(tmp_path)
    do(harness, 1, "self.e.value = 1", ts=100)
    do(harness, 2, "pass", ts=900)
    assert do(harness, 3, "=self.e.value") == ["1"]
    do(harness, 4, "self.e.value = 2", ts=1000)
    assert do(harness, 5, "=self.e.value") == ["None"]


def test_reading_and_writing_start_a_time_to_live_anew(tmp_path: Path) -> None:
    harness = started(tmp_path)
    do(harness, 1000, "self.r.value = 1", "self.n.value = 1")
    assert do(harness, 1009, "=self.r.value", "=self.n.value") == ["1", "1"]
    assert do(harness, 1018, "=self.r.value", "=self.n.value") == ["1", "None"]
    assert do(harness, 1027, "=self.r.exists()") == ["True"]
    assert do(harness, 1028, "=self.r.value") == ["None"], "to ask whether it exists is no read"


def test_list_items_and_map_entries_expire_one_by_one(tmp_path: Path) -> None:
    harness = started(tmp_path)
    do(harness, 1000, "self.items.append(1)", "self.m.update({'x': 1, 'y': 1})")
    do(harness, 1005, "self.items.append(2)", "self.m['y'] = 2")
    read = ("=list(self.items)", "=dict(self.m)", "=len(self.m)", "='x' in self.m")
    assert do(harness, 1010, *read) == ["[2]", "{'y': 2}", "1", "False"]
    harness.compact()
    assert do(harness, 1012, *read) == ["[2]", "{'y': 2}", "1", "False"]
    assert do(harness, 1015, *read) == ["[]", "{}", "0", "False"]


def test_what_has_expired_takes_no_place_after_a_merge(tmp_path: Path) -> None:
    harness = started(tmp_path)
    for now in range(0, 100, 10):
        do(harness, 1000 + now, "self.n.value = 1", "self.items.append(1)", key=f"k{now}")
        harness.compact()
    for table in ("process.values", "process.list.items"):
        [segment] = harness.version.tables[table]
        assert segment.run.rows == 1


def test_the_expiry_of_one_value_leaves_the_others_of_its_key(tmp_path: Path) -> None:
    harness = started(tmp_path)
    do(harness, 1000, "self.n.value = 1", "self.lives.value = 2", "ctx.timers.set(5000)")
    do(harness, 1020, "pass", key="other")
    harness.compact()
    read = ("=self.n.value", "=self.lives.value", "=len(ctx.timers.list())")
    assert do(harness, 1021, *read) == ["None", "2", "1"]


def test_clearing_and_writing_in_one_epoch(tmp_path: Path) -> None:
    harness = started(tmp_path)
    do(harness, 1, "self.plain.extend([1, 2])", "self.m['x'] = 1", "self.lives.value = 1")
    do(
        harness,
        2,
        "self.plain.append(3)",
        "self.plain.clear()",
        "self.plain.append(4)",
        "self.m.clear()",
        "self.m['y'] = 2",
        "self.lives.clear()",
        # The timer comes after all rows and on top of what they did.
        "self.then.value = 'self.plain.append(5); self.m.clear(); self.lives.value = 9'",
        "ctx.timers.set(2, 'processing')",
    )
    read = ("=list(self.plain)", "=dict(self.m)", "=self.lives.value")
    assert do(harness, 3, *read) == ["[4, 5]", "{}", "9"]
    harness.compact()
    assert do(harness, 4, *read) == ["[4, 5]", "{}", "9"]


def test_state_is_gone_for_good_when_its_key_is_cleared(tmp_path: Path) -> None:
    harness = started(tmp_path)
    do(harness, 1, "self.lives.value = 1", "self.then.value = 'x'", "self.plain.append(1)")
    assert len(harness.state("process.values")) == 1
    do(harness, 2, "self.lives.clear()", "self.then.clear()", "self.plain.clear()")
    assert harness.state("process.values") == harness.state("process.list.plain") == []
    harness.compact()
    assert harness.version.tables["process.values"] == ()
    new = [sum(r.new_keys for r in harness.run([], 3).reports)]
    assert new == [0]


def test_times_as_numbers_and_datetimes() -> None:
    utc = timezone.utc
    assert to_ms(datetime(1970, 1, 1, 0, 0, 1, tzinfo=utc)) == 1000
    assert to_ms(datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=utc)) == 1, "never early"
    assert to_ms(datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == 0
    assert from_ms(to_ms(datetime(2026, 2, 3, 4, 5, 6, 7000))) == datetime(
        2026, 2, 3, 4, 5, 6, 7000, tzinfo=utc
    )


class Steps(hf.KeyedProcess):
    """Counts down, a timer each hour; what it has seen lives for an hour of event time."""

    output = "user string, what string"
    left = hf.ValueState("long", default=0)
    seen = hf.ListState("long", ttl="1 hour", ttl_clock="event")

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[Any]:
        self.left.value = rows[-1].n
        self.seen.append(self.left.value)
        ctx.timers.set(rows[-1].at + HOUR)
        ctx.timers.set(ctx.processing_time + HOUR, "processing")
        yield key.user, f"{ctx.input_ended} {ctx.watermark}"

    def on_timer(self, key: Any, when: datetime, ctx: Any) -> Iterator[Any]:
        self.left.value -= 1
        self.seen.append(self.left.value)
        yield key.user, f"{when:%H} {list(self.seen)} {ctx.input_ended} {ctx.watermark:%Y}"
        if self.left.value:
            ctx.timers.set(when + HOUR)


HOUR = timedelta(hours=1)
MIDNIGHT = datetime(2026, 1, 1, tzinfo=timezone.utc)


def steps(n: int) -> ProcessorTester:
    tester = ProcessorTester(
        Steps(), columns="user string, n long, at timestamp", keys="user", event_time="at"
    )
    tester.process([("ann", n, MIDNIGHT)])
    tester.set_time(watermark=MIDNIGHT)
    tester.process([("bob", 1, MIDNIGHT + HOUR)])
    return tester


def test_when_input_ends_timers_fire_and_those_that_they_set() -> None:
    tester = steps(3)
    assert [row["what"] for row in tester.end()] == [
        "01 [3, 2] True 9999",
        "02 [1, 0] True 9999",
        "02 [3, 2, 1] True 9999",
        "03 [3, 2, 1, 0] True 9999",
    ]
    assert tester.timers("ann") == tester.timers("bob") == []
    assert len(tester.timers("ann", clock="processing")) == 1, "processing time has not ended"
    with pytest.raises(InputError, match="input has ended"):
        tester.process([("ann", 1, MIDNIGHT)])
    with pytest.raises(InputError, match="input has ended"):
        tester.advance(watermark=MIDNIGHT + 2 * HOUR)


def test_a_timer_that_is_always_set_again_ends_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.operators.process.operator._MOST_ROUNDS", 20)
    tester = steps(21)
    with pytest.raises(ProcessingError, match=r"timers of 'process' .* 20 times.*ctx.input_ended"):
        tester.end()
    assert len(steps(20).end()) == 21
