"""Names, addresses and files of a lab: what follows from its name and number of hosts alone."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import InputError

__all__ = [
    "DRIVER",
    "MASTER",
    "Place",
    "address_of",
    "enter_command",
    "hosts_file",
    "namespace_of",
    "rack_table",
    "worker_names",
]

MASTER = "nn"
DRIVER = "drv"
_FIRST = {MASTER: 2, DRIVER: 3}
_MOST = 200
# The kernel allows 15 characters in the name of an interface; a namespace's name is free, but is
# read by people.
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")

# A host's processes see its own name, the lab's hosts file, and its own disk at the common path.
# "exec" all the way: the process that was started is the program, so its id is the program's.
_ENTER = (
    'hostname "$1" && mount --bind "$2" /etc/hosts && mount --bind "$3" "$4" '
    '&& shift 4 && exec "$@"'
)


def worker_names(count: int) -> tuple[str, ...]:
    """The hosts that compute and store.

    >>> worker_names(2)
    ('h1', 'h2')
    """
    if not 1 <= count <= _MOST:
        raise InputError(f"a lab of {count} hosts can't be made", hint=f"1 to {_MOST} hosts")
    return tuple(f"h{number}" for number in range(1, count + 1))


def namespace_of(lab: str, host: str) -> str:
    """The network namespace of a host.

    >>> namespace_of("lab", "h1")
    'lab-h1'
    """
    if not _NAME.fullmatch(lab):
        raise InputError(
            f"{lab!r} can't be the name of a lab",
            hint="small letters, digits and hyphens, at most 31, beginning with a letter",
        )
    return f"{lab}-{host}"


def address_of(lab: str, host: str) -> str:
    """A host's address: a /24 of 198.18.0.0/15 (set aside for tests of networks) per lab.

    Two labs may draw the same /24: their bridges aren't joined, so they never meet.

    >>> address_of("lab", "h1")
    '198.19.196.11'
    """
    number = zlib.crc32(lab.encode()) % 512
    last = _FIRST[host] if host in _FIRST else 10 + int(host.removeprefix("h"))
    return f"198.{18 + number // 256}.{number % 256}.{last}"


def hosts_file(lab: str, hosts: Iterable[str]) -> str:
    """The lab's ``/etc/hosts``.

    >>> print(hosts_file("lab", ["h1"]), end="")
    127.0.0.1 localhost
    198.19.196.11 h1
    """
    lines = ["127.0.0.1 localhost", *(f"{address_of(lab, host)} {host}" for host in hosts)]
    return "\n".join(lines) + "\n"


def rack_table(lab: str, racks: Mapping[str, str]) -> str:
    """Which rack a host stands in, as Hadoop's ``TableMapping`` reads it: by name and by address.

    >>> rack_table("lab", {"h1": "/r1"})
    'h1 /r1\\n198.19.196.11 /r1\\n'
    """
    return "".join(f"{h} {rack}\n{address_of(lab, h)} {rack}\n" for h, rack in racks.items())


@dataclass(frozen=True, slots=True)
class Place:
    """Where a lab keeps its files. Nothing outside this folder is written."""

    folder: Path

    @property
    def state(self) -> Path:
        """What the lab is made of; there while the lab is up, or was not taken down."""
        return self.folder / "lab.json"

    @property
    def hosts(self) -> Path:
        """The lab's ``/etc/hosts``."""
        return self.folder / "etc-hosts"

    @property
    def conf(self) -> Path:
        """What programs in the lab are given as SPARK_CONF_DIR and HADOOP_CONF_DIR."""
        return self.folder / "conf" / "client"

    @property
    def daemon_conf(self) -> Path:
        """SPARK_CONF_DIR of Spark's own daemons."""
        return self.folder / "conf" / "spark"

    @property
    def racks(self) -> Path:
        """Which host stands in which rack."""
        return self.folder / "conf" / "racks"

    @property
    def common(self) -> Path:
        """The path at which every host sees its own disk."""
        return self.folder / "disk"

    def disk(self, host: str) -> Path:
        """A host's own disk, seen from outside."""
        return self.folder / "hosts" / host / "disk"

    def spark(self, host: str) -> Path:
        """Where Spark on this host keeps shuffles and spills."""
        return self.folder / "hosts" / host / "spark"

    def work(self, host: str) -> Path:
        """Where the host's executors work and write their logs. Stays when the lab goes."""
        return self.folder / "logs" / f"work-{host}"


def enter_command(lab: str, host: str, place: Place, command: Sequence[str]) -> list[str]:
    """A command line that runs another one on a host.

    >>> enter_command("lab", "h1", Place(Path("/x")), ["true"])[:4]
    ['ip', 'netns', 'exec', 'lab-h1']
    """
    mounts = (str(place.hosts), str(place.disk(host)), str(place.common))
    entered = ("ip", "netns", "exec", namespace_of(lab, host), "unshare", "--mount", "--uts")
    return [*entered, "sh", "-c", _ENTER, "sh", host, *mounts, *command]
