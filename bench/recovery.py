"""A host with state is lost: how long until it is usable elsewhere, with a local replica and without.

The published experiment (word count, one host with state), and what it left out: executors and
drivers that die, Spark's own query on the same HDFS, and a first epoch that doesn't wait.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar

from bench.kit.program import Context, main
from bench.kit.recovery import picture, tables
from bench.kit.recovery.experiment import Experiment, Pipe
from bench.kit.recovery.hosts import SplitLab
from bench.kit.recovery.program import DriverError
from bench.kit.recovery.published import SIZES_MB
from bench.kit.recovery.ratios import BARS, ratios
from bench.kit.recovery.records import Bound, Built, Failure, Restore
from bench.kit.report import Report, machine
from holdfast.errors import HoldfastError

T = TypeVar("T")

_RATE_MBIT = 200
_RATE = f"{_RATE_MBIT}mbit"
_TOUCHED = 0.01
_NEARLY_NOTHING = 1e-9


@dataclass(frozen=True)
class Plan:
    """What is run."""

    sizes: tuple[int, ...]
    repeats: int
    executor_sizes: tuple[int, int]
    driver_size: int
    spark_size: int
    restore_size: int

    @property
    def all_sizes(self) -> list[int]:
        """Every size that state is built of."""
        more = (*self.executor_sizes, self.driver_size, self.spark_size, self.restore_size)
        return sorted({*self.sizes, *more})


_QUICK = Plan((10, 200, 600), 1, (200, 2000), 200, 600, 2000)
_FULL = Plan((*SIZES_MB, 1000, 2000, 4000), 3, (200, 2000), 2000, 2000, 2000)


@dataclass
class Found:
    """What has been measured so far, and what could not be."""

    built: list[Built] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    restored: list[Restore] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class Run:
    """One run of the benchmark on a lab."""

    def __init__(self, plan: Plan, experiment: Experiment, found: Found) -> None:
        self.plan = plan
        self.experiment = experiment
        self.found = found
        self.pipes: dict[tuple[str, int], Pipe] = {}

    def everything(self) -> None:
        """All with replicas on every candidate first: the arrangement is changed only once."""
        for size in self.plan.all_sizes:
            self._build(size, "holdfast")
        self._hosts(self.plan.sizes, "holdfast")
        self._executors_and_driver()
        self._build(self.plan.spark_size, "spark")
        self._hosts((self.plan.spark_size,), "spark")
        self.experiment.limit(None)
        self.experiment.lab.arrange("remote")
        self._hosts((self.plan.spark_size,), "spark")
        self._hosts(self.plan.sizes, "holdfast")
        self._restores()

    def _build(self, size: int, engine: str) -> None:
        made = self._try(f"{size} MB, {engine}", partial(self.experiment.build, size, engine))
        if made is not None:
            self.pipes[engine, size] = made[0]
            self.found.built.append(made[1])

    def _hosts(self, sizes: tuple[int, ...], engine: str) -> None:
        for size in sizes:
            pipe = self.pipes.get((engine, size))
            if pipe is None:
                continue
            self.experiment.limit(None)
            self._try(f"opening {pipe.name}", partial(self.experiment.open, pipe))
            # Spark's own is only compared at the limited rate.
            for rate in (_RATE,) if engine == "spark" else (None, _RATE):
                for repeat in range(self.plan.repeats):
                    self.experiment.limit(rate)
                    self._fail(
                        f"host, {size} MB, {engine}, {self.experiment.lab.arrangement}, {rate}",
                        partial(self.experiment.lose_host, pipe, repeat),
                    )

    def _executors_and_driver(self) -> None:
        self.experiment.limit(None)
        for repeat in range(max(3, self.plan.repeats)):
            for size in self.plan.executor_sizes:
                if (pipe := self.pipes.get(("holdfast", size))) is not None:
                    self._fail(
                        f"executor, {size} MB",
                        partial(self.experiment.lose_executor, pipe, repeat),
                    )
        if (pipe := self.pipes.get(("holdfast", self.plan.driver_size))) is not None:
            for repeat in range(self.plan.repeats):
                self._fail("driver", partial(self.experiment.lose_driver, pipe, repeat))

    def _restores(self) -> None:
        if (pipe := self.pipes.get(("holdfast", self.plan.restore_size))) is None:
            return
        self.experiment.limit(None)
        self._try(f"opening {pipe.name}", partial(self.experiment.open, pipe))
        self.experiment.limit(_RATE)
        for share in (_NEARLY_NOTHING, _TOUCHED):
            made = self._try(f"restore, {share}", partial(self.experiment.restore, pipe, share))
            if made is not None:
                self.found.restored.append(made)
        limit = self._try(
            "small reads", partial(self.experiment.bound, pipe, _TOUCHED, _RATE_MBIT * 125_000)
        )
        if limit is not None:
            self.found.bounds.append(limit)

    def _fail(self, what: str, work: Callable[[], Failure]) -> None:
        made = self._try(what, work)
        if made is not None:
            self.found.failures.append(made)

    def _try(self, what: str, work: Callable[[], T]) -> T | None:
        """What doesn't work is said; the rest is measured all the same."""
        try:
            return work()
        except (DriverError, TimeoutError, RuntimeError, OSError, HoldfastError) as error:
            self.found.left_out.append(f"{what}: {error}")
            self.experiment.console.print(f"[red]{what}: {error}")
            self.experiment.mend()
            return None


def recovery(context: Context) -> Report:
    """Time until lost state is usable, local and remote; executors, drivers; Spark's own query."""
    plan = _QUICK if context.quick else _FULL
    work = context.harness.folder / "recovery"
    shutil.rmtree(work, ignore_errors=True)
    (work / "input").mkdir(parents=True)
    found = Found()
    with SplitLab(work / "lab", hosts=3, hdfs=True, cores=2, replication=3) as lab:
        context.console.print(f"the lab is up after {lab.up_seconds:.0f} s")
        experiment = Experiment(lab, work / "input", context.harness.cache, context.console)
        try:
            Run(plan, experiment, found).everything()
        finally:
            experiment.close()
    shutil.rmtree(work / "input")
    for table in (
        tables.beside_published(found.built, found.failures, _RATE),
        tables.steps(found.failures),
        tables.others(found.failures),
        tables.restores(found.restored),
        tables.bounds(found.bounds),
    ):
        context.console.print(table)
    picture.draw(found.failures, _RATE, context.picture)
    measured = ratios(found.failures, found.restored, _RATE)
    results: list[Any] = [*found.built, *found.failures, *found.restored, *found.bounds]
    return Report(
        benchmark="recovery",
        quick=context.quick,
        machine=machine({"pyspark": version("pyspark")}),
        settings=_settings(plan),
        results=results,
        ratios=measured,
        reasons={name: "not measured" for name, value in measured.items() if value is None},
        bars=BARS,
        left_out=found.left_out,
    )


def _settings(plan: Plan) -> dict[str, Any]:
    return {
        "hosts": "h1 and h2 run Spark, h3 only stores; one partition, so one host has all state",
        "local": "DataNodes on h1, h2 and h3, three replicas",
        "remote": "a DataNode on h3 alone",
        "limited_rate": _RATE,
        "sizes_mb": list(plan.sizes),
        "repeats": plan.repeats,
        "executor_sizes_mb": list(plan.executor_sizes),
        "driver_size_mb": plan.driver_size,
        "spark_size_mb": plan.spark_size,
        "restore_size_mb": plan.restore_size,
        "touched_share": _TOUCHED,
    }


if __name__ == "__main__":
    sys.exit(main("recovery", recovery))
