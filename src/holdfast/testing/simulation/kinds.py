"""All kinds of faults, and how often each has struck: one that never does is a fault of the simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from holdfast.testing.simulation.faults import FAULTS
from holdfast.testing.simulation.happenings import HAPPENINGS
from holdfast.testing.simulation.mishaps import MISHAPS

__all__ = ["KINDS", "told_of"]

KINDS: Mapping[str, str] = {
    **HAPPENINGS,
    **MISHAPS,
    **{f"storage_{kind}": what for kind, what in FAULTS.items()},
    "storage_late": "a write that is done after an error was told",
    "storage_zombie": "and by then another driver has claimed the log",
    "stray": "an entry of a driver that was fenced, where nobody looks for one",
    "ended_input": "a pipeline whose input has ended",
    "timelines": "a timeline that was left",
    "fenced": "a driver that another has taken over from",
    "recovery": "state that was lost and is recovered",
    "handover": "partitions that are handed over between living hosts",
    "corruption": "a driver that ends, for what it read is damaged",
}
"""Each kind, in words."""


def told_of(struck: Counter[str], seeds: int) -> list[str]:
    """A line for each kind: how often it struck in a thousand seeds."""
    return [
        f"{1000 * struck[kind] / seeds:10.1f}  {kind:<22} {what}" for kind, what in KINDS.items()
    ]
