"""A driver's folder on this host's disk: what it takes over, and what it may delete.

The layout is ``<local_dir>/<pipeline>/<claim>/<run>.run``. A driver deletes only in folders of its own
claim or lower ones; what it reuses of a lower claim it hard-links first.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from holdfast.errors import ConfigurationError
from holdfast.recovery.opener import local_path
from holdfast.state.run import Run

__all__ = ["LocalFiles", "default_local_dir"]

logger = logging.getLogger("holdfast.spark")


def default_local_dir() -> Path:
    """Where local forms go unless told: it should survive a restart of the driver."""
    return Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"


class LocalFiles:
    """The local forms of one pipeline's runs, for one claim."""

    def __init__(self, local_dir: Path, pipeline: str, checkpoint_url: str) -> None:
        where = hashlib.sha256(checkpoint_url.encode()).hexdigest()[:12]
        self.root = local_dir / f"{pipeline}-{where}"
        self._known: set[str] = set()
        self._folder: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder of this driver's claim."""
        if self._folder is None:
            raise ConfigurationError("the pipeline has not been claimed yet")
        return self._folder

    def check(self) -> None:
        """Raise if files could not be written there; changes nothing that stays."""
        existing = self.root
        while not existing.exists():
            existing = existing.parent
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            raise ConfigurationError(
                f"local_dir {self.root} can't be written",
                hint="give a folder on a local disk with local_dir=…",
            )

    def claims(self) -> list[int]:
        """Claims that have a folder here, highest first."""
        if not self.root.exists():
            return []
        return sorted((int(p.name) for p in self.root.iterdir() if p.name.isdigit()), reverse=True)

    def open(self, claim: int, prepared: Path | None) -> None:
        """Make this claim's folder, from prepared runs if there are any; lower claims' folders go."""
        self._folder = self.root / str(claim)
        # The claim is ours alone: what is there is of a checkpoint directory that was since deleted.
        shutil.rmtree(self._folder, ignore_errors=True)
        if prepared is not None:
            self._known.update(path.stem for path in prepared.glob("*.run"))
            prepared.rename(self._folder)
        else:
            self._folder.mkdir(parents=True)
        for number in self.claims():
            if number < claim:
                shutil.rmtree(self.root / str(number), ignore_errors=True)

    def known(self, names: Iterable[str]) -> None:
        """Runs that have, or may have, a file here."""
        self._known.update(names)

    def present(self, runs: Iterable[Run]) -> list[Run]:
        """Those of these runs that have a file here."""
        return [run for run in runs if local_path(self.folder, run.name).exists()]

    def retire(self, live: set[str]) -> None:
        """Delete the files of known runs that nobody can open any more."""
        for name in self._known - live:
            local_path(self.folder, name).unlink(missing_ok=True)
            local_path(self.folder, name).with_suffix(".lock").unlink(missing_ok=True)
        self._known &= live
