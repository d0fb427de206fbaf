"""What may be left on the disk of a driver that was started, ran well and has stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.tiers import opener

__all__ = ["left_behind"]


def left_behind(host: Path, *, has_run: bool) -> str | None:
    """Something on a host's disk that nobody will ever use or remove; None if all is well.

    The last driver there was alone, and has taken over from all that were killed before. ``has_run``:
    it has had tasks.
    """
    return next(_left(host, has_run), None)


def _left(host: Path, has_run: bool) -> Iterator[str]:
    for folder in (host / "tmp").glob("holdfast-scratch-*"):
        yield f"{folder} is a folder of a driver that has ended"
    for root in (host / "local").glob("*"):
        for folder in root.glob("prepare-*"):
            yield f"{folder} was prepared by a start that was killed"
        claims = sorted(int(path.name) for path in root.iterdir() if path.name.isdigit())
        for claim in claims[:-1]:
            yield f"{root / str(claim)} is a folder of a lower claim"
        for claim in claims[-1:]:
            for path in (root / str(claim)).glob("spill-*"):
                yield f"{path} was spilled by a task that has ended"
    # All simulated workers are one: what any of them still maps.
    for path in opener._open:  # noqa: SLF001
        if has_run and host in path.parents and not path.parent.exists():
            yield f"{path} is gone, and still mapped"
