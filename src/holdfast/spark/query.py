"""A running pipeline, as its user sees it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import InheritableThread
from pyspark.sql import DataFrame

from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.entry import Checkpoint, EpochRecord
from holdfast.checkpoint.ledger import Ahead, Ledger
from holdfast.errors import (
    FencedError,
    HoldfastError,
    InputError,
    InternalError,
    ProcessingError,
    StateLostError,
)
from holdfast.failpoints import failpoint
from holdfast.spark.epoch import EpochLoop, EpochProgress
from holdfast.spark.options import Options
from holdfast.spark.recovering import Recovery
from holdfast.spark.scratch import ScratchReader

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.spark.cluster import ClusterSite

__all__ = ["Query", "QueryParts", "QueryStatus"]

logger = logging.getLogger("holdfast.query")

_KEEP_PROGRESS = 1000
_FENCE_CHECK_S = 1.0
_RETRY_S = 1.0
_LONG_S = 600.0
_FOLLOW_S = 0.2


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """How a pipeline is doing right now."""

    state: str
    """``running``, ``waiting`` (and ``message`` says for what), ``stopped`` or ``failed``."""
    message: str
    last_epoch: int
    last_checkpoint: int | None
    """The newest epoch that a log entry holds."""
    ahead: Ahead
    checkpoint_error: str | None
    """Why the last attempt at a checkpoint failed; it is tried again."""
    publish_error: str | None
    """Why a sink could not publish; it is tried again."""


@dataclass
class QueryParts:
    """What a query is put together from; :mod:`holdfast.spark.start` does that."""

    options: Options
    ledger: Ledger
    coordinator: Coordinator
    loop: EpochLoop
    scratch: ScratchReader
    compact: Callable[[], int]
    close: Callable[[], None]
    now_ms: Callable[[], int]
    ticks: bool
    """Whether the last source only keeps time: an epoch in which no other moved has no input."""
    begin: Callable[[Callable[[DataFrame, int], None]], StreamingQuery]
    """Starts Spark's query with a function for its batches."""
    cluster: ClusterSite | None
    """The hosts, if there are several."""


