"""The options of ``start``, checked before anything else happens."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import get_args

from holdfast.checkpoint.coordinator import CheckpointEvent
from holdfast.checkpoint.retention import Retention
from holdfast.choices import Durability, Trigger, check_choice
from holdfast.driver.local_files import default_local_dir
from holdfast.durations import Duration, parse_duration
from holdfast.errors import InputError
from holdfast.sizes import Size, parse_size
from holdfast.storage.local import check_no_home

__all__ = ["Options"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Options:
    """How a pipeline runs; see :meth:`holdfast.stream.Pipeline.start`."""

    name: str
    checkpoint_dir: str
    checkpoint_interval_s: float | None
    trigger_s: float
    available_now: bool
    manual: bool
    partitions: int | None
    every_epoch: bool
    retention: Retention
    max_ahead_bytes: int
    max_ahead_s: float
    memory_bytes: int
    local_dir: Path
    local_limit_bytes: int | None
    from_entry: int | None
    drop_state: tuple[str, ...]
    clock: Callable[[], int] | None
    on_checkpoint: tuple[Callable[[CheckpointEvent], None], ...]
    end_of_input: bool = False

    @classmethod
    def checked(
        cls,
        *,
        name: str,
        checkpoint_dir: str | Path,
        checkpoint_interval: Duration | None,
        trigger: Trigger | Duration,
        partitions: int | None,
        durability: Durability,
        keep_last: int,
        keep_for: Duration | None,
        max_ahead_bytes: Size,
        max_ahead: Duration,
        memory_bytes: Size,
        local_dir: str | Path | None,
        local_limit_bytes: Size | None,
        from_entry: int | None,
        drop_state: tuple[str, ...],
        clock: Callable[[], int] | None,
        on_checkpoint: tuple[Callable[[CheckpointEvent], None], ...],
        end_of_input: bool,
    ) -> Options:
        """Check and convert what the user wrote."""
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise InputError(
                f"{name!r} can't name a pipeline",
                hint="use letters, digits and _ . - (100 at most)",
            )
        if not isinstance(checkpoint_dir, str | PathLike) or not str(checkpoint_dir):
            raise InputError(
                f"checkpoint_dir can't be {checkpoint_dir!r}",
                hint='give a path or a URL: checkpoint_dir="ck", or "s3://bucket/ck"',
            )
        check_choice("durability", durability, Durability)
        if from_entry is not None and type(from_entry) is not int:
            raise InputError(
                f"from_entry must be the number of an entry, not {from_entry!r}",
                hint="holdfast checkpoints CK lists them",
            )
        for what, value in (("partitions", partitions), ("keep_last", keep_last)):
            if value is not None and not (isinstance(value, int | float) and value >= 1):
                raise InputError(f"{what} must be a number of at least 1, not {value!r}")
        word = trigger if isinstance(trigger, str) and trigger in get_args(Trigger) else None
        if isinstance(trigger, str) and word is None and not trigger.strip()[:1].isdigit():
            raise InputError(
                f"trigger can't be {trigger!r}",
                hint='it is "available-now" to read what there is and end, "manual" in tests, or how often '
                'to look for input: "10 s"',
            )
        if end_of_input and word != "available-now":
            raise InputError(
                f"end_of_input=True goes with trigger='available-now' only, not with {trigger!r} (which is "
                "'0 s' unless given): input that goes on has no end",
                hint='use trigger="available-now"; in a test with trigger="manual" let the sources say '
                "it: EpochSource.end()",
            )
        if local_dir is not None:
            check_no_home(local_dir)
        # Absolute: Spark may have been started from another folder.
        local = default_local_dir() if local_dir is None else Path(local_dir).absolute()
        try:
            str(local).encode()
        except UnicodeEncodeError:
            raise InputError(
                f"local_dir can't be {local}: its name is no UTF-8, and Arrow can't write there",
                hint="give a folder with another name",
            ) from None
        return cls(
            name=name,
            checkpoint_dir=str(checkpoint_dir),
            checkpoint_interval_s=None
            if checkpoint_interval is None
            else max(0.01, parse_duration(checkpoint_interval, "checkpoint_interval")),
            trigger_s=0.0 if word else parse_duration(trigger, "trigger"),
            available_now=word == "available-now",
            manual=word == "manual",
            partitions=partitions,
            every_epoch=durability == "epoch",
            retention=Retention(
                keep_last, None if keep_for is None else parse_duration(keep_for, "keep_for")
            ),
            max_ahead_bytes=parse_size(max_ahead_bytes, "max_ahead_bytes", least=1),
            max_ahead_s=parse_duration(max_ahead, "max_ahead"),
            memory_bytes=parse_size(memory_bytes, "memory_bytes", least=1 << 20),
            local_dir=local,
            local_limit_bytes=None
            if local_limit_bytes is None
            else parse_size(local_limit_bytes, "local_limit_bytes", least=1 << 20),
            from_entry=from_entry,
            drop_state=drop_state,
            clock=clock,
            on_checkpoint=on_checkpoint,
            end_of_input=end_of_input,
        )
