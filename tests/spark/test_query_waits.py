"""What a query's user waits for, without Spark: it can't be steered there what comes meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.checkpoint.ledger import Ledger
from holdfast.driver.cluster import ClusterSite
from holdfast.errors import ConfigurationError, StorageError
from holdfast.spark.query import Query
from holdfast.state.version import Version
from tests.driver.running_support import LONG_S, Pipeline, StandInCluster
from tests.driver.site_support import Site


def test_a_step_that_timed_out_leaves_no_permission_behind() -> None:
    pipeline = Pipeline(every_epoch=False, manual=True, lost=False)
    parts: Any = pipeline.running.parts
    begin, has_input, begun = parts.engine.begin, threading.Event(), threading.Semaphore(0)

    def slow(scratch: Any, on_batch: Callable[[Any, int], None]) -> Any:
        def read(batch: Any, epoch: int) -> None:
            has_input.wait(LONG_S)
            begun.release()
            on_batch(batch, epoch)

        return begin(scratch, read)

    parts.engine.begin = slow
    waits_for_input: Any = pipeline.stream
    waits_for_input.processAllAvailable = pipeline.stream.waited_for.wait
    query = Query(parts, lambda: parts)
    with pytest.raises(TimeoutError, match=r"no epoch of 'p' ended within 0.01 s"):
        query.step(0.01)
    has_input.set()
    assert query.step(LONG_S)
    assert begun.acquire(timeout=LONG_S)
    assert begun.acquire(timeout=LONG_S)
    # The second epoch waits to be allowed; with a permission left over, a third would begin.
    assert not begun.acquire(timeout=0.2)
    with pytest.raises(StorageError, match="on a host that is gone"):
        query.stop()


def test_a_step_that_timed_out_may_still_end_which_is_not_that_of_the_next() -> None:
    pipeline = Pipeline(every_epoch=False, manual=True, lost=False)
    parts: Any = pipeline.running.parts
    goes_on, begun = threading.Event(), threading.Semaphore(0)

    def run(*_: Any) -> None:
        begun.release()
        goes_on.wait(LONG_S)

    parts.loop.run = run
    waits_for_input: Any = pipeline.stream
    waits_for_input.processAllAvailable = pipeline.stream.waited_for.wait
    query = Query(parts, lambda: parts)
    answers: list[bool] = []
    try:
        with pytest.raises(TimeoutError, match=r"no epoch of 'p' ended within 0.5 s"):
            query.step(0.5)
        assert begun.acquire(timeout=LONG_S)
        with pytest.raises(TimeoutError, match="the epoch under way of 'p' didn't end"):
            query.step(0.01)
        asks = threading.Thread(target=lambda: answers.append(query.step(LONG_S)), daemon=True)
        asks.start()
        goes_on.set()
        asks.join(LONG_S)
        assert answers == [True]
        assert begun.acquire(timeout=LONG_S), "an epoch of its own"
        assert not begun.acquire(timeout=0.2), "and no third"
        assert query._running.epochs_done == 2
    finally:
        goes_on.set()
        with pytest.raises(StorageError, match="on a host that is gone"):
            query.stop()


def drained(site: ClusterSite, version: Version, host: str) -> None:
    pipeline = Pipeline(every_epoch=False)
    pipeline.running.parts.cluster = site
    pipeline.running.ledger = cast("Any", SimpleNamespace(version=version))
    query = cast("Any", object.__new__(Query))
    query._running = pipeline.running
    query.drain(host)


def test_a_host_is_drained_though_the_pipeline_goes_back_meanwhile() -> None:
    pipeline = Pipeline(every_epoch=False)
    running = pipeline.running
    query = cast("Any", object.__new__(Query))
    query._running = running
    pipeline.cluster.health = SimpleNamespace(drain=lambda host: None)
    planned = threading.Event()
    pipeline.cluster.plan_moves = lambda version: planned.set()  # type: ignore[method-assign]
    draining = threading.Thread(target=query.drain, args=("h1",), daemon=True)
    draining.start()
    assert planned.wait(LONG_S)
    # New parts: what the old ones were about to move is nobody's any more.
    after = StandInCluster()
    after.must_move = False
    running.parts = cast(Any, SimpleNamespace(**{**vars(running.parts), "cluster": after}))
    draining.join(10)
    assert not draining.is_alive()


def test_the_last_host_is_not_said_to_be_drained() -> None:
    site, version = Site("h1"), Version(0)
    assert site.place(version, 2).hosts == ["h1", "h1"]
    with pytest.raises(ConfigurationError, match="h1 still has partitions: no other host"):
        drained(site, version, "h1")
    # Who has none is drained at once, for what comes later.
    drained(site, version, "h2")
    site.fleet.alive = frozenset({"h1", "h2"})
    site.has_looked()
    site.health.undrain("h2")
    assert site.follow(Ledger(version))
    drained(site, version, "h1")
