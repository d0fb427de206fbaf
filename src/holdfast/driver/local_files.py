"""A driver's folder on this host's disk: what it takes over, and what it may delete.

The layout is ``<local_dir>/<pipeline>/<claim>/<run>.run``. A driver deletes only in folders of its own
claim or lower ones; what it reuses of a lower claim it hard-links first.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from holdfast.checkpoint.entry import place_digest
from holdfast.checkpoint.ledger import Ledger
from holdfast.driver.own_folders import OwnFolders
from holdfast.errors import ConfigurationError
from holdfast.state.run import Run
from holdfast.tiers.opener import local_path
from holdfast.tiers.own_folder import check_own, make_own

__all__ = ["LocalFiles", "default_local_dir"]

logger = logging.getLogger("holdfast.spark")

_LIST_EVERY = 100


def default_local_dir() -> Path:
    """Where local forms go unless told: it should survive a restart of the driver."""
    return Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"


class LocalFiles:
    """The local forms of one pipeline's runs, for one claim."""

    def __init__(self, local_dir: Path, pipeline: str, checkpoint_url: str) -> None:
        self.root = local_dir / f"{pipeline}-{place_digest(checkpoint_url)}"
        self._known: set[str] = set()
        self._folder: Path | None = None
        self._since_listing = 0
        self._listed: tuple[list[Path], frozenset[int]] = ([], frozenset())
        self._prepared = OwnFolders(self.root, "prepare-")

    @property
    def folder(self) -> Path:
        """The folder of this driver's claim."""
        if self._folder is None:
            raise ConfigurationError("the pipeline has not been claimed yet")
        return self._folder

    def check(self) -> None:
        """Raise if files could not be written there, or others could; changes nothing that stays."""
        try:
            check_own(self.root)
        except PermissionError as error:
            raise ConfigurationError(
                f"local folder {error.strerror}",
                hint="if you know where it comes from, delete it (what is needed is fetched again); "
                "else give a folder of your own with local_dir=…",
            ) from error
        except NotADirectoryError:
            pass  # said below
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
        """Make this claim's folder, from prepared runs if there are any.

        Lower claims' folders go, and those of starts that were killed.
        """
        make_own(self.root)
        self._folder = self.root / str(claim)
        # The claim is ours alone: what is there is of a checkpoint directory that was since deleted.
        shutil.rmtree(self._folder, ignore_errors=True)
        if prepared is not None:
            self._known.update(path.stem for path in prepared.glob("*.run"))
            prepared.rename(self._folder)
            self._prepared.release(prepared)
        else:
            make_own(self._folder)
        self._prepared.sweep()
        for number in self.claims():
            if number < claim:
                shutil.rmtree(self.root / str(number), ignore_errors=True)

    def prepare(self) -> Path:
        """Make a folder for what a start brings here before it claims."""
        make_own(self.root)
        return self._prepared.make()

    def discard(self, prepared: Path) -> None:
        """Remove a prepared folder, unless it has become a claim's."""
        self._prepared.remove(prepared)

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

    def sweep(self, ledger: Ledger) -> None:
        """Delete what attempts that came to nothing left, now and then.

        Who was writing when the folder was listed may be about to name what is in it: that waits until
        all of them have ended.
        """
        self._since_listing += 1
        if self._since_listing % _LIST_EVERY == 1:
            self._listed = (list(self.folder.iterdir()), ledger.writers())
        paths, writing = self._listed
        if writing & ledger.writers():
            return
        self._listed = ([], frozenset())
        # Only now: what came of those who have ended is among them.
        live = ledger.live_runs()
        for path in paths:
            # What a killed process was writing, too: nobody finishes it, though its run may live on.
            if path.suffix == ".tmp" or path.name.partition(".")[0] not in live:
                path.unlink(missing_ok=True)