class Query:
    """A started pipeline.

    Epochs run on Spark's stream thread; one thread takes checkpoints, one watches whether another
    driver has taken over, and one waits for the end.
    """

    def __init__(self, parts: QueryParts, renew: Callable[[], QueryParts]) -> None:
        self._use(parts)
        self._renew = renew
        self._renewing = threading.RLock()
        """Held while parts are replaced, and by whoever must not see that happen."""
        self._lost: StateLostError | None = None
        self._recoveries: list[Recovery] = []
        self._epoch_began = time.monotonic()
        self._progress: deque[EpochProgress] = deque(maxlen=_KEEP_PROGRESS)
        self._failure: HoldfastError | None = None
        self._waiting: str | None = None
        self._stopping = threading.Event()
        self._done = threading.Event()
        self._epoch_lock = threading.Lock()
        self._wake = threading.Condition()
        self._asked = 0
        self._answered = 0
        self._steps = threading.Semaphore(0)
        self._epochs_done = 0
        self._spark_query: StreamingQuery | None = None

    def _use(self, parts: QueryParts) -> None:
        self._parts = parts
        self._options = parts.options
        self._ledger = parts.ledger
        self._coordinator = parts.coordinator

    # ---- what users call

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self._options.name

    @property
    def is_active(self) -> bool:
        """Whether the pipeline still runs."""
        return not self._done.is_set()

    @property
    def progress(self) -> list[EpochProgress]:
        """The last thousand epochs, oldest first."""
        last = self._last_checkpoint_epoch()
        return [replace(p, last_checkpoint=last) for p in list(self._progress)]

    @property
    def recoveries(self) -> list[Recovery]:
        """Each time the pipeline went back to its last checkpoint, oldest first."""
        return list(self._recoveries)

    @property
    def exception(self) -> HoldfastError | None:
        """Why the pipeline failed; None if it did not."""
        return self._failure

    @property
    def status(self) -> QueryStatus:
        """How the pipeline is doing."""
        waiting = self._waiting
        if self._failure is not None:
            state, message = "failed", str(self._failure)
        elif self._done.is_set():
            state, message = "stopped", ""
        elif waiting is not None:
            state, message = "waiting", waiting
        else:
            state, message = "running", ""
        failed, unpublished = self._coordinator.last_error, self._coordinator.publish_error
        return QueryStatus(
            state=state,
            message=message,
            last_epoch=self._ledger.version.epoch,
            last_checkpoint=self._last_checkpoint_epoch(),
            ahead=self._ledger.ahead(),
            checkpoint_error=str(failed) if failed else None,
            publish_error=str(unpublished) if unpublished else None,
        )

    def checkpoint(self, timeout: float | None = None) -> int | None:
        """Take a checkpoint now and wait for it; the epoch that the log holds then.

        Requests made while one is under way are answered together by the next.
        """
        with self._wake:
            self._asked += 1
            mine = self._asked
            self._wake.notify_all()
            self._wake.wait_for(lambda: self._answered >= mine or self._done.is_set(), timeout)
        self._raise_failure()
        if self._coordinator.last_error is not None:
            raise self._coordinator.last_error
        return self._last_checkpoint_epoch()

    def step(self, timeout: float = 60.0) -> bool:
        """With ``trigger="manual"``: run one epoch; False if there was no input for one."""
        before = self._epochs_done
        self._steps.release()
        # Spark knows when nothing is left: this ends at once if there is no input.
        idle = InheritableThread(target=self._started.processAllAvailable, daemon=True)
        idle.start()
        deadline = time.monotonic() + timeout
        while self._epochs_done == before and not self._done.is_set():
            idle.join(0.005)
            if not idle.is_alive() and self._epochs_done == before:
                self._steps.acquire(blocking=False)
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"no epoch of {self.name!r} ended within {timeout} s")
        self._raise_failure()
        return self._epochs_done > before

    def process_all_available(self) -> None:
        """Wait until all input that is there now is processed and published."""
        while True:
            query = self._started
            try:
                query.processAllAvailable()
            except Exception:
                # Spark's report of a failed query: ours says more, or the pipeline recovers.
                self._wait_past(query)
                self._raise_failure()
                if self._spark_query is query:
                    raise
                continue
            self.checkpoint()
            if self._spark_query is query and self._lost is None:
                return

    def _wait_past(self, query: StreamingQuery) -> None:
        """Wait until another query of Spark's runs instead of this one, or none ever will."""
        with self._wake:
            self._wake.wait_for(
                lambda: self._done.is_set() or self._spark_query is not query, _LONG_S
            )

    def drain(self, host: str) -> None:
        """Have a host's partitions run elsewhere from the next epoch on, so that it can be stopped.

        Returns when no partition needs the host any more.
        """
        cluster = self._parts.cluster
        if cluster is None:
            raise InputError("only a pipeline on a cluster has hosts to drain")
        cluster.health.drain(host)
        self._hand_over()

    def undrain(self, host: str) -> None:
        """Let a host have partitions again."""
        cluster = self._parts.cluster
        if cluster is None:
            raise InputError("only a pipeline on a cluster has hosts to drain")
        cluster.health.undrain(host)
        self._hand_over()

    def stop(self) -> None:
        """End the epoch in hand, take a last checkpoint, and stop."""
        self._stopping.set()
        self._steps.release()
        with self._wake:
            self._wake.notify_all()
        with self._epoch_lock:
            pass
        self._started.stop()
        self._done.wait()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the end; raises what the pipeline failed with. False if it still runs."""
        ended = self._done.wait(timeout)
        self._raise_failure()
        return ended

    # ---- threads

    def _start(self) -> None:
        self._spark_query = self._parts.begin(self._on_batch)
        targets = [self._take_checkpoints, self._watch_fence, self._wait_for_end]
        if self._parts.cluster is not None:
            targets.append(self._follow_hosts)
        self._threads = [
            InheritableThread(target=target, daemon=True, name=f"holdfast-{self.name}")
            for target in targets
        ]
        for thread in self._threads:
            thread.start()

    @property
    def _started(self) -> StreamingQuery:
        assert self._spark_query is not None
        return self._spark_query

    def _on_batch(self, batch: DataFrame, epoch: int) -> None:
        """Spark's call for each micro-batch."""
        idle = self._parts.ticks and self._parts.scratch.is_idle(epoch)
        if idle and self._skipped(epoch):
            return
        if self._options.manual:
            self._steps.acquire()
        self._wait_while_ahead()
        with self._epoch_lock:
            ending = self._ending
            try:
                if not ending:
                    self._run_epoch(batch, epoch)
            except StateLostError as error:
                self._lose(error)
                raise
            except HoldfastError as error:
                self._fail(error)
                raise
        if ending:
            # Not under the lock: stop() takes it to wait for the epoch in hand.
            self._sit_out()
            return
        self._epochs_done += 1

    @property
    def _ending(self) -> bool:
        """Whether no further epoch may begin: the pipeline stops, has failed, or goes back."""
        return self._stopping.is_set() or self._failure is not None or self._lost is not None

    def _skipped(self, epoch: int) -> bool:
        """Pass over an epoch without input, unless a timer is due or it is about to end."""
        with self._epoch_lock:
            if self._ending:
                return False
            record = self._record(epoch)
            if self._parts.loop.is_due(record):
                return False
            self._parts.loop.skip(record, self._parts.scratch.read(epoch))
            return True

    def _record(self, epoch: int) -> EpochRecord:
        offsets = self._parts.scratch.offsets(epoch)
        return self._parts.loop.time.begin(epoch, self._parts.now_ms(), offsets)

    def _run_epoch(self, batch: DataFrame, epoch: int) -> None:
        record = self._record(epoch)
        position = self._parts.scratch.read(epoch)
        self._epoch_began = time.monotonic()
        failpoint("epoch.start")
        progress = self._parts.loop.run(batch, record, position)
        failpoint("epoch.recorded")
        self._progress.append(progress)
        if self._recoveries:
            self._recoveries[-1].epoch_done(epoch)
        if self._options.every_epoch:
            self._until_durable(epoch)

    def _until_durable(self, epoch: int) -> None:
        """Wait for the entry that holds ``epoch``, however often the checkpoint must be retried."""
        while not self._done.is_set() and not self._holds(epoch):
            try:
                self.checkpoint()
            except FencedError:
                raise
            except HoldfastError as error:
                self._raise_failure()
                if self._stopping.is_set():
                    return
                self._waiting = f"epoch {epoch} is not in a checkpoint yet: {error}"
                self._stopping.wait(_RETRY_S)
        self._waiting = None

    def _sit_out(self) -> None:
        """Let Spark stop here: returning earlier would tell sources that the epoch is done."""
        while self._spark_query is None or self._spark_query.isActive:
            time.sleep(0.01)

    def _wait_while_ahead(self) -> None:
        """Hold the next epoch while processing is too far ahead of the log."""
        while not self._ending:
            why = self._too_far_ahead()
            if why is None:
                break
            if self._waiting is None:
                logger.warning("pipeline %s waits: %s", self.name, why)
            self._waiting = why
            with self._wake:
                if self._answered >= self._asked:
                    self._asked += 1
                self._wake.notify_all()
                self._wake.wait(_RETRY_S if self._coordinator.last_error else 0.05)
        self._waiting = None

    def _too_far_ahead(self) -> str | None:
        ahead = self._ledger.ahead()
        failed = self._coordinator.last_error
        because = f" (the last checkpoint failed: {failed})" if failed else ""
        if ahead.unsaved_bytes > self._options.max_ahead_bytes:
            return f"{ahead.unsaved_bytes} bytes are not in a checkpoint yet{because}"
        age = 0.0 if ahead.oldest_ms is None else (self._parts.now_ms() - ahead.oldest_ms) / 1000
        if age > self._options.max_ahead_s:
            return f"the oldest epoch without a checkpoint is {age:.0f} s old{because}"
        return None

    def _take_checkpoints(self) -> None:
        interval = self._options.checkpoint_interval_s
        due = time.monotonic() + (interval or 0.0)
        while not self._done.is_set():
            with self._wake:
                left = None if interval is None else max(0.0, due - time.monotonic())
                self._wake.wait_for(
                    lambda: self._asked > self._answered or self._done.is_set(), left
                )
                asked = self._asked
            if self._done.is_set():
                return
            self._checkpoint_once(asked)
            due = time.monotonic() + (interval or 0.0)

    def _checkpoint_once(self, asked: int) -> None:
        try:
            with self._renewing:
                entry = self._coordinator.checkpoint()
                self._check_reachable()
            with self._wake:
                self._answered = max(self._answered, asked)
                self._wake.notify_all()
            if entry is not None and not self._ending:
                with self._renewing:
                    self._parts.compact()
        except Exception as error:  # noqa: BLE001 - a thread that dies silently would stop checkpoints
            self._fail(error if isinstance(error, HoldfastError) else _unexpected(error))
            with self._wake:
                self._answered = max(self._answered, asked)
                self._wake.notify_all()
            self._started.stop()

    def _watch_fence(self) -> None:
        while not self._done.wait(_FENCE_CHECK_S):
            try:
                with self._renewing:
                    self._coordinator.log.check_not_fenced()
            except FencedError as error:
                self._fail(error)
                self._started.stop()
                return
            except (HoldfastError, OSError) as error:
                logger.warning("could not check whether another driver took over: %s", error)

    def _wait_for_end(self) -> None:
        self._wait_for_spark()
        while self._lost is not None and not self._stopping.is_set() and self._failure is None:
            try:
                self._recover(self._lost)
            except Exception as error:  # noqa: BLE001 - the pipeline ends with it
                self._fail(error if isinstance(error, HoldfastError) else self._explained(error))
                break
            self._wait_for_spark()
        try:
            if not isinstance(self._failure, FencedError):
                self._finish()
        finally:
            self._parts.close()
            self._done.set()
            with self._wake:
                self._wake.notify_all()

    def _wait_for_spark(self) -> None:
        try:
            self._started.awaitTermination()
        except Exception as error:  # noqa: BLE001 - whatever Spark raises becomes our failure
            if self._lost is None and (not self._stopping.is_set() or self._failure is not None):
                self._fail(self._explained(error))

    # ---- going back to the last checkpoint

    def _lose(self, error: StateLostError) -> None:
        """State is gone that no checkpoint holds: no epoch may begin before it is recovered."""
        if self._lost is None:
            self._lost = error
            recovery = Recovery(error.message, self._ledger.version.epoch, self._epoch_began)
            recovery.step("detect")
            self._recoveries.append(recovery)
            logger.warning("pipeline %s goes back to its last checkpoint: %s", self.name, error)

    def _check_reachable(self) -> None:
        """A checkpoint may be the first to notice that unsaved runs are gone."""
        cluster = self._parts.cluster
        if cluster is None or self._coordinator.last_error is None:
            return
        gone = cluster.lost(self._ledger.version)
        if gone is not None:
            self._lose(StateLostError(gone))
            self._started.stop()

    def _recover(self, lost: StateLostError) -> None:
        """Claim anew and continue after the last checkpoint, on the hosts that are left."""
        recovery = self._recoveries[-1]
        recovery.step("stop")
        with self._renewing:
            self._parts.close()
            self._use(self._renew())
            self._lost = None
            recovery.step("open")
            self._spark_query = self._parts.begin(self._on_batch)
        with self._wake:
            self._wake.notify_all()
        logger.info("pipeline %s has recovered: %s", self.name, recovery)
        del lost

    def _follow_hosts(self) -> None:
        """Notice hosts that come and go, and bring runs to those that need them, beside epochs."""
        while not self._done.wait(_FOLLOW_S):
            cluster = self._parts.cluster
            assert cluster is not None
            if self._ending or self._spark_query is None:
                continue
            try:
                with self._renewing:
                    self._follow_once(cluster)
            except StateLostError as error:
                self._lose(error)
                self._started.stop()
            except Exception as error:  # noqa: BLE001 - epochs can do without, and it is tried again
                logger.warning("hosts could not be followed, will be tried again: %s", error)
                self._done.wait(_RETRY_S)

    def _follow_once(self, cluster: ClusterSite) -> None:
        noticed = time.monotonic()
        if cluster.follow(self._ledger.version):
            epoch = self._ledger.version.epoch
            self._recoveries.append(Recovery("partitions have moved", epoch, noticed))
            self._recoveries[-1].step("open")
        if not cluster.wants_runs.is_set():
            return
        if not cluster.fetch_missing(self._ledger.version):
            if cluster.missing(self._ledger.version):
                return
            cluster.wants_runs.clear()
            if self._recoveries and "fetch" not in self._recoveries[-1].seconds:
                self._recoveries[-1].fetched()
                logger.info("every host has its runs: %s", self._recoveries[-1])

    def _hand_over(self) -> None:
        """Between two epochs: put all state into a checkpoint, then plan anew."""
        cluster = self._parts.cluster
        assert cluster is not None
        with self._epoch_lock:
            self.checkpoint()
            cluster.replan()

    def _finish(self) -> None:
        """A last checkpoint: all that was processed is published."""
        try:
            self._coordinator.checkpoint()
        except HoldfastError as error:
            self._fail(error)
        if self._failure is None and self._coordinator.last_error is not None:
            self._fail(self._coordinator.last_error)
        if self._failure is None and self._coordinator.publish_error is not None:
            self._fail(self._coordinator.publish_error)

    def _fail(self, error: HoldfastError) -> None:
        if self._failure is None:
            self._failure = self._fenced_instead(error)
            error = self._failure
            logger.error("pipeline %s failed: %s", self.name, error)

    def _fenced_instead(self, error: HoldfastError) -> HoldfastError:
        """A driver that was fenced meets all sorts of errors: what matters is that it was fenced."""
        try:
            self._coordinator.log.check_not_fenced()
        except FencedError as fenced:
            return fenced
        except (HoldfastError, OSError) as unknown:
            logger.warning("could not check whether another driver took over: %s", unknown)
        return error

    def _explained(self, error: Exception) -> HoldfastError:
        epoch = self._ledger.version.epoch
        lines = [line for line in str(error).strip().splitlines() if line.strip()]
        failed = ProcessingError(
            f"pipeline {self.name!r} failed after epoch {epoch}: {_cause(lines)}",
            hint="mend the cause and start it again: it continues after the last checkpoint",
        )
        failed.__cause__ = error
        return failed

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _holds(self, epoch: int) -> bool:
        last = self._last_checkpoint_epoch()
        return last is not None and last >= epoch

    def _last_checkpoint_epoch(self) -> int | None:
        last: Checkpoint | None = self._coordinator.last
        return None if last is None else last.epoch


def _unexpected(error: Exception) -> InternalError:
    wrapped = InternalError(f"a checkpoint ended in {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def _cause(lines: list[str]) -> str:
    """The line of Spark's report that names the error: the last of a Python traceback, if any."""
    for index, line in enumerate(lines):
        if line.startswith("holdfast.errors."):
            return _own_words(lines[index:])
    for index, line in enumerate(lines):
        if "Traceback (most recent call last)" in line:
            ends = (rest for rest in lines[index + 1 :] if not rest.startswith((" ", "\t")))
            # Spark's own error for one in a worker only says that another follows.
            if (end := next(ends, "")) and not end.endswith("from the Python worker:"):
                return end.strip()
    return lines[0].strip() if lines else "unknown"


def _own_words(lines: list[str]) -> str:
    """An error of Holdfast's own in full, with the traceback of user code that it may quote."""
    end = 1
    while end < len(lines) and not lines[end].startswith((" SQLSTATE", "===", "JVM stacktrace")):
        end += 1
    text = "\n".join(lines[:end]).partition(": ")[2]
    return text.partition(". What to do: ")[0].rstrip()
