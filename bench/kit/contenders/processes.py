"""User code through Holdfast: KeyedProcess, BatchProcess, and PySpark's StatefulProcessor unchanged."""

from __future__ import annotations

from bench.kit.contenders.common import Tell, make_session, source
from bench.kit.contenders.holdfast import run_pipeline
from bench.kit.contenders.processors import (
    OUTPUT,
    BatchCount,
    CountPandas,
    CountRows,
    KeyedCount,
)
from bench.kit.trial import Outcome, Trial

__all__ = ["run"]


def run(trial: Trial, tell: Tell) -> Outcome:
    """Process all input, with checkpoints."""
    import holdfast as hf

    spark = make_session(trial)
    stream = hf.stream(source(spark, trial))
    if trial.contender == "dropin-row":
        result = stream.groupBy("word").transformWithState(CountRows(), OUTPUT, "Update", "None")
    elif trial.contender == "dropin-pandas":
        result = stream.groupBy("word").transformWithStateInPandas(
            CountPandas(), OUTPUT, "Update", "None"
        )
    else:
        process = KeyedCount() if trial.contender == "keyed" else BatchCount()
        result = stream.key_by("word").process(process)
    return run_pipeline(spark, result.write_to(hf.sinks.noop()), trial, tell)
