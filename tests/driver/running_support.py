"""A running pipeline without Spark: when its hosts die, and what its threads wait for then, can't be steered there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from holdfast import runtime
from holdfast.checkpoint.ledger import Ahead
from holdfast.driver.engine import EpochStream
from holdfast.driver.parts import QueryParts
from holdfast.driver.running import RunningPipeline
from holdfast.driver.scratch import ScratchReader
from holdfast.errors import HoldfastError, ProcessingError, StorageError

LONG_S = 60.0


class StandInStream:
    """As Spark's: stop() waits for the thread of the batches, and so does await_end()."""

    has_read_all = False

    def __init__(self) -> None:
        self.is_active = True
        self.waited_for = threading.Event()
        self.error: Exception | None = None

    def run(self, on_batch: Callable[[Any, int], None]) -> StandInStream:
        self.thread = threading.Thread(target=self._batch, args=(on_batch,), daemon=True)
        self.thread.start()
        return self

    def _batch(self, on_batch: Callable[[Any, int], None]) -> None:
        epoch = 0
        while self.is_active and not self.waited_for.wait(0.001):
            try:
                on_batch(None, epoch)
            except Exception as error:
                self.error, self.is_active = error, False
            epoch += 1

    def stop(self) -> None:
        self.is_active = False
        self.waited_for.set()
        self.thread.join(LONG_S)
        assert not self.thread.is_alive(), "the thread of the batches waits for ever"

    def process_all(self) -> None:
        """There is always more, until it ends."""
        self.waited_for.wait()

    def await_end(self) -> None:
        self.thread.join(LONG_S)
        if self.error is not None:
            raise self.error


class StandInEngine:
    """Has a stream, and threads. Epochs and checkpoints are stood in for by others."""

    host = "driver"
    ticks = None

    def __init__(self, stream: StandInStream) -> None:
        self.stream = stream
        self.cancelled: list[EpochStream] = []
        """Streams whose epoch was to end."""

    def begin(self, scratch: ScratchReader, on_batch: Callable[[Any, int], None]) -> EpochStream:
        return self.stream.run(on_batch)

    def cancel_epoch(self, stream: EpochStream) -> None:
        self.cancelled.append(stream)

    def sources_ended(self) -> bool | None:
        return None

    def thread(self, target: Callable[[], object], name: str) -> runtime.Thread:
        return runtime.thread(target, name)

    def was_cancelled(self, error: BaseException) -> bool:
        return False

    def failure_of(self, error: BaseException, pipeline: str, epoch: int) -> ProcessingError:
        return ProcessingError(f"pipeline {pipeline!r} failed after epoch {epoch}: {error}")


class StandInCluster:
    """A cluster that has lost the host with the newest runs."""

    def __init__(self) -> None:
        self.moving = self.must_move = True
        self.wants_runs = threading.Event()
        self.switched = False
        self.outdated = False
        self.health: Any = None

    def lost(self, version: Any) -> str:
        return "1 runs that no checkpoint holds were on h2"

    def give_up(self) -> None:
        pass

    def follow(self, version: Any) -> bool:
        return False

    def take_moved(self) -> bool:
        return False

    def decode_some(self, version: Any) -> bool:
        return False

    def missing(self, version: Any) -> bool:
        return False

    def fetch_missing(self, version: Any) -> bool:
        return False

    def plan_moves(self, version: Any) -> None:
        pass

    def stays_on(self, host: str) -> bool:
        return False

    def switch(self, version: Any) -> None:
        self.switched = True


class FailingCoordinator:
    """Every checkpoint fails."""

    last = None
    publish_error = None
    log = SimpleNamespace(check_not_fenced=lambda: None)

    def __init__(self) -> None:
        self.last_error: HoldfastError | None = None
        self.tries = threading.Semaphore(0)

    def checkpoint(self) -> None:
        self.last_error = StorageError("a run is on a host that is gone")
        self.tries.release()

    def end(self) -> None:
        pass


class Pipeline:
    """A running pipeline whose epochs do nothing and whose checkpoints fail."""

    def __init__(self, *, every_epoch: bool, manual: bool = False, lost: bool = True) -> None:
        self.stream, self.cluster = StandInStream(), StandInCluster()
        self.engine = StandInEngine(self.stream)
        self.coordinator = FailingCoordinator()
        self.recovered = threading.Event()
        parts: Any = SimpleNamespace(
            options=SimpleNamespace(
                name="p",
                manual=manual,
                available_now=False,
                every_epoch=every_epoch,
                checkpoint_interval_s=None,
                max_ahead_bytes=1 << 40,
                max_ahead_s=1e9,
            ),
            ledger=SimpleNamespace(
                version=SimpleNamespace(epoch=0), ahead=lambda: Ahead(0, 0, None)
            ),
            coordinator=self.coordinator,
            loop=SimpleNamespace(
                run=lambda *_: None, time=SimpleNamespace(begin=lambda *_: None, at_end=False)
            ),
            scratch=SimpleNamespace(read=lambda _: {}, offsets=lambda _: ""),
            jobs=SimpleNamespace(cancel=lambda: None),
            close=lambda: None,
            now_ms=lambda: 0,
            engine=self.engine,
            cluster=self.cluster if lost else None,
            input_end=SimpleNamespace(may_be_said=False, is_said=False),
        )
        self.running = RunningPipeline(parts, self._renew)

    def _renew(self) -> QueryParts:
        self.recovered.set()
        self.running.stopping.set()
        raise RuntimeError("recovery has begun, which is all that is asked here")
