"""Opening a checkpoint directory to look at it: nothing in it is changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from holdfast.checkpoint.entry import Checkpoint
from holdfast.checkpoint.log import LogState, read_log
from holdfast.errors import ConfigurationError, CorruptionError
from holdfast.storage import LocalStorage, Storage, open_storage

__all__ = ["CheckpointDirectory", "Directory"]

Directory = Annotated[
    str,
    typer.Argument(
        metavar="CK", help="The checkpoint directory of a pipeline.", show_default=False
    ),
]


@dataclass(frozen=True, slots=True)
class CheckpointDirectory:
    """A pipeline's checkpoint storage and its log."""

    storage: Storage
    log: LogState
    pipeline: str
    damage: CorruptionError | None
    """What is wrong with the end of the log, if anything; ``log`` then reads around it."""

    @classmethod
    def open(cls, url: str) -> CheckpointDirectory:
        """Open it; ``ConfigurationError`` if it isn't one."""
        storage = open_storage(url)
        if isinstance(storage, LocalStorage) and not Path(storage.root).is_dir():
            raise ConfigurationError(
                f"there is no directory {url}", hint="give the checkpoint_dir of a pipeline"
            )
        damage = None
        try:
            log = read_log(storage)
        except CorruptionError as error:
            damage = error
            log = read_log(storage, damaged_ok=True)
        if log.pipeline is None:
            if damage is not None:
                raise damage
            raise ConfigurationError(
                f"{url} is not a checkpoint directory: it has no log",
                hint="give the checkpoint_dir of a pipeline",
            )
        return cls(storage, log, log.pipeline, damage)

    def checkpoint(self, epoch: int | None = None, entry: int | None = None) -> Checkpoint:
        """The checkpoint asked for, or the newest; ``ConfigurationError`` if there is none."""
        found = self.log.find_checkpoint(epoch, entry)
        if found is None:
            raise ConfigurationError(
                f"pipeline {self.pipeline!r} has no checkpoint yet",
                hint="wait for its first one, or call query.checkpoint()",
            )
        return found
