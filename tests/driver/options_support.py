"""Options of a pipeline, as a user who says nothing has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.driver.options import Options


def options(checkpoint_dir: str, local_dir: Path, **said: Any) -> Options:
    plain: dict[str, Any] = {
        "name": "p",
        "checkpoint_interval": None,
        "trigger": "manual",
        "partitions": None,
        "durability": "checkpoint",
        "keep_last": 5,
        "keep_for": None,
        "max_ahead_bytes": "1 GB",
        "max_ahead": "10 minutes",
        "memory_bytes": "64 MB",
        "local_limit_bytes": None,
        "from_entry": None,
        "drop_state": (),
        "clock": None,
        "on_checkpoint": (),
        "end_of_input": False,
    }
    return Options.checked(checkpoint_dir=checkpoint_dir, local_dir=local_dir, **{**plain, **said})
