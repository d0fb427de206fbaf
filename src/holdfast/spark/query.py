"""A running pipeline, as its user sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast import runtime
from holdfast.checkpoint.ledger import Ahead
from holdfast.choices import QueryState
from holdfast.driver.engine import EpochStream, StreamError
from holdfast.driver.host_follower import FOLLOW_S
from holdfast.driver.parts import QueryParts
from holdfast.driver.progress import EpochProgress
from holdfast.driver.recovery import Recovery
from holdfast.driver.running import RunningPipeline
from holdfast.durations import Duration, parse_timeout
from holdfast.errors import ConfigurationError, HoldfastError, InputError, TimedOutError
from holdfast.spark.engine import SparkEngine, SparkStream
from holdfast.spark.jvm.capabilities import slower
from holdfast.spark.says_how import QUERY, SaysHow

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Query", "QueryStatus"]


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """How a pipeline is doing right now: what ``query.status`` is.

    >>> import holdfast as hf
    >>> def healthy(query: hf.Query) -> bool:
    ...     status: hf.QueryStatus = query.status
    ...     return status.state == "running" and not (status.checkpoint_error or status.publish_error)
    """

    state: QueryState
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
    slower: tuple[str, ...] = ()
    """What this Spark has no fast way for: which, why, and what is done instead."""


@dataclass(frozen=True, slots=True)
class _Deadline:
    """Until when somebody waits; None is for ever."""

    timeout_s: float | None
    at: float | None

    @classmethod
    def of(cls, timeout: Duration | None) -> _Deadline:
        timeout_s = parse_timeout(timeout)
        return cls(timeout_s, None if timeout_s is None else runtime.monotonic() + timeout_s)

    @property
    def left_s(self) -> float | None:
        return None if self.at is None else max(0.0, self.at - runtime.monotonic())

    def passed(self, what: str) -> TimedOutError:
        """The error that says that ``what`` was waited for in vain."""
        return TimedOutError(
            f"{what} within {self.timeout_s:g} s",
            hint="wait longer with timeout=; query.status says what the pipeline waits for",
        )


class Query(SaysHow):
    """A started pipeline: what ``start`` returns.

    Whatever waits takes a ``timeout``: ``"10 s"``, a number of seconds or a ``timedelta``; None waits for
    ever. When it is over ``TimedOutError``, a ``TimeoutError``, says what did not come; only
    ``await_termination`` answers False instead. ``stop()`` has none: it ends the epoch in hand.

    >>> import holdfast as hf
    >>> source = hf.testing.EpochSource(spark, "word string, n long")
    >>> counts = hf.stream(source.df).key_by("word").aggregate(n=hf.sum("n"))
    >>> sink = hf.sinks.memory("seen")
    >>> query = counts.write_to(sink).start("counts", checkpoint_dir="ck", trigger="0.1 s")
    >>> query.name, query.is_active, query.status.state
    ('counts', True, 'running')
    >>> source.add([("kelp", 1), ("rock", 2), ("kelp", 3)])
    0
    >>> query.process_all_available(timeout="1 minute")
    >>> sorted(row["n"] for row in sink.rows())
    [2, 4]
    >>> query.progress[-1].rows, query.checkpoint(timeout="1 minute"), query.recoveries
    (3, 0, [])
    >>> query.await_termination(timeout=0)
    False
    >>> query.stop()
    >>> query.is_active, query.exception
    (False, None)
    """

    _how = QUERY

    def __init__(self, parts: QueryParts, renew: Callable[[], QueryParts]) -> None:
        self._running = RunningPipeline(parts, renew)
        self._running.start()

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self._running.options.name

    @property
    def is_active(self) -> bool:
        """Whether the pipeline still runs."""
        return not self._running.done.is_set()

    @property
    def progress(self) -> list[EpochProgress]:
        """The last thousand epochs, oldest first."""
        last = self._running.last_checkpoint_epoch()
        return [replace(p, last_checkpoint=last) for p in list(self._running.progress)]

    @property
    def recoveries(self) -> list[Recovery]:
        """Each time the pipeline went back to its last checkpoint, oldest first."""
        return list(self._running.recoveries)

    @property
    def spark_query(self) -> StreamingQuery:
        """Spark's own query that feeds this pipeline now; another one after a recovery."""
        stream = self._running.started
        assert isinstance(stream, SparkStream)
        return stream.query

    @property
    def exception(self) -> HoldfastError | None:
        """Why the pipeline failed; None if it did not."""
        return self._running.failure

    @property
    def status(self) -> QueryStatus:
        """How the pipeline is doing."""
        waiting = self._running.waiting
        state: QueryState
        if self._running.failure is not None:
            state, message = "failed", str(self._running.failure)
        elif self._running.done.is_set():
            state, message = "stopped", ""
        elif waiting is not None:
            state, message = "waiting", waiting
        else:
            state, message = "running", ""
        coordinator, engine = self._running.coordinator, self._running.parts.engine
        failed, unpublished = coordinator.last_error, coordinator.publish_error
        return QueryStatus(
            state=state,
            message=message,
            last_epoch=self._running.ledger.version.epoch,
            last_checkpoint=self._running.last_checkpoint_epoch(),
            ahead=self._running.ledger.ahead(),
            checkpoint_error=str(failed) if failed else None,
            publish_error=str(unpublished) if unpublished else None,
            slower=slower(engine.spark.sparkContext) if isinstance(engine, SparkEngine) else (),
        )

    def checkpoint(self, timeout: Duration | None = None) -> int | None:
        """Take a checkpoint now and wait for it; the epoch that the log holds then.

        None if there was no epoch yet. If the checkpoint fails, its error is raised; processing goes
        on, and it is tried again. ``TimedOutError`` if it was not complete within ``timeout`` (None: for
        as long as it takes); it is taken all the same. Requests made while one is under way are
        answered together by the next.
        """
        self._check_outside("checkpoint")
        return self._running.checkpoint(parse_timeout(timeout))

    def step(self, timeout: Duration | None = "1 minute") -> bool:
        """With ``trigger="manual"``: run one epoch; False if there is nothing for one to do.

        If no input is there but something is due, such as a window that closes, a tick brings the epoch.
        """
        self._check_outside("step")
        return self._step(_Deadline.of(timeout))

    def _step(self, deadline: _Deadline) -> bool:
        # That of a step that timed out may still be under way: it is nobody else's.
        done = self._running.done
        if (
            not self._running.requests.await_no_step(done.is_set, deadline.left_s)
            and not done.is_set()
        ):
            raise deadline.passed(f"the epoch under way of {self.name!r} didn't end")
        before, stream, ticked = self._running.epochs_done, self._running.started, False
        self._running.requests.allow_step()
        # Spark knows when nothing is left: this ends at once if there is no input.
        idle = self._running.parts.engine.thread(self._until_idle, "holdfast-idle")
        idle.start()
        while (
            self._running.epochs_done == before
            and not self._running.done.is_set()
            and self._running.started is stream
        ):
            idle.join(0.005)
            if not idle.is_alive() and self._running.epochs_done == before:
                due = stream.is_active and self._awaits_tick()
                if not due and not self._awaits_end():
                    self._running.requests.take_step_back()
                    break
                ticks = self._running.parts.engine.ticks
                if due and not ticked and ticks is not None:
                    # One will do: more would bring epochs that nobody asked for.
                    ticked = ticks.tick()
                runtime.sleep(0.02)
            if deadline.left_s == 0:
                # Nobody waits for it any more; one that has begun has used it up.
                self._running.requests.take_step_back()
                raise deadline.passed(f"no epoch of {self.name!r} ended")
        if self._running.epochs_done == before and not stream.is_active:
            # Why it ended is known a moment later.
            self._running.wait_past(stream)
            self._running.raise_failure()
            if self._running.started is not stream and not self._running.done.is_set():
                # State was lost on the way: the query behind it has the input that is left.
                return self._step(deadline)
        self._running.raise_failure()
        return self._running.epochs_done > before

    def _awaits_tick(self) -> bool:
        parts = self._running.parts
        return parts.engine.ticks is not None and parts.loop.awaits_tick(parts.now_ms())

    def _awaits_end(self) -> bool:
        """Whether sources have ended, and last epochs may follow."""
        end = self._running.parts.input_end
        return end.may_be_said and end.is_said and not self._running.done.is_set()

    def _until_idle(self) -> None:
        try:
            self._running.started.process_all()
        except StreamError:
            # Why the query ended is known where it ended, and raised from there.
            return

    def process_all_available(self, timeout: Duration | None = None) -> None:
        """Wait until all input that is there now is processed and published.

        If input ends with that, until all has come out that waited for its end. Raises what a sink that
        could not publish it said; what it is owed is in the checkpoint, and is published with the next
        one.
        """
        self._check_outside("process_all_available")
        deadline = _Deadline.of(timeout)
        while not self._input_ends():
            stream = self._running.started
            try:
                self._process_all(stream, deadline)
                self.checkpoint(deadline.left_s)
            except TimedOutError:
                raise
            except Exception:
                if self._input_ends():
                    break
                # Spark's report of a failed query: ours says more, or the pipeline recovers.
                if stream.is_active and self._running.lost is None:
                    raise
                self._running.wait_past(stream)
                self._running.raise_failure()
                if self._running.stream is stream:
                    raise
                continue
            if self._running.stream is stream and self._running.lost is None:
                if self._input_ends():
                    break
                if self._running.coordinator.publish_error is not None:
                    raise self._running.coordinator.publish_error
                return
        if not self.await_termination(deadline.left_s):
            raise deadline.passed(f"{self.name!r} didn't end")

    def _process_all(self, stream: EpochStream, deadline: _Deadline) -> None:
        """Wait until Spark has processed what is there; Spark itself would wait for ever."""
        if deadline.left_s is None:
            stream.process_all()
            return
        failed: list[Exception] = []

        def process() -> None:
            try:
                stream.process_all()
            except Exception as error:  # noqa: BLE001 - raised below, by who waits
                failed.append(error)

        thread = self._running.parts.engine.thread(process, "holdfast-process")
        thread.start()
        thread.join(deadline.left_s)
        if thread.is_alive():
            raise deadline.passed(f"input of {self.name!r} that was there wasn't all processed")
        if failed:
            raise failed[0]

    def _input_ends(self) -> bool:
        """Whether the pipeline ends by itself with the input that is there now."""
        options, end = self._running.options, self._running.parts.input_end
        if options.available_now:
            return True
        # By hand its last epochs are steps like others.
        return not options.manual and end.may_be_said and end.is_said

    def drain(self, host: str, timeout: Duration | None = None) -> None:
        """Have a host's partitions run elsewhere, so that it can be stopped; waits until they do.

        Their state is copied ahead while epochs go on; only what the last epochs changed is copied
        between two epochs. ``ConfigurationError`` if there is no other host that could have them.
        """
        self._check_outside("drain")
        cluster = self._running.hosts
        cluster.health.drain(host)
        cluster.plan_moves(self._running.ledger.version)
        deadline = _Deadline.of(timeout)
        # Asked anew: after a recovery there is another one, which placed its partitions elsewhere at once.
        while self._running.hosts.must_move and not self._running.done.wait(FOLLOW_S):
            if deadline.left_s == 0:
                raise deadline.passed(f"{host} still has partitions: it wasn't empty")
        self._running.raise_failure()
        if not self._running.done.is_set() and self._running.hosts.stays_on(host):
            raise ConfigurationError(
                f"{host} still has partitions: no other host is left that could have them",
                hint=f"start another host, which gets them, and drain {host} again; or undrain it",
            )

    def undrain(self, host: str) -> None:
        """Let a host have partitions again."""
        self._running.hosts.health.undrain(host)
        self._running.hosts.plan_moves(self._running.ledger.version)

    def stop(self) -> None:
        """End the epoch in hand, take a last checkpoint, publish, and stop.

        Raises what went wrong in doing so: what was processed is then not in a checkpoint, or not
        published, and the next start does that, or processes it again.
        """
        self._check_outside("stop")
        self._running.stop()

    def await_termination(self, timeout: Duration | None = None) -> bool:
        """Wait for the end; raises what the pipeline failed with.

        False if it still runs after ``timeout``: that is an answer, as in PySpark, and no error.
        """
        self._check_outside("await_termination")
        ended = self._running.done.wait(parse_timeout(timeout))
        self._running.raise_failure()
        return ended

    def _check_outside(self, name: str) -> None:
        """Refuse what waits for the thread that it is called from."""
        if self._running.owns(runtime.current_thread()):
            raise InputError(
                f"{name}() of {self.name!r} was called by a sink or a callback of its own, and would wait "
                "for that to return",
                hint="call it from another thread: a callback can set a threading.Event that your program "
                "waits for",
            )
