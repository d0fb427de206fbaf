"""Holdfast, as a user would run it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench.kit.contenders.common import Tell, epochs_of, make_session, source, versions
from bench.kit.trial import CheckpointTaken, Epoch, Outcome, Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.checkpoint.coordinator import CheckpointEvent
    from holdfast.pipeline import Pipeline
    from holdfast.spark.query import Query

__all__ = ["run", "run_pipeline"]

_POLL_S = 0.5


class _Events:
    """Collects what ``on_checkpoint`` says."""

    def __init__(self) -> None:
        self.taken: list[CheckpointTaken] = []
        self.failed: list[Exception] = []

    def __call__(self, event: CheckpointEvent) -> None:
        if event.error is not None:
            self.failed.append(event.error)
            return
        self.taken.append(CheckpointTaken(event.epoch, event.duration_ms, event.new_bytes))


def run(trial: Trial, tell: Tell) -> Outcome:
    """Process all input, with checkpoints."""
    import holdfast as hf

    spark = make_session(trial)
    keyed = hf.stream(source(spark, trial)).key_by("word")
    counts = keyed.aggregate(n=hf.count(), total=hf.sum("amount"))
    return run_pipeline(spark, counts.write_to(hf.sinks.noop()), trial, tell)


def run_pipeline(spark: SparkSession, pipeline: Pipeline, trial: Trial, tell: Tell) -> Outcome:
    """Process all input with a pipeline."""
    events = _Events()
    began = time.perf_counter()
    query = _start(pipeline, trial, events)
    if trial.stepped:
        taken = _step(query, trial, events, tell)
    else:
        _follow(query, tell)
        taken = events.taken
    seconds = time.perf_counter() - began
    if events.failed:  # a checkpoint that fails costs less than one that doesn't
        raise events.failed[0]
    progress = query.progress
    return Outcome(
        epochs=_epochs(query),
        seconds=seconds,
        state_rows=progress[-1].state_rows if progress else None,
        checkpoints=taken,
        versions=versions(spark),
        settings={"checkpoint_interval_s": str(trial.checkpoint_interval_s)},
    )


def _start(pipeline: Pipeline, trial: Trial, events: _Events) -> Query:
    work = Path(trial.work)
    # Without checkpoints nothing may hold epochs back either: they'd wait for one.
    unbounded = trial.checkpoint_interval_s is None
    return pipeline.start(
        "bench",
        work / "checkpoint",
        checkpoint_interval=trial.checkpoint_interval_s,
        trigger="manual" if trial.stepped else "available-now",
        partitions=trial.partitions,
        local_dir=work / "local",
        max_ahead_bytes=1 << 50 if unbounded else 2 << 30,
        max_ahead="1 day" if unbounded else "10 minutes",
        on_checkpoint=events,
    )


def _follow(query: Query, tell: Tell) -> None:
    last = -1
    while not query.await_termination(_POLL_S):
        progress = query.progress
        if progress and progress[-1].epoch > last:
            last = progress[-1].epoch
            tell(last)


def _step(query: Query, trial: Trial, events: _Events, tell: Tell) -> list[CheckpointTaken]:
    """A checkpoint per epoch, so that each stores exactly that epoch's changes."""
    taken = []
    for epoch in range(trial.epochs):
        if not query.step(timeout=600):
            raise RuntimeError(f"no input for epoch {epoch}")
        before = len(events.taken)
        asked = time.perf_counter()
        query.checkpoint()
        wall_ms = (time.perf_counter() - asked) * 1000
        if len(events.taken) != before + 1:
            raise RuntimeError(f"epoch {epoch}: {len(events.taken) - before} checkpoints, not one")
        taken.append(msgspec.structs.replace(events.taken[-1], wall_ms=wall_ms))
        tell(epoch)
    query.stop()
    return taken


def _epochs(query: Query) -> list[Epoch]:
    """Spark's measure of time, as for the others; Holdfast's of where it went."""
    own = {progress.epoch: progress for progress in query.progress}
    epochs = []
    for epoch in epochs_of(query.spark_query):
        progress = own[epoch.number]
        phases = dict(progress.seconds)
        phases["outside"] = epoch.seconds - phases.pop("total")
        phases |= epoch.phases
        epochs.append(msgspec.structs.replace(epoch, state_rows=progress.state_rows, phases=phases))
    return epochs
