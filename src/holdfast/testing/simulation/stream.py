"""A stream of epochs as Spark makes it: offsets are written, the epoch runs, a commit is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from holdfast import runtime
from holdfast.driver.engine import EpochStream, StreamError, Ticker
from holdfast.testing.simulation.inputs import (
    Inputs,
    Ranges,
    SimulatedBatch,
    offsets_text,
    ranges_after,
)

__all__ = ["SimulatedStream", "SimulatedTicker"]

_LOOK_S = 0.5
_MOST_PIECES = 3


class SimulatedTicker(Ticker):
    """Moves once a second, or when told to."""

    def __init__(self, *, by_itself: bool) -> None:
        self.by_itself = by_itself
        self._began = runtime.monotonic()
        self._told = 0
        self._ended = False

    @property
    def ticks(self) -> int:
        """How often it has ticked."""
        if self._ended or not self.by_itself:
            return self._told
        return self._told + int(runtime.monotonic() - self._began)

    def tick(self) -> bool:
        """Once more."""
        self._told += 1
        return True

    def end(self) -> None:
        """By itself no more."""
        self._told, self._ended = self.ticks, True


class SimulatedStream(EpochStream):
    """Epochs of some inputs, on a folder with offsets and commits."""

    def __init__(
        self,
        inputs: Inputs,
        folder: Path,
        on_batch: Callable[[SimulatedBatch, int], None],
        draw: Random,
        *,
        ticker: SimulatedTicker | None,
        available_now: bool,
        every_s: float,
        when_stopped: Callable[[], None],
    ) -> None:
        self._inputs = inputs
        self._folder = folder
        self._on_batch = on_batch
        self._draw = draw
        self._ticker = ticker
        self._available_now = available_now
        self._every_s = every_s
        self._when_stopped = when_stopped
        self._stopping = False
        self._idle = 0
        """How often nothing was found to read."""
        self._read_all = False
        self._error: BaseException | None = None
        self._changed = runtime.condition()
        self._thread = runtime.thread(self._go, "stream")
        self._thread.start()

    @property
    def is_active(self) -> bool:
        """Whether its thread goes on, and isn't to end."""
        return self._thread.is_alive() and not self._stopping

    @property
    def has_read_all(self) -> bool:
        """Whether it ended by itself."""
        return self._read_all

    def stop(self) -> None:
        """End it: the job in hand is cancelled, what its thread does otherwise is waited for."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._when_stopped()
        self._thread.join()

    def process_all(self) -> None:
        """Wait until nothing is left to read."""
        with self._changed:
            before = self._idle
            self._changed.wait_for(
                lambda: self._idle > before + 1 or not self.is_active or self._error
            )
        if self._error is not None:
            raise StreamError(str(self._error)) from self._error

    def await_end(self) -> None:
        """Wait for its thread."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _go(self) -> None:
        try:
            self._epochs()
        except Exception as error:  # noqa: BLE001 - raised where somebody waits for the end
            self._error = error
        finally:
            with self._changed:
                self._changed.notify_all()

    def _epochs(self) -> None:
        numbers = [int(path.name) for path in (self._folder / "offsets").glob("*")]
        (self._folder / "metadata").write_text('{"id":"simulated"}')
        for name in ("offsets", "commits"):
            (self._folder / name).mkdir(exist_ok=True)
        number = max(numbers, default=-1)
        read, began = self._position(number)
        ticked = began
        until = tuple(self._inputs.available) if self._available_now else None
        while not self._stopping:
            ends = self._next(read, until)
            ticks = None
            if self._ticker is not None:
                ticks = ticked if self._available_now else began + self._ticker.ticks
            if ends == read and (ticks is None or ticks == ticked):
                if self._available_now:
                    self._read_all = True
                    return
                self._rest()
                continue
            number += 1
            self._write("offsets", number, offsets_text(ends, ticks))
            self._on_batch(SimulatedBatch(read, ends), number)
            self._write("commits", number, 'v1\n{"nextBatchWatermarkMs":0}')
            read, ticked = ends, ticks or 0
            runtime.sleep(self._every_s)

    def _position(self, number: int) -> tuple[Ranges, int]:
        count = self._inputs.count
        if number < 0:
            return (0,) * count, 0
        text = (self._folder / f"offsets/{number}").read_text()
        last = text.split("\n")[-1]
        ticks = 0 if self._ticker is None or last == "-" else int(last)
        return ranges_after(text, count), ticks

    def _next(self, read: Ranges, until: Ranges | None) -> Ranges:
        """How far the next epoch reads: some of what there is."""
        there = until or tuple(self._inputs.available)
        most = self._draw.randint(1, _MOST_PIECES)
        return tuple(max(had, min(end, had + most)) for had, end in zip(read, there, strict=True))

    def _rest(self) -> None:
        with self._changed:
            self._idle += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._stopping, _LOOK_S)

    def _write(self, name: str, number: int, text: str) -> None:
        (self._folder / name / str(number)).write_text(text)
