"""A pipeline's time: watermarks of several sources, idle ones, and what a restart continues with."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint.entry import END_MS, EpochRecord
from holdfast.checkpoint.time import PipelineTime, Watermark


def epoch(time: PipelineTime, number: int, now_ms: int, **seen: int) -> EpochRecord:
    return time.end(time.begin(number, now_ms), seen)


def mark(time: PipelineTime, now_ms: int) -> int | None:
    """The watermark of an epoch that would begin now."""
    return time.begin(99, now_ms).watermark_ms


def test_the_watermark_follows_the_greatest_time_of_epochs_before() -> None:
    time = PipelineTime({"main": Watermark(10)})
    assert epoch(time, 0, 1000, main=500).watermark_ms is None
    assert epoch(time, 1, 1001, main=400).watermark_ms == 490
    assert epoch(time, 2, 1002).watermark_ms == 490
    record = epoch(time, 3, 1003, main=700)
    assert (record.watermark_ms, record.previous_watermark_ms) == (490, 490)
    record = epoch(time, 4, 1004)
    assert (record.watermark_ms, record.previous_watermark_ms) == (690, 490)


def test_without_a_source_that_has_one_there_is_no_watermark() -> None:
    time = PipelineTime({})
    assert epoch(time, 0, 1000, main=500).watermark_ms is None
    assert mark(time, 2000) is None


def test_the_least_of_several_sources_counts() -> None:
    time = PipelineTime({"main": Watermark(0), "control": Watermark(5)})
    epoch(time, 0, 1000, main=500)
    assert mark(time, 1001) is None, "nothing is known of the control stream yet"
    epoch(time, 1, 1001, control=300)
    assert mark(time, 1002) == 295
    epoch(time, 2, 1002, control=900)
    assert mark(time, 1003) == 500


def test_an_idle_source_no_longer_holds_the_others_back() -> None:
    time = PipelineTime({"main": Watermark(0), "control": Watermark(0, idle_ms=50)})
    epoch(time, 0, 1000, main=500, control=100)
    assert mark(time, 1049) == 100
    assert mark(time, 1050) == 500
    epoch(time, 1, 1060, main=600)
    record = epoch(time, 2, 1061, control=200)
    assert record.watermark_ms == 600
    assert mark(time, 1062) == 600, "its rows are late, the watermark doesn't go back"
    epoch(time, 3, 1070, main=900)
    assert mark(time, 1071) == 600, "it is awake and holds the others back again"


def test_what_the_watermark_will_be_can_be_asked_without_beginning_an_epoch() -> None:
    sources = {"main": Watermark(0), "control": Watermark(0, idle_ms=50)}
    time = PipelineTime(sources)
    last = epoch(time, 0, 1000, main=500, control=100)
    for now in (1049, 1050, 1001):
        assert time.watermark_at(now) == mark(time, now)
    again = PipelineTime(sources, last)
    assert again.watermark_at(86_400_000) == 100, "nobody looked meanwhile"


def test_a_source_that_never_had_rows_can_be_idle_too() -> None:
    time = PipelineTime({"main": Watermark(0), "control": Watermark(0, idle_ms=50)})
    epoch(time, 0, 1000, main=500)
    assert mark(time, 1049) is None
    assert mark(time, 1050) == 500


def test_if_all_are_idle_the_watermark_stays() -> None:
    time = PipelineTime({"main": Watermark(0, 10), "control": Watermark(0, 10)})
    epoch(time, 0, 1000, main=500, control=300)
    epoch(time, 1, 1001)
    assert mark(time, 5000) == 300


def test_processing_time_never_goes_back() -> None:
    time = PipelineTime({})
    assert epoch(time, 0, 1000).processing_time_ms == 1000
    assert epoch(time, 1, 900).processing_time_ms == 1000
    assert time.previous_processing_ms == 1000
    again = PipelineTime({}, epoch(time, 2, 1500))
    assert again.previous_processing_ms == 1500
    assert again.begin(3, 1200).processing_time_ms == 1500


def test_an_epoch_that_is_begun_twice_ends_once() -> None:
    """A tick is looked at first, and begun again if something is due."""
    time = PipelineTime({"main": Watermark(0)})
    epoch(time, 0, 1000, main=500)
    time.begin(1, 1100)
    assert time.previous_processing_ms == 1000
    record = time.begin(1, 1101)
    assert (record.processing_time_ms, record.previous_watermark_ms) == (1101, None)


def test_time_that_the_pipeline_did_not_run_makes_no_source_idle() -> None:
    sources = {"main": Watermark(0, 50), "control": Watermark(0, 50)}
    time = PipelineTime(sources)
    epoch(time, 0, 1000, main=500, control=100)
    last = epoch(time, 1, 1030, main=600)
    again = PipelineTime(sources, last)
    # A day later: the control stream was idle for 30 ms, and still is for 20 more.
    day = 86_400_000
    assert again.begin(2, day).watermark_ms == 100
    again.end(again.begin(2, day), {"main": 700})
    assert mark(again, day + 19) == 100
    assert mark(again, day + 20) == 700


def test_at_the_end_the_watermark_is_after_all_times_and_stays() -> None:
    sources = {"main": Watermark(0)}
    time = PipelineTime(sources)
    epoch(time, 0, 1000, main=500)
    epoch(time, 1, 1001)
    assert not time.at_end
    last = time.end(time.begin(2, 1002, at_end=True), {})
    assert (last.watermark_ms, last.previous_watermark_ms) == (END_MS, 500)
    assert last.expiry_ms == 500, "the end makes no state expire"
    for after in (time, PipelineTime(sources, last)):
        assert after.at_end
        record = after.begin(3, 1003)
        assert (record.watermark_ms, record.previous_watermark_ms) == (END_MS, 500)
        after.end(record, {})
        assert after.begin(4, 1004).previous_watermark_ms == 500


steps = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.dictionaries(st.sampled_from(["main", "control"]), st.integers(0, 500), max_size=2),
    ),
    max_size=20,
)


@given(steps, st.sets(st.integers(0, 19)), st.sampled_from([None, 40]))
def test_a_restart_goes_on_where_the_last_record_ends(
    plan: list[tuple[int, Mapping[str, int]]], restarts: set[int], idle_ms: int | None
) -> None:
    sources = {"main": Watermark(7, idle_ms), "control": Watermark(0, idle_ms)}
    whole, parted = PipelineTime(sources), PipelineTime(sources)
    now, last, marks = 1000, None, []
    for number, (later, seen) in enumerate(plan):
        if number in restarts and last is not None:
            # A pipeline that comes back at once has missed nothing.
            parted = PipelineTime(sources, last)
            parted.begin(number, now)
        now += later
        expected = epoch(whole, number, now, **seen)
        last = epoch(parted, number, now, **seen)
        assert last == expected
        if expected.watermark_ms is not None:
            marks.append(expected.watermark_ms)
    assert marks == sorted(marks), "a watermark never goes back"
