"""Which windows fire, close and go at the end of an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from holdfast.choices import OutputMode
from holdfast.operators.base import Clock
from holdfast.operators.columns import Bits
from holdfast.operators.window.panes import FixedWindow
from holdfast.operators.window.spec import Emit, GlobalWindow
from holdfast.operators.window.windows import FoldedWindows

__all__ = ["Firing", "Rules"]

Indices = npt.NDArray[np.int64]
_MICROS = 1000


@dataclass(frozen=True, slots=True)
class Rules:
    """When windows of an operator fire and go.

    >>> from holdfast.operators.window.spec import Tumbling
    >>> Rules(Tumbling(1000), Emit(), "update").every_change
    True
    """

    window: FixedWindow
    emit: Emit
    output_mode: OutputMode
    lateness_ms: int = 0

    @property
    def every_change(self) -> bool:
        """Whether a window fires in every epoch that changes it."""
        return self.output_mode != "append" and not self.emit.is_early

    @property
    def closing_matters(self) -> bool:
        """Whether something hangs on a window's having closed, as long as it is there."""
        return not self.every_change or not self.emit.late


@dataclass(frozen=True)
class Firing:
    """What the end of an epoch means to some windows; all arrays are aligned with them."""

    windows: FoldedWindows
    rules: Rules
    clock: Clock

    @cached_property
    def ends_ms(self) -> Indices | None:
        """When windows end; None if they don't."""
        window = self.rules.window
        if isinstance(window, GlobalWindow):
            return None
        # Sizes, slides and offsets are in ms, so bounds of windows are, too.
        ends: Indices = self.windows.starts // _MICROS + window.size_ms
        return ends

    @cached_property
    def closed(self) -> Bits:
        """Whose end the watermark has reached."""
        return self._ended_by(self.clock.watermark_ms)

    @cached_property
    def gone(self) -> Bits:
        """For whom no row can come any more."""
        watermark = self.clock.watermark_ms
        return self._ended_by(None if watermark is None else watermark - self.rules.lateness_ms)

    @cached_property
    def was_closed(self) -> Bits:
        """Who had closed when this epoch's rows came: they are late."""
        windows = self.windows
        fresh = self._ended_by(self.clock.late_ms)
        return np.where(windows.known, windows.was_closed, fresh)

    @cached_property
    def fires(self) -> Bits:
        """Who puts out a result."""
        touched, emit = self.windows.touched, self.rules.emit
        if self.rules.every_change:
            return touched if emit.late else touched & ~self.was_closed
        fires = (self.closed & ~self.was_closed) | self._early
        return fires | (touched & self.was_closed) if emit.late else fires

    @cached_property
    def waiting(self) -> Indices:
        """How many rows wait for a firing, before this epoch's firings."""
        return self.windows.were_waiting + self.windows.rows

    @cached_property
    def early_ms(self) -> Indices:
        """From when on windows may fire early, before this epoch's firings."""
        return np.where(self.windows.known, self.windows.early_ms, self._next_early_ms)

    @cached_property
    def waiting_after(self) -> Indices:
        """How many rows still wait."""
        return np.where(self.fires, 0, self.waiting)

    @cached_property
    def early_ms_after(self) -> Indices:
        """From when on windows may fire early."""
        return np.where(self.fires, self._next_early_ms, self.early_ms)

    @cached_property
    def written(self) -> Bits:
        """Whose state is new: it has rows, has fired or has closed, and it stays."""
        changed = self.windows.touched | self.fires
        if self.windows.tables.closed:
            changed |= self.closed & ~self.was_closed
        return changed & ~self.gone

    @cached_property
    def deleted(self) -> Bits:
        """Whose state goes."""
        return self.gone & self.windows.known

    @property
    def begins(self) -> Bits:
        """Who comes into state."""
        return ~self.windows.known & ~self.gone

    @property
    def begins_to_wait(self) -> Bits:
        """Who has rows to fire early with and had none: the others' hints are there, or lapsed."""
        began: Bits = (self.waiting_after > 0) & (self.windows.were_waiting == 0)
        return began & ~self.closed

    @property
    def _next_early_ms(self) -> int:
        return self.clock.processing_time_ms + (self.rules.emit.early_every_ms or 0)

    @property
    def _early(self) -> Bits:
        """Who fires before it closes. What has no new rows has nothing new to say."""
        emit = self.rules.emit
        early = np.zeros(self.windows.count, np.bool_)
        if emit.early_rows is not None:
            early |= self.waiting >= emit.early_rows
        if emit.early_every_ms is not None:
            early |= (self.waiting > 0) & (self.early_ms <= self.clock.processing_time_ms)
        return early & ~self.closed

    def _ended_by(self, ms: int | None) -> Bits:
        if ms is None or self.ends_ms is None:
            return np.zeros(self.windows.count, np.bool_)
        ended: Bits = self.ends_ms <= ms
        return ended
