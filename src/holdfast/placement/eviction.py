"""Which local files go when a host's disk has a limit."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.state.run import Run

__all__ = ["evictions"]


def evictions(runs: Iterable[Run], limit_bytes: int) -> list[str]:
    """The runs to drop so that the rest fits, those that were changed longest ago first.

    Only what is stored can go: it is read from storage then. What is not stored stays, even
    beyond the limit.
    """
    held = list(runs)
    excess = sum(run.size_bytes for run in held) - limit_bytes
    gone: list[str] = []
    for run in sorted(held, key=lambda run: (run.last_epoch, -run.size_bytes, run.name)):
        if excess <= 0:
            break
        if run.is_durable:
            gone.append(run.name)
            excess -= run.size_bytes
    return gone
