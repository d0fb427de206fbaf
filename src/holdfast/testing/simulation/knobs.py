"""Sizes and numbers that are too large for a short course: in a world some of them are small.

What happens once in a hundred epochs, or with megabytes of state, happens here after a few rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from types import ModuleType
from unittest.mock import patch

from holdfast.checkpoint import coordinator, ledger, log_state
from holdfast.driver import ahead, background, claiming, epoch_calls, local_files, pacing
from holdfast.tasks import task
from holdfast.tiers import opener

__all__ = ["KNOBS", "Knob", "Knobs"]


@dataclass(frozen=True)
class Knob:
    """A number that several modules may have."""

    name: str
    modules: Sequence[ModuleType]
    small: Sequence[int]
    """What it may be in a world."""


KNOBS = (
    Knob("_LIST_EVERY", (coordinator,), (2, 5)),
    Knob("_LIST_EVERY", (local_files,), (1, 5)),
    # Epochs of fewer rows have one task.
    Knob("_TINY_ROWS", (pacing,), (1, 20)),
    # Less state than that is stored as a whole, by the driver; more by partitions, in tasks.
    Knob("_SMALL_BYTES", (background,), (0, 3000)),
    Knob("_FANOUT", (background,), (2, 3)),
    Knob("_INLINE_MERGE_ROWS", (task,), (1, 30)),
    # The larger, the more is read on demand.
    Knob("_MOST_PER_BLOCK", (opener,), (0, 1000)),
    Knob("EPOCHS_PER_ENTRY", (ahead, claiming, epoch_calls, ledger, log_state), (6, 20)),
)


class Knobs:
    """How they are set in a world: most as in production."""

    def __init__(self, draw: Random) -> None:
        self._set = {k: draw.choice(k.small) for k in KNOBS if draw.random() < 0.3}
        self.memory_bytes = draw.choice((1 << 24, 1 << 24, 1 << 10))
        """More than that of an epoch's rows are spilled."""

    def __str__(self) -> str:
        turned = [f"{knob.name.lower().strip('_')}={value}" for knob, value in self._set.items()]
        return ", ".join([*turned, f"memory_bytes={self.memory_bytes}"])

    @contextmanager
    def turned(self) -> Iterator[None]:
        """They are set so until the block ends."""
        with ExitStack() as until_then:
            for knob, value in self._set.items():
                for module in knob.modules:
                    until_then.enter_context(patch.object(module, knob.name, value))
            yield
