"""What a simulated world says when it can't, or must not, go on."""

from __future__ import annotations

__all__ = ["Dead", "Stuck", "WorldError"]


class WorldError(AssertionError):
    """Something happened that must never happen, whatever the schedule; or the world is misused.

    Code under test can't swallow it: ``World.run`` raises it too.
    """


class Stuck(WorldError):  # noqa: N818 - what it is, not an error of anybody's
    """Nothing will ever happen again, or too much has; lists every thread and what it waits for."""


class Dead(BaseException):
    """Ends threads that nobody will resume, when their world is closed."""
