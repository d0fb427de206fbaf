"""Publishers may be killed at any moment, and readers may take published epochs away at any other."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from holdfast.checkpoint.entry import StagedOutput
from holdfast.failpoints import arm, disarm
from holdfast.sinks import Sink, SinkContext, _publish, parquet
from tests.sinks.test_parquet_sink import TestParquetSink as Conformance

MakeContext = Callable[..., SinkContext]
Stage = Callable[..., StagedOutput]
Passage = tuple[str, int]

EPOCHS = 2
EXPECTED = [(f"word {p}", e) for p in (0, 1) for e in range(EPOCHS)]
PASSAGES = [*itertools.product(Conformance.failpoints, range(1, EPOCHS + 1))]


class Killed(BaseException):
    """Nobody catches it, as nobody catches SIGKILL."""


class Place:
    """An output folder, the drivers that publish to it, and a reader that takes epochs away."""

    def __init__(
        self, folder: Path, column: str | None, make_context: MakeContext, stage: Stage
    ) -> None:
        self.out, self.taken = folder / "out", folder / "taken"
        self.taken.mkdir(parents=True)
        self.column = column
        self.make_context = make_context
        self.claims, self.numbers = itertools.count(1), itertools.count()
        sink = self.driver()
        self.outputs = [stage(sink, e, p, (f"word {p}", e)) for e in range(EPOCHS) for p in (0, 1)]
        sink.pre_commit(self.outputs)

    def driver(self) -> Sink:
        sink = parquet(self.out, epoch_column=self.column)
        sink.open(self.make_context(next(self.claims)))
        return sink

    def take_away(self) -> None:
        for path in self.out.iterdir():
            if path.name != "_holdfast":
                path.rename(self.taken / f"{next(self.numbers)}-{path.name}")

    def take_away_and_kill(self) -> None:
        self.take_away()
        raise Killed

    def start(self, at: Passage | None, then: Callable[[], None]) -> None:
        """Publish and sweep as a driver that takes over; something happens on the way."""
        sink = self.driver()
        if at is not None:
            arm(at[0], then, at[1])
        try:
            sink.commit(self.outputs, maybe_repeated=True)
            sink.sweep([])
        except Killed:
            pass
        finally:
            disarm()

    def seen(self) -> list[tuple[str, int]]:
        """All that there ever was to be read, each time it was."""
        self.take_away()
        files = [str(path) for path in self.taken.rglob("*.parquet")]
        return sorted((r["word"], r["n"]) for r in ds.dataset(files).to_table().to_pylist())


@pytest.fixture(params=[None, "epoch"], ids=["files", "folders"])
def places(
    request: pytest.FixtureRequest, tmp_path: Path, make_context: MakeContext, stage: Stage
) -> Iterator[Place]:
    folders = (tmp_path / str(n) for n in itertools.count())
    return (Place(folder, request.param, make_context, stage) for folder in folders)


@pytest.mark.parametrize("at", PASSAGES)
def test_an_epoch_appears_once_whoever_dies_and_whatever_is_taken_away(
    places: Iterator[Place], at: Passage
) -> None:
    place = next(places)
    place.start(at, place.take_away_and_kill)
    place.start(None, place.take_away)
    assert place.seen() == EXPECTED


@pytest.mark.slow
@pytest.mark.parametrize("places", [None], indirect=True)
@pytest.mark.parametrize("first", PASSAGES)
def test_the_successor_may_die_too(places: Iterator[Place], first: Passage) -> None:
    for second in Conformance.failpoints:
        place = next(places)
        place.start(first, place.take_away_and_kill)
        place.start((second, 1), place.take_away_and_kill)
        place.start(None, place.take_away)
        assert place.seen() == EXPECTED, second


@pytest.mark.parametrize("at", PASSAGES)
def test_a_successor_may_publish_and_sweep_while_a_driver_is_paused(
    places: Iterator[Place], at: Passage
) -> None:
    """And readers be done with it all before the paused one wakes up."""
    place = next(places)

    def overtake() -> None:
        disarm()
        place.start(None, place.take_away)
        place.take_away()

    place.start(at, overtake)
    assert place.seen() == EXPECTED


@pytest.fixture
def _short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_publish, "_EPOCHS_REMEMBERED", 4)


@pytest.mark.parametrize("places", [None], indirect=True)
@pytest.mark.usefixtures("_short_memory")
def test_many_epochs_at_once_are_all_remembered(places: Iterator[Place], stage: Stage) -> None:
    place = next(places)
    sink = place.driver()
    place.outputs = [stage(sink, e, 0, ("kelp", e)) for e in range(6)]
    for _ in range(2):
        place.start(None, place.take_away)
        place.take_away()
    assert place.seen() == [("kelp", e) for e in range(6)]


@pytest.mark.parametrize("places", [None], indirect=True)
@pytest.mark.usefixtures("_short_memory")
def test_epochs_of_the_entry_before_are_remembered(places: Iterator[Place], stage: Stage) -> None:
    """The newest entry may be damaged: then a start goes by the one before, which lists them as owed."""
    place = next(places)
    sink = place.driver()
    before, newest = (
        [stage(sink, e, 0, ("kelp", e)) for e in epochs] for epochs in (range(6), range(6, 12))
    )
    sink.commit(before, maybe_repeated=False)
    sink.commit(newest, maybe_repeated=False)
    place.driver().commit(before, maybe_repeated=True)
    place.take_away()
    assert place.seen() == [("kelp", e) for e in range(12)]


@pytest.mark.parametrize("places", [None], indirect=True)
@pytest.mark.usefixtures("_short_memory")
def test_old_epochs_are_forgotten_in_the_end(places: Iterator[Place], stage: Stage) -> None:
    """By age: numbers begin anew with a new checkpoint directory."""
    place = next(places)
    sink = place.driver()
    for epoch in (10, 11, 12, 13, 14, 0):
        place.outputs = [stage(sink, epoch, 0, ("kelp", epoch))]
        sink.commit(place.outputs, maybe_repeated=False)
    intents = [path.name for path in (place.out / "_holdfast" / "intents").iterdir()]
    assert {name.partition("-")[0] for name in intents} == {"12", "13", "14", "0"}
    place.take_away()
    place.start(None, place.take_away)
    assert place.seen() == [("kelp", epoch) for epoch in (0, 10, 11, 12, 13, 14)]


def test_what_was_published_just_now_is_remembered_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_context: MakeContext, stage: Stage
) -> None:
    monkeypatch.setattr(_publish, "_EPOCHS_REMEMBERED", 2)
    place = Place(tmp_path, None, make_context, stage)
    place.driver().commit(place.outputs, maybe_repeated=False)
    later = time.time() + 3600
    for intent in (place.out / "_holdfast" / "intents").iterdir():
        os.utime(intent, (later, later))  # the clock is set back then
    sink = place.driver()
    new = [stage(sink, EPOCHS, 0, ("new", EPOCHS))]
    sink.pre_commit(new)
    sink.commit(new, maybe_repeated=False)
    place.take_away()
    # Killed before another entry: the next driver is told to publish it again.
    place.driver().commit(new, maybe_repeated=True)
    assert [path.name for path in place.out.iterdir()] == ["_holdfast"]
