"""Following the hosts of a cluster: a thread that notices who comes and goes, and brings runs along."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast import runtime
from holdfast.driver.engine import HostGoneError
from holdfast.driver.recovery import Recovery
from holdfast.errors import HoldfastError, StateLostError

if TYPE_CHECKING:
    from holdfast.driver.cluster import ClusterSite
    from holdfast.driver.running import RunningPipeline

__all__ = ["FOLLOW_S", "FirstEpoch", "HostFollower"]

logger = logging.getLogger("holdfast.query")

_TIDY_S = 600.0
_RETRY_S = 1.0
_FIRST_S = 15.0
_SOON_S = 2.0
_SETTLING_S = 5.0
_HAND_OVER_S = 30.0
FOLLOW_S = 0.2
"""How often hosts are looked at between epochs."""


class FirstEpoch:
    """The first epoch after state was opened or moved to other hosts: others make way for it.

    >>> lock = runtime.lock()
    >>> first = FirstEpoch(lock)
    >>> with lock:
    ...     first.has_the_network, first.nobody_waits
    (True, False)
    >>> first.done()
    >>> first.has_the_network, first.nobody_waits
    (False, False)
    """

    def __init__(self, epoch_lock: runtime.Lock) -> None:
        self._epoch_lock = epoch_lock
        self.expect()

    def expect(self) -> None:
        """State was opened, or has moved."""
        self._since = runtime.monotonic()
        self._done: float | None = None

    def done(self) -> None:
        """An epoch was processed."""
        if self._done is None:
            self._done = runtime.monotonic()

    @property
    def has_the_network(self) -> bool:
        """Whether fetching waits for it: it reads what it needs on demand.

        It is waited for a moment before it begins: input may have come that nobody has seen yet.
        """
        waited_s = runtime.monotonic() - self._since
        return self._done is None and waited_s < (
            _FIRST_S if self._epoch_lock.locked() else _SOON_S
        )

    @property
    def nobody_waits(self) -> bool:
        """Whether nobody waits for it any more, or for its checkpoint."""
        if self._done is None:
            return not self._epoch_lock.locked()
        return runtime.monotonic() > self._done + _SETTLING_S


class HostFollower:
    """What the thread of a running pipeline does that follows its hosts."""

    def __init__(self, running: RunningPipeline) -> None:
        self._running = running
        self._tidied = runtime.monotonic()
        self._writing: frozenset[int] | None = None
        """Who was writing when hosts were last tidied, or would have been."""

    def follow(self) -> None:
        """Notice hosts that come and go, and bring runs to those that need them, beside epochs."""
        running = self._running
        pause_s, met_gone = FOLLOW_S, False
        while not running.done.wait(pause_s):
            pause_s, met_before, met_gone = FOLLOW_S, met_gone, False
            if running.goes_back or running.stream is None:
                continue
            parts = running.parts
            try:
                with running.renewing.shared():
                    parts, cluster = running.parts, running.hosts
                    if self._look(cluster) and self._once(cluster):
                        pause_s = 0.0
                if running.ending:
                    continue
                if cluster.moving and not cluster.missing(running.ledger.version):
                    self._hand_over(cluster)
            except StateLostError as error:
                running.lose_and_end(error, parts)
            except HostGoneError as error:
                logger.info("hosts are looked at again: %s", error)
                # At once, for a look tells who is gone. But if it doesn't, the next one won't either.
                pause_s, met_gone = (FOLLOW_S if met_before else 0.0), True
            except Exception as error:  # noqa: BLE001 - epochs can do without, and it is tried again
                logger.warning("hosts could not be followed, will be tried again: %s", error)
                running.done.wait(_RETRY_S)

    def _look(self, cluster: ClusterSite) -> bool:
        """Look who is alive; whether there will be further epochs to do more for.

        Also while the pipeline stops, or ends because it has failed: its last epoch and its last
        checkpoint may need a host that goes.
        """
        running = self._running
        try:
            moved = cluster.follow(running.ledger)
        except HoldfastError as error:
            if running.ending and not isinstance(error, HostGoneError):
                # Nobody is left who could do it, and the end waits for it.
                self._end_jobs()
            raise
        if moved:
            # Jobs under way have tasks for the host that is gone. While other hosts of the same job
            # live, Spark keeps them waiting for it, as long as spark.locality.wait.node says.
            self._end_jobs()
        elif cluster.outdated:
            # It was being planned when the host went: its job may have begun only now.
            self._end_epoch()
        return not running.ending

    def _end_jobs(self) -> None:
        self._end_epoch()
        self._running.parts.jobs.cancel()

    def _end_epoch(self) -> None:
        running = self._running
        if not running.epoch_lock.locked():
            # Between epochs a job of this group is Spark's own, which looks for input on any host: the
            # query would fail with it.
            return
        running.parts.engine.cancel_epoch(running.started)

    def _once(self, cluster: ClusterSite) -> bool:
        """Do for the hosts what is to be done; whether there is more to fetch."""
        running = self._running
        version = running.ledger.version
        noticed = runtime.monotonic()
        if noticed > self._tidied + _TIDY_S:
            self._tidied = noticed
            self._tidy(cluster)
        if cluster.take_moved():
            running.first.expect()
            running.recoveries.append(Recovery("partitions have moved", version.epoch, noticed))
            running.recoveries[-1].step("open")
        if not cluster.wants_runs.is_set():
            return running.first.nobody_waits and cluster.decode_some(version)
        if cluster.reads_remotely and running.first.has_the_network:
            return False
        if cluster.fetch_missing(version):
            return True
        if cluster.missing(running.ledger.version):
            return True
        cluster.wants_runs.clear()
        if running.recoveries and "fetch" not in running.recoveries[-1].seconds:
            running.recoveries[-1].fetched()
            logger.info("every host has its runs: %s", running.recoveries[-1])
        return False

    def _tidy(self, cluster: ClusterSite) -> None:
        """Have hosts delete what nobody names, unless who may have written it is still at work.

        An epoch may last longer than files are left alone for, and names its runs only when it ends.
        """
        ledger = self._running.ledger
        before, self._writing = self._writing, ledger.writers()
        if before is not None and not before & self._writing:
            cluster.tidy(ledger.live_runs())

    def _hand_over(self, cluster: ClusterSite) -> None:
        """Between two epochs: store and copy what the last ones changed, then switch.

        Epochs wait meanwhile, and so does whoever stops the pipeline: if it takes long they go on, and
        it is tried again. An epoch in hand is not waited for: who else would notice that its host dies?
        """
        running = self._running
        until = runtime.monotonic() + _HAND_OVER_S
        if not running.epoch_lock.acquire(timeout=FOLLOW_S):
            return
        try:
            running.checkpoint(_HAND_OVER_S, unless_ending=True)
            while cluster.fetch_missing(running.ledger.version):
                if running.ending or runtime.monotonic() > until:
                    raise TimeoutError(f"handing over is not done after {_HAND_OVER_S} s")
            cluster.switch(running.ledger.version)
        finally:
            running.epoch_lock.release()
        logger.info("handed over: %s", "; ".join(cluster.explain()))
