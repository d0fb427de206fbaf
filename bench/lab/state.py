"""What a lab is made of, kept in its folder so that another process can find and end it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from holdfast.errors import ConfigurationError, InputError

__all__ = ["Setup", "megabytes"]

_UNITS = {"k": 1 / 1024, "m": 1, "g": 1024}


def megabytes(text: str) -> int:
    """An amount of memory as Spark writes it, in MiB.

    >>> megabytes("1g"), megabytes("512m")
    (1024, 512)
    """
    match = re.fullmatch(r"(\d+)([kmg])b?", text.strip().lower())
    if match is None:
        raise InputError(f"{text!r} is no amount of memory", hint='write "512m" or "2g"')
    return int(int(match[1]) * _UNITS[match[2]])


@dataclass(frozen=True, slots=True)
class Setup:
    """What was asked for."""

    name: str
    workers: tuple[str, ...]
    hdfs: bool = False
    rate: str | None = None
    cores: int = 2
    memory: str = "1g"
    executors_per_host: int = 1
    replication: int = 1
    """Of HDFS files whose writer doesn't say."""
    racks: Mapping[str, str] = field(default_factory=dict)
    disk_size: str | None = None
    """Each host's disk is a tmpfs of this size (``64m``); None: a folder without a limit."""

    def __post_init__(self) -> None:
        if not 1 <= self.executors_per_host <= self.cores:
            raise InputError(
                f"{self.executors_per_host} executors can't share {self.cores} cores of a host",
                hint="at least one core each",
            )
        # Hosts that will join later may be named: HDFS reads the racks only once.
        strangers = sorted(host for host in self.racks if not re.fullmatch(r"h[1-9]\d*", host))
        if strangers:
            raise InputError(f"racks names {strangers}", hint="the hosts are h1, h2, …")

    @property
    def executor_cores(self) -> int:
        """The cores of one executor."""
        return self.cores // self.executors_per_host

    @property
    def executor_mib(self) -> int:
        """The heap of one executor."""
        return megabytes(self.memory) // self.executors_per_host

    def with_worker(self, host: str) -> Setup:
        """With one more host."""
        return replace(self, workers=(*self.workers, host))

    def with_rate(self, rate: str | None) -> Setup:
        """With other cables."""
        return replace(self, rate=rate)

    def save(self, path: Path) -> None:
        """Write it down."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Setup:
        """Read it back."""
        try:
            fields = json.loads(path.read_text())
        except FileNotFoundError:
            raise ConfigurationError(
                f"there is no lab in {path.parent}", hint="./run lab up --hosts 3"
            ) from None
        return cls(**(fields | {"workers": tuple(fields["workers"])}))
