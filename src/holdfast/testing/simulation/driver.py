"""A simulated driver: a process that starts a pipeline, and does with it what a user does."""

from __future__ import annotations

from pathlib import Path

from holdfast import runtime
from holdfast.driver.options import Options
from holdfast.driver.running import RunningPipeline
from holdfast.driver.start import Start
from holdfast.errors import FencedError, HoldfastError, InternalError
from holdfast.testing.simulation.engine import SimulatedJobError
from holdfast.testing.simulation.errors import WorldError
from holdfast.testing.simulation.platform import SimulatedPlatform
from holdfast.testing.simulation.processes import Process
from holdfast.testing.simulation.promises import Asked, stopped_in_vain

__all__ = ["SimulatedDriver"]


class SimulatedDriver:
    """One life of a driver's process."""

    def __init__(
        self,
        process: Process,
        platform: SimulatedPlatform,
        options: Options,
        host: Path,
        *,
        alone: bool,
    ) -> None:
        self.process = process
        self.host = host
        """Its disk."""
        self.alone = alone
        """Whether those before had ended when it began."""
        self.options = options
        self.running: RunningPipeline | None = None
        self.failure: HoldfastError | None = None
        self.over = False
        """Whether it has ended, by itself or because it failed."""
        self.wrong: str | None = None
        """What a user was told that isn't so."""
        self._platform = platform
        process.spawn(self._main, "main")

    @property
    def alive(self) -> bool:
        """Whether it does something, or might."""
        return self.process.alive and not self.over

    @property
    def fenced(self) -> bool:
        """Whether another driver has taken over from it, and it has noticed."""
        return isinstance(self.failure, FencedError)

    def stop(self) -> None:
        """Have it stop, as a user does."""
        if self.running is not None and self.alive:
            self.process.spawn(self._stop, "user")

    def checkpoint(self, timeout_s: float = 60.0) -> None:
        """Have it take a checkpoint, and wait so long for it."""
        if self.running is not None and self.alive:
            self.process.spawn(lambda: self._checkpoint(timeout_s), "user")

    def drain(self, host: str, stays_s: float) -> None:
        """Have a host drained, and used again after a while."""
        if self.running is not None and self.alive:
            self.process.spawn(lambda: self._drain(host, stays_s), "user")

    def _main(self) -> None:
        try:
            start = Start(self._platform, self.options)
            start.check()
            running = RunningPipeline(start.begin(), start.begin)
            running.start()
        except (HoldfastError, OSError) as error:
            self._ended(error)
            return
        self.running = running
        running.done.wait()
        self._ended(running.failure)

    def _ended(self, failure: Exception | None) -> None:
        if isinstance(failure, HoldfastError):
            self.failure = failure
        self.process.world.tell(f"the driver has ended: {failure or 'well'}")
        self.over = True

    def _stop(self) -> None:
        assert self.running is not None
        try:
            self.running.stop()
            self.wrong = stopped_in_vain(self.running) or self.wrong
        except (HoldfastError, OSError) as error:
            self.process.world.tell(f"stop() raises {error}")

    def _checkpoint(self, timeout_s: float) -> None:
        assert self.running is not None
        asked = Asked(self.running)
        try:
            self.wrong = asked.in_vain(self.running.checkpoint(timeout_s)) or self.wrong
        except (HoldfastError, OSError, TimeoutError) as error:
            self.process.world.tell(f"checkpoint() raises {error}")

    def _drain(self, host: str, stays_s: float) -> None:
        assert self.running is not None
        health = self.running.hosts.health
        health.drain(host)
        try:
            self.running.hosts.plan_moves(self.running.ledger.version)
            runtime.sleep(stays_s)
            health.undrain(host)
            self.running.hosts.plan_moves(self.running.ledger.version)
        except (HoldfastError, OSError) as error:
            health.undrain(host)
            self.process.world.tell(f"draining {host} raises {error}")

    def check(self) -> None:
        """Raise unless it has ended in a way that a driver may."""
        if self.wrong is not None:
            raise WorldError(f"{self.process.label}: {self.wrong}")
        failure: BaseException | None = self.failure
        while failure is not None:
            foreseen = isinstance(
                failure, (HoldfastError, OSError, TimeoutError, SimulatedJobError)
            )
            foreseen |= str(failure).endswith("(simulated)")
            # The one thing that must not happen and does here.
            unheard = "did not report" in str(failure)
            if (isinstance(failure, InternalError) and not unheard) or not foreseen:
                raise WorldError(
                    f"{self.process.label} ended in what nobody foresaw: "
                    f"{type(failure).__name__}: {failure}"
                ) from failure
            failure = failure.__cause__
