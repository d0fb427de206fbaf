"""How a folder of Parquet files gains a whole epoch at once, however often it is tried.

::

    out/
      epoch=7/…parquet                  published: what readers see
      _holdfast/                        readers skip names that begin with _
        pipeline.json                   whose folder this is
        staged/<claim>-<epoch>-<partition>-<nonce>.parquet
        publishing/<claim>-<epoch>-<unique>/…parquet
        published.json                  the latest epochs published, should readers move them away
        removing/…                      what a sweep is about to delete

An epoch's staged files are linked into a new folder in ``publishing/``, and that folder is renamed
to ``epoch=<epoch>``: the one step that publishes. A rename fails if the name is taken by a folder
with files, so of several publishers one wins and the others find the very same files there. Staged
names go only after that, so whoever misses one finds the epoch published.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import xxhash

from holdfast.checkpoint.entry import StagedOutput
from holdfast.errors import ConfigurationError, CorruptionError
from holdfast.failpoints import failpoint
from holdfast.sinks._files import make_folder, replace_file, storage_errors, sync
from holdfast.sinks._staged import by_epoch, claim_of

__all__ = ["OutputFolder"]

_EPOCHS_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """The folder of one Parquet sink."""

    root: Path

    @property
    def own(self) -> Path:
        """What is Holdfast's and not for readers."""
        return self.root / "_holdfast"

    @property
    def staged(self) -> Path:
        """Where tasks write."""
        return self.own / "staged"

    @property
    def marker(self) -> Path:
        """Says whose folder this is."""
        return self.own / "pipeline.json"

    def epoch(self, epoch: int) -> Path:
        """What readers see of an epoch; Hive's notation, so they get a column ``epoch``."""
        return self.root / f"epoch={epoch}"

    def create(self) -> None:
        """Make the folders, durably."""
        for folder in (self.root, self._publishing, self._removing, self.staged):
            make_folder(folder)
        # Also if they were there: who made them may have died before they reached the disk.
        sync(self.own)
        sync(self.root)

    def make_durable(self, outputs: Sequence[StagedOutput]) -> None:
        """Bring staged files to the disk."""
        for output in outputs:
            self._check(output)
            with storage_errors(f"bring {output.name} in {self.staged} to the disk"):
                sync(self.staged / output.name)
        if outputs:
            with storage_errors(f"bring {self.staged} to the disk"):
                sync(self.staged)

    def publish(self, outputs: Sequence[StagedOutput], claim: int) -> None:
        """Publish whole epochs, oldest first. Changes nothing where that is done already."""
        epochs = by_epoch(outputs)
        remembered = self._remembered()
        for epoch, parts in epochs:
            with storage_errors(f"publish epoch {epoch} in {self.root}"):
                self._publish_epoch(epoch, parts, claim, remembered)
        with storage_errors(f"tidy up in {self.own}"):
            self._remember(epochs, remembered)
            for _, parts in epochs:
                for output in parts:
                    (self.staged / output.name).unlink(missing_ok=True)
                failpoint("sink.parquet.after_unlink")

    def sweep(self, keep: Sequence[StagedOutput], claim: int) -> None:
        """Remove what this and lower claims left behind, except what is to be published."""
        kept = {output.name for output in keep}
        with storage_errors(f"sweep {self.own}"):
            for path in _entries(self.staged):
                of = claim_of(path.name)
                if of is not None and of <= claim and path.name not in kept:
                    path.unlink(missing_ok=True)
            for path in _entries(self._publishing):
                of = claim_of(path.name)
                if of is not None and of <= claim:
                    self._remove(path)
            for path in _entries(self._removing):
                shutil.rmtree(path, ignore_errors=True)

    @property
    def _publishing(self) -> Path:
        return self.own / "publishing"

    @property
    def _removing(self) -> Path:
        return self.own / "removing"

    @property
    def _published(self) -> Path:
        return self.own / "published.json"

    def _publish_epoch(
        self, epoch: int, parts: Sequence[StagedOutput], claim: int, remembered: dict[str, str]
    ) -> None:
        if self._is_published(epoch, parts, remembered):
            return
        failpoint("sink.parquet.before_link")
        folder = self._publishing / f"{claim}-{epoch}-{secrets.token_hex(8)}"
        folder.mkdir()
        try:
            for output in parts:
                self._check(output)
                os.link(self.staged / output.name, folder / output.name)
            sync(folder)
            failpoint("sink.parquet.before_rename")
            folder.rename(self.epoch(epoch))
        except (OSError, CorruptionError) as error:
            with suppress(OSError):  # the next sweep gets it
                self._remove(folder)
            # Another publisher of this epoch was faster: its folder is in the way of our rename,
            # or the staged files are gone because it has done with them.
            if _may_mean_published(error) and self._is_published(epoch, parts, remembered):
                return
            raise
        sync(self.root)
        failpoint("sink.parquet.after_rename")

    def _is_published(
        self, epoch: int, parts: Sequence[StagedOutput], remembered: dict[str, str]
    ) -> bool:
        """Whether these files were published; an error if others were in their place."""
        if remembered.get(str(epoch)) == _digest(parts):
            return True
        target = self.epoch(epoch)
        try:
            there = {path.name for path in target.iterdir() if path.name[0] not in "._"}
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            there = {"(a file)"}
        if there == {output.name for output in parts}:
            return True
        raise ConfigurationError(
            f"{target} already holds other files than those of this pipeline's epoch {epoch}",
            hint="if the checkpoint directory is new, give its output a new folder too; if somebody "
            "changed files of a published epoch, put them back",
        )

    def _check(self, output: StagedOutput) -> None:
        """Raise unless the staged file is there and has the size that its task reported."""
        path = self.staged / output.name
        if claim_of(output.name) is None:
            raise CorruptionError(f"{output.name!r} is not a name of staged output")
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise CorruptionError(
                f"staged output {path} of epoch {output.epoch} is missing",
                hint="driver and executors must see the same folder; if the file was deleted, "
                "restore it or start from an older entry",
            ) from None
        if size != output.size_bytes:
            raise CorruptionError(
                f"staged output {path} of epoch {output.epoch} has {size} bytes instead of "
                f"{output.size_bytes}",
                hint="restore the file or start from an older entry",
            )

    def _remember(
        self, epochs: Sequence[tuple[int, Sequence[StagedOutput]]], remembered: dict[str, str]
    ) -> None:
        """Note which files were published, so that readers may compact or move them afterwards.

        Without the note, a restart that publishes once more would find neither the staged files
        nor the published ones, and have to call that a loss.
        """
        known = remembered | {str(epoch): _digest(parts) for epoch, parts in epochs}
        if known != remembered:
            latest = sorted(known, key=int)[-_EPOCHS_REMEMBERED:]
            replace_file(self._published, msgspec.json.encode({e: known[e] for e in latest}))

    def _remembered(self) -> dict[str, str]:
        try:
            return msgspec.json.decode(self._published.read_bytes(), type=dict[str, str])
        except (FileNotFoundError, msgspec.DecodeError):
            return {}  # It only ever forgives; without it nothing is forgiven.

    def _remove(self, folder: Path) -> None:
        """Take a folder out of ``publishing/`` in one step, then delete it.

        A publisher that was paused before its rename must find the folder whole or not at all.
        """
        away = self._removing / f"{folder.name}-{secrets.token_hex(8)}"
        try:
            folder.rename(away)
        except FileNotFoundError:
            return
        shutil.rmtree(away, ignore_errors=True)


def _digest(parts: Sequence[StagedOutput]) -> str:
    return xxhash.xxh3_64_hexdigest("\n".join(sorted(output.name for output in parts)).encode())


def _may_mean_published(error: OSError | CorruptionError) -> bool:
    taken = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
    return isinstance(error, CorruptionError) or error.errno in taken


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
