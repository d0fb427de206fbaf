"""How a folder of Parquet files gains a whole epoch at once, and once, however often it is tried.

::

    out/
      epoch-0000000007.parquet          published: what readers see; or a folder, see _layout.py
      _holdfast/                        readers skip names that begin with _
        pipeline.json                   whose folder this is
        staged/<claim>-<epoch>-<partition>-<nonce>-<checksum>.parquet
        publishing/<claim>-<epoch>-<unique>…  an epoch that is put together, a file with its checksum
        intents/<epoch>-<digest>        the one name in publishing/ that may become the epoch
        published.json                  what versions without intents have published
        removing/…                      what a sweep is about to delete

An epoch is put together of its staged files, under a new name in ``publishing/``. Then an *intent*
is created that says this name: of several publishers one creates it, and all go by it. What has the
name is renamed to what readers see: the one step that publishes. Since only what is intended is ever
renamed, and has one name, an intent whose name is gone says that the epoch was published, whatever
readers have done with it since. Therefore:

- what is put together reaches the disk before its intent does, and the intent before the rename;
- nothing else takes it away while its epoch may still have to be published;
- staged files go after the rename, and an intent only long after those.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa
import xxhash

from holdfast import runtime
from holdfast.checkpoint.entry import StagedOutput
from holdfast.errors import ConfigurationError, CorruptionError, HoldfastError
from holdfast.failpoints import failpoint
from holdfast.sinks._files import create_file, make_folder, storage_errors, sync
from holdfast.sinks._layout import EpochFiles, EpochLayout
from holdfast.sinks._staged import by_epoch, checksum_in, checksum_of_file, claim_of, epoch_of

__all__ = ["OutputFolder"]

_EPOCHS_REMEMBERED = 256
# What intents of older versions hold. A check that ran into the name would not look like one.
_UNCHECKED = re.compile(r"[0-9]+-[0-9]+-[0-9a-f]{16}(\.parquet)?")


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """The folder of one Parquet sink."""

    root: Path
    layout: EpochLayout = field(default_factory=EpochFiles)
    _latest: set[str] = field(default_factory=set, init=False, compare=False)
    """The intents of the latest epochs that were published."""

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
        """What readers see of an epoch."""
        return self.root / self.layout.name(epoch)

    def check(self) -> None:
        """Raise if what is Holdfast's lies elsewhere: readers may write to the root, and could have
        files of ours deleted, wherever they are."""
        for folder in (self.own, *self._own_folders):
            if folder.is_symlink():
                raise ConfigurationError(
                    f"{folder} is a symbolic link, but what the sink keeps must be in its own folder",
                    hint="put the folder that it points to in its place; if you don't know who made the "
                    "link, delete it",
                )

    def create(self) -> None:
        """Make the folders, durably."""
        for folder in (self.root, *self._own_folders):
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
        for output in outputs:
            _check_name(output)
        epochs = by_epoch(outputs)
        before = self._published_before_intents()
        for epoch, parts in epochs:
            with storage_errors(f"publish epoch {epoch} in {self.root}"):
                if before.get(str(epoch)) != _digest(parts):
                    self._publish_epoch(epoch, parts, claim)
                failpoint("sink.parquet.before_unlink")
                for output in parts:
                    (self.staged / output.name).unlink(missing_ok=True)
                failpoint("sink.parquet.after_unlink")
        with storage_errors(f"tidy up in {self.own}"):
            self._forget({self._intent(epoch, parts).name for epoch, parts in epochs})

    def sweep(self, keep: Sequence[StagedOutput], claim: int) -> None:
        """Remove what this and lower claims left behind, except what is to be published."""
        kept = {output.name for output in keep}
        # Whole epochs: a publisher that is paused may yet name its folder as the intended one.
        kept_epochs = {output.epoch for output in keep}
        with storage_errors(f"sweep {self.own}"):
            for path in _entries(self.staged):
                of = claim_of(path.name)
                if of is not None and of <= claim and path.name not in kept:
                    path.unlink(missing_ok=True)
            for path in _entries(self._publishing):
                of = claim_of(path.name)
                if of is not None and of <= claim and epoch_of(path.name) not in kept_epochs:
                    self._unintend(path.name)
                    self._remove(path)
            for path in _entries(self._removing):
                if claim_of(path.name) is not None:
                    _delete(path)

    @property
    def _own_folders(self) -> tuple[Path, ...]:
        return self._publishing, self._intents, self._removing, self.staged

    @property
    def _publishing(self) -> Path:
        return self.own / "publishing"

    @property
    def _removing(self) -> Path:
        return self.own / "removing"

    @property
    def _intents(self) -> Path:
        return self.own / "intents"

    def _intent(self, epoch: int, parts: Sequence[StagedOutput]) -> Path:
        return self._intents / f"{epoch}-{_digest(parts)}"

    def _publish_epoch(self, epoch: int, parts: Sequence[StagedOutput], claim: int) -> None:
        intent = self._intent(epoch, parts)
        if not self._is_there_without_intent(intent, epoch, parts):
            intended = _read_intent(intent, epoch)
            if intended is None:
                intended = self._intend(intent, epoch, parts, claim)
            else:
                self._check_prepared(self._publishing / intended, intent)
            sync(self._intents)  # another publisher's may not have reached the disk
            self._show(self._publishing / intended, epoch, parts)
        sync(self.root)
        failpoint("sink.parquet.after_sync")

    def _is_there_without_intent(
        self, intent: Path, epoch: int, parts: Sequence[StagedOutput]
    ) -> bool:
        """Whether a version that knew no intents has published it."""
        try:
            there = self._is_there(epoch, parts)
        except ConfigurationError:
            if intent.exists():
                return False  # what is there was ours once
            raise
        return there and not intent.exists()

    def _show(self, intended: Path, epoch: int, parts: Sequence[StagedOutput]) -> None:
        """Rename what is intended to what readers see, unless that was done."""
        failpoint("sink.parquet.before_rename")
        try:
            if self._is_there(epoch, parts):
                self._remove(intended)
        except ConfigurationError:
            if os.path.lexists(intended):
                raise
        with suppress(FileNotFoundError):
            intended.rename(self.epoch(epoch))
        failpoint("sink.parquet.after_rename")

    def _intend(self, intent: Path, epoch: int, parts: Sequence[StagedOutput], claim: int) -> str:
        """Settle what becomes the epoch; gives its name."""
        failpoint("sink.parquet.before_link")
        name = f"{claim}-{epoch}-{runtime.new_id()}{self.layout.extension}"
        made = self._publishing / name
        try:
            made = self._prepare(made, parts)
            name = made.name
            failpoint("sink.parquet.before_intent")
            created = create_file(intent, f"{name} {_check_of(name)}".encode())
        except (OSError, HoldfastError):
            # Another publisher may be faster, and staged files gone because it has done with them.
            intended = _read_intent(intent, epoch)
            if intended != name:
                with suppress(OSError):  # a later sweep gets it
                    self._remove(made)
            if intended is None:
                raise
            return intended
        failpoint("sink.parquet.after_intent")
        intended = _read_intent(intent, epoch)
        # A network file system may repeat a link whose reply was lost, and then say "exists" of ours.
        mine = created if intended is None else intended == name
        if not mine or not all((self.staged / output.name).exists() for output in parts):
            # Another's counts, or did so long ago that its intent is forgotten: then ours, which
            # is gone now, says the same.
            self._remove(made)
        return intended or name

    def _unintend(self, name: str) -> None:
        """Forget that a name was intended, if it was: gone, it would say that its epoch was published."""
        for intent in self._intents.glob(f"{epoch_of(name)}-*"):
            with suppress(CorruptionError):
                if _read_intent(intent, int(intent.name.partition("-")[0])) == name:
                    intent.unlink(missing_ok=True)

    def _prepare(self, into: Path, parts: Sequence[StagedOutput]) -> Path:
        """Put an epoch together, durably; a file gets its checksum into its name."""
        for output in parts:
            self._check(output)
            self._check_bytes(output)
        try:
            self.layout.prepare([self.staged / output.name for output in parts], into)
        except pa.ArrowException as error:
            raise CorruptionError(
                f"staged output of epoch {parts[0].epoch} in {self.staged} can't be read: {error}",
                hint="restore the file or start from an older entry",
            ) from error
        if into.is_file():
            into = into.rename(into.with_stem(f"{into.stem}.{checksum_of_file(into)}"))
        sync(self._publishing)
        return into

    def _check_prepared(self, made: Path, intent: Path) -> None:
        """Raise unless what was put together some time ago is as it was then (invariant 10)."""
        with suppress(FileNotFoundError):  # it is published
            for path in made.iterdir() if made.is_dir() else [made]:
                expected = checksum_in(path.name)
                if expected is not None and checksum_of_file(path) != expected:
                    raise CorruptionError(
                        f"{path}, which is about to be published, doesn't hold the bytes that were written",
                        hint=f"stop the pipeline, delete {intent} and then {made}, and start it again: "
                        "the epoch is put together anew",
                    )

    def _is_there(self, epoch: int, parts: Sequence[StagedOutput]) -> bool:
        """Whether readers see it; an error if something else is in its place."""
        return self.layout.is_there(self.epoch(epoch), {output.name for output in parts})

    def _check(self, output: StagedOutput) -> None:
        """Raise unless the staged file is there and has the size that its task reported."""
        _check_name(output)
        path = self.staged / output.name
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

    def _check_bytes(self, output: StagedOutput) -> None:
        """Raise unless the staged file holds what its task wrote (invariant 10)."""
        path, expected = self.staged / output.name, checksum_in(output.name)
        if expected is not None and checksum_of_file(path) != expected:
            raise CorruptionError(
                f"staged output {path} of epoch {output.epoch} doesn't hold the bytes that were written",
                hint="restore the file or start from an older entry",
            )

    def _forget(self, new: set[str]) -> None:
        """Remove the oldest intents: no entry lists their epochs any more.

        By age and not by epoch: numbers begin anew with a new checkpoint directory. Never those that were
        published just now, however many there are and whatever the clock says: their acknowledgement is in
        no entry yet. Nor those of the time before: should the newest entry be damaged, a start goes by the one
        below, which may list them.
        """
        spared = new | self._latest
        intents = [path for path in _entries(self._intents) if path.name not in spared]
        surplus = len(intents) + len(spared) - _EPOCHS_REMEMBERED
        if surplus > 0:
            for path in sorted(intents, key=_written_ns)[:surplus]:
                path.unlink(missing_ok=True)
        self._latest.clear()
        self._latest.update(new)

    def _published_before_intents(self) -> dict[str, str]:
        """What versions without intents noted; it only ever forgives."""
        try:
            noted = (self.own / "published.json").read_bytes()
            return msgspec.json.decode(noted, type=dict[str, str])
        except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
            return {}

    def _remove(self, made: Path) -> None:
        """Take something out of ``publishing/`` in one step, then delete it.

        A publisher that was paused before its rename must find it whole or not at all.
        """
        away = self._removing / f"{made.name}-{runtime.new_id()}"
        try:
            made.rename(away)
        except FileNotFoundError:
            return
        _delete(away)


def _check_name(output: StagedOutput) -> None:
    """Names come from the log: they may not lead elsewhere."""
    if claim_of(output.name) is None:
        raise CorruptionError(f"{output.name!r} is not a name of staged output")


def _digest(parts: Sequence[StagedOutput]) -> str:
    return xxhash.xxh3_64_hexdigest("\n".join(sorted(output.name for output in parts)).encode())


def _read_intent(intent: Path, epoch: int) -> str | None:
    """The name of what becomes the epoch; None if that isn't settled."""
    try:
        name, _, check = intent.read_bytes().decode(errors="replace").partition(" ")
    except FileNotFoundError:
        return None
    # A name that is gone says that the epoch was published: a wrong one would lose it (invariant 10).
    known = check == _check_of(name) if check else _UNCHECKED.fullmatch(name) is not None
    if epoch_of(name) != epoch or not known:
        raise CorruptionError(
            f"{intent} names nothing that could be published",
            hint="restore the file from a copy; if the epoch was never published, delete it",
        )
    return name


def _check_of(name: str) -> str:
    return xxhash.xxh3_64_hexdigest(name.encode())


def _written_ns(path: Path) -> int:
    """When a file was last written; another publisher may just have removed it."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
