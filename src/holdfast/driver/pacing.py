"""Decides, from the epochs before, how many tasks the next one gets and whether to pre-aggregate."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Pacing", "StageShape"]

# Below this many rows a second task costs more than it computes.
_TINY_ROWS = 20_000
_TINY_INPUT_PARTITIONS = 4
_ROWS_PER_TASK = 50_000
# User code may take long for few rows: what a task should have to do at least.
_WORK_PER_TASK_S = 0.25
# Grouping on the map side pays once it sends fewer than this share of the rows.
_WORTHWHILE = 0.6


@dataclass(frozen=True, slots=True)
class StageShape:
    """How an epoch runs."""

    partitions: int
    preaggregate: bool
    shuffle: bool
    """False: one task reads everything itself."""


class Pacing:
    """Learns from each epoch.

    >>> pacing = Pacing(partitions=4)
    >>> pacing.next().partitions
    4
    >>> pacing.learn(received=120, keys=100, source_rows=120)
    >>> pacing.next()
    StageShape(partitions=1, preaggregate=False, shuffle=False)
    """

    def __init__(
        self,
        partitions: int,
        *,
        must_preaggregate: bool = False,
        may_preaggregate: bool = True,
        fixed: bool = False,
    ) -> None:
        self.partitions = partitions
        self.fixed = fixed
        """Always all partitions."""
        self.must_preaggregate = must_preaggregate
        self.may_preaggregate = may_preaggregate
        self._received: int | None = None
        self._ratio: float | None = None
        # A key is grouped in each partition of the input, and per pane of time.
        self._per_key = 1.0
        self._source_rows = 0
        self._work_s = 0.0

    def next(self, input_partitions: int = 1) -> StageShape:
        """The shape of the next epoch, whose input comes in so many partitions."""
        if self._received is None:
            return StageShape(self.partitions, self.must_preaggregate, shuffle=True)
        if self._source_rows < _TINY_ROWS and input_partitions > _TINY_INPUT_PARTITIONS:
            # Little came last time, but Spark has cut this input in many parts: there is much of it.
            return StageShape(self.partitions, self.must_preaggregate, shuffle=True)
        pays = self.may_preaggregate and self._ratio is not None and self._ratio < _WORTHWHILE
        if self.fixed:
            return StageShape(self.partitions, self.must_preaggregate or pays, shuffle=True)
        wanted = math.ceil(self._work_s / _WORK_PER_TASK_S)
        if self._source_rows < _TINY_ROWS and wanted < 2:
            return StageShape(1, self.must_preaggregate, shuffle=False)
        wanted = max(wanted, math.ceil(self._received / _ROWS_PER_TASK))
        return StageShape(
            min(self.partitions, max(1, wanted)), self.must_preaggregate or pays, True
        )

    def learn(
        self,
        *,
        received: int,
        keys: int,
        source_rows: int,
        grouped: bool = False,
        work_s: float = 0.0,
    ) -> None:
        """An epoch of ``source_rows`` sent ``received`` rows to its tasks, for ``keys`` keys.

        ``grouped``: whether rows were grouped before they were sent. ``work_s`` is what its tasks spent on state and in user code, all together.
        """
        # In the first epoch, workers also import what they need.
        self._work_s = work_s if self._received is not None else 0.0
        self._received = received
        self._source_rows = source_rows
        if source_rows >= _TINY_ROWS:
            if grouped:
                self._per_key = received / max(1, keys)
            # If not, as many groups would have been sent per key as when they last were.
            sent = min(received, round(keys * self._per_key))
            self._ratio = sent / source_rows

    def why(self) -> str:
        """What the next shape is based on, in words."""
        if self._received is None:
            return "no epoch has run yet"
        ratio = "" if self._ratio is None else f", grouping would send {self._ratio:.0%} of them"
        rows = f"the last epoch had {self._source_rows} rows"
        return f"{rows} and {self._work_s:.2f} s of work on state{ratio}"
