"""The words of an option: its type has those that are taken, and no others."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, get_args

import pytest

import holdfast as hf
from holdfast import choices
from holdfast.operators.process.keyed import Timers
from tests.test_times_and_sizes import options

Take = Callable[[hf.Stream, Any], object]


def _joined(rows: hf.Stream) -> hf.Stream:
    return rows.with_column_renamed("timestamp", "at")


OPTIONS: list[tuple[str, Any, Take]] = [
    (
        "OutputMode",
        hf.OutputMode,
        lambda rows, word: rows.key_by("value").window(hf.tumbling("1 s"), output_mode=word),
    ),
    ("OutputMode", hf.OutputMode, lambda rows, w: rows.window(hf.session(1), output_mode=w)),
    (
        "TopOutputMode",
        hf.TopOutputMode,
        lambda rows, word: rows.key_by("timestamp").top(
            1, by="value", until="timestamp", output_mode=word
        ),
    ),
    ("ChangeKind", hf.ChangeKind, lambda rows, word: hf.Changes(word)),
    (
        "JoinKind",
        hf.JoinKind,
        lambda rows, word: rows.join(_joined(rows), on="value", between=(0, 1), how=word),
    ),
    (
        "VersionedKind",
        hf.VersionedKind,
        lambda rows, word: rows.join_as_of(_joined(rows), on="value", how=word),
    ),
    (
        "SortOrder",
        hf.SortOrder,
        lambda rows, word: rows.key_by("value").top(1, by=[("timestamp", word)]),
    ),
    ("Trigger", hf.Trigger, lambda rows, word: options(trigger=word)),
    ("Durability", hf.Durability, lambda rows, word: options(durability=word)),
    ("TimeKind", hf.TimeKind, lambda rows, word: hf.ValueState("long", ttl=1, ttl_clock=word)),
    ("TtlOn", hf.TtlOn, lambda rows, word: hf.MapState("long", "long", ttl=1, ttl_on=word)),
    ("MergeName", hf.MergeName, lambda rows, word: hf.ReducingState("long", word)),
]
# A state is told, not given; and PySpark's own words are PySpark's to check.
ELSEWHERE = {"QueryState", "TimeMode"}


@pytest.fixture(scope="module")
def rows(spark: Any) -> hf.Stream:
    ticks = hf.stream(spark.readStream.format("rate").load())
    return ticks.with_watermark("timestamp", "10 s")


@pytest.mark.parametrize(("name", "words", "take"), OPTIONS, ids=lambda each: str(each)[:20])
def test_an_option_takes_the_words_of_its_type_and_says_them(
    rows: hf.Stream, name: str, words: Any, take: Take
) -> None:
    assert getattr(choices, name) == words
    for word in get_args(words):
        assert take(rows, word) is not None
    for wrong in ("nonsense", get_args(words)[0].upper(), None, 7.5j):
        with pytest.raises(hf.InputError, match="can't be") as refused:
            take(rows, wrong)
    with pytest.raises(hf.InputError) as refused:
        take(rows, "nonsense")
    assert re.findall('"([A-Za-z-]+)"', str(refused.value.hint)) == list(get_args(words))


def test_every_option_is_here() -> None:
    tested = {name for name, _, _ in OPTIONS} | ELSEWHERE | {"check_choice"}
    assert tested == set(choices.__all__)


def test_the_words_of_pysparks_time_mode() -> None:
    from holdfast.spark.stateful.handle import parse_time_mode

    modes = [parse_time_mode(word) for word in get_args(hf.TimeMode)]
    assert modes == ["NoTime", "ProcessingTime", "EventTime"]
    with pytest.raises(Exception, match="STATEFUL_PROCESSOR_UNKNOWN_TIME_MODE"):
        parse_time_mode("Sometimes")


def test_a_timer_takes_the_clocks_of_its_type() -> None:
    class Cells:
        timers: ClassVar = {kind: set[int]() for kind in get_args(hf.TimeKind)}

    timers = Timers(Cells())  # type: ignore[arg-type]
    for kind in get_args(hf.TimeKind):
        assert timers._cell(kind) == set()
    with pytest.raises(hf.InputError, match="there is no clock 'wall'"):
        timers._cell("wall")  # type: ignore[arg-type]
