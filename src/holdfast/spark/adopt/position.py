"""Where the old query stopped: its offsets, for the moved job's sources, and its clock."""

from __future__ import annotations

import json
from collections.abc import Mapping

from holdfast.checkpoint.entry import EpochRecord
from holdfast.checkpoint.time import Watermark
from holdfast.driver.scratch import source_offsets
from holdfast.errors import InputError
from holdfast.spark.adopt.old_query import OldQuery
from holdfast.spark.adopt.program import NewProgram

__all__ = ["check_sources", "last_epoch", "next_watermark", "position_for"]


def position_for(program: NewProgram, old: OldQuery) -> dict[str, bytes]:
    """Spark's files for the moved job: those of the old query and, for timers, a source more."""
    position = old.position()
    if not program.operator.needs_ticks:
        return position
    # A dash is Spark's word for a source that has not been read from yet.
    return {
        path: data + b"\n-" if path.startswith("offsets/") else data
        for path, data in position.items()
    }


def check_sources(program: NewProgram, old: OldQuery, position: Mapping[str, bytes]) -> None:
    """Refuse a program that reads more or fewer sources: Spark tells them apart by their place."""
    known = source_offsets(position[f"offsets/{old.batch}"].decode())
    if known is None:
        return  # Spark finds them by name.
    there = len(known) - program.operator.needs_ticks
    if there != program.sources:
        raise InputError(
            f"the query at {old.location} reads {there} sources, the program {program.sources}",
            hint="read the sources of the old query, in its order",
        )


def last_epoch(
    batch: int, position: Mapping[str, bytes], watermarks: Mapping[str, Watermark]
) -> EpochRecord:
    """The old query's last batch, with the clock that Spark fixed for it and for the next."""
    offsets = position[f"offsets/{batch}"].decode()
    fixed = json.loads(offsets.split("\n")[1])
    after = next_watermark(batch, position)
    return EpochRecord(
        batch,
        rows=0,
        processing_time_ms=fixed["batchTimestampMs"],
        # Spark's watermark is 0 as long as there is none.
        watermark_ms=(fixed["batchWatermarkMs"] or None) if watermarks else None,
        offsets=offsets,
        event_times={n: after + w.delay_ms for n, w in watermarks.items()} if after else {},
    )


def next_watermark(batch: int, position: Mapping[str, bytes]) -> int:
    """The watermark that Spark fixed for the batch after; 0 if there is none."""
    commit = json.loads(position[f"commits/{batch}"].split(b"\n", 1)[1])
    return int(commit["nextBatchWatermarkMs"])
