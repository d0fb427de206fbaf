"""Opening a checkpoint directory to look at it: nothing in it is changed, but for a pin meanwhile."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from holdfast.checkpoint.entry import Checkpoint
from holdfast.checkpoint.log import LogState, read_log
from holdfast.checkpoint.pins import pin, unpin
from holdfast.cli import show
from holdfast.errors import ConfigurationError, CorruptionError, StorageError
from holdfast.storage import LocalStorage, Storage, open_storage

__all__ = ["CheckpointDirectory", "Directory", "held_checkpoint"]

_ATTEMPTS = 5
# A command that was killed must not keep a checkpoint for ever. Far above what a command takes and what
# clocks differ by: the driver's tells when it is over.
_PIN_MS = 86_400_000

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
        if found is None and self.damage is not None:
            raise self.damage
        if found is None:
            raise ConfigurationError(
                f"pipeline {self.pipeline!r} has no checkpoint yet",
                hint="wait for its first one, or call query.checkpoint()",
            )
        return found


@contextmanager
def held_checkpoint(
    url: str, epoch: int | None
) -> Iterator[tuple[CheckpointDirectory, Checkpoint]]:
    """A checkpoint of a directory, which the pipeline doesn't delete while it is read.

    Who may only read the directory reads without that, and is told.
    """
    for attempt in range(_ATTEMPTS):
        opened = CheckpointDirectory.open(url)
        entry = opened.checkpoint(epoch=epoch)
        try:
            pin_id = _pinned(opened, entry)
        except ConfigurationError:
            # It went between the look and the pin. The newest one is another by now.
            if epoch is not None or attempt == _ATTEMPTS - 1:
                raise
            continue
        except StorageError as error:
            show.errors.print(
                f"[dim]reading without a pin, for none can be written ({escape(error.message)}): should "
                "the checkpoint be deleted meanwhile, run the command again[/]",
                soft_wrap=True,
            )
            yield opened, entry
            return
        try:
            yield opened, entry
        finally:
            with suppress(StorageError):  # it ends by itself
                unpin(opened.storage, pin_id)
        return


def _pinned(opened: CheckpointDirectory, entry: Checkpoint) -> str:
    pin_id = f"reader-{secrets.token_hex(8)}"
    pin(
        opened.storage,
        entry.number,
        f"a holdfast command on {socket.gethostname()} (process {os.getpid()})",
        pin_id=pin_id,
        now_ms=time.time_ns() // 1_000_000,
        lasts_ms=_PIN_MS,
        damaged_ok=opened.damage is not None,
    )
    return pin_id
