"""The lab's network: a namespace per host, a cable from each to a bridge in one of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from bench.lab.names import address_of, namespace_of
from holdfast.errors import ConfigurationError

__all__ = ["Network", "check_allowed", "namespaces_of", "remove_namespaces"]

_SWITCH = "sw"
_NAMESPACES = Path("/run/netns")
_PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "mount": "mount"}


def check_allowed(user: int | None = None) -> None:
    """Go on only as root and with the programs that are needed."""
    if (os.geteuid() if user is None else user) != 0:
        raise ConfigurationError(
            "the lab needs root: it makes network namespaces and mounts",
            hint="run it as root, e.g. sudo ./run lab up --hosts 3",
        )
    missing = {name: package for name, package in _PROGRAMS.items() if not shutil.which(name)}
    if missing:
        raise ConfigurationError(
            f"the lab needs {' and '.join(missing)}, which this machine hasn't got",
            hint=f"apt-get install {' '.join(sorted(set(missing.values())))}",
        )


def namespaces_of(lab: str) -> list[str]:
    """The network namespaces of a lab that exist, whoever made them and whenever.

    A lab called "a-h1" would have namespaces that look like those of a lab called "a": what
    follows the name must be the name of a host.
    """
    ours = re.compile(rf"{re.escape(lab)}-(?:nn|drv|{_SWITCH}|h\d+)")
    if not _NAMESPACES.exists():
        return []
    return sorted(path.name for path in _NAMESPACES.iterdir() if ours.fullmatch(path.name))


def remove_namespaces(lab: str) -> None:
    """Remove a lab's namespaces, and with them the cables."""
    for name in namespaces_of(lab):
        _run("ip", "netns", "delete", name)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ConfigurationError(
            f"{' '.join(command)!r} failed: {done.stderr.strip() or done.returncode}",
            hint="in a container, the lab needs --privileged or CAP_SYS_ADMIN and CAP_NET_ADMIN",
        )
    return done.stdout


class Network:
    """The cables of one lab."""

    def __init__(self, lab: str) -> None:
        self._lab = lab
        self._switch = namespace_of(lab, _SWITCH)

    def make_switch(self) -> None:
        """The bridge that joins the hosts. It has no way out of the lab."""
        _run("ip", "netns", "add", self._switch)
        self._ip(self._switch, "link add br0 type bridge")
        self._ip(self._switch, "link set br0 up")

    def add(self, host: str) -> None:
        """A namespace for a host, and its cable."""
        space = namespace_of(self._lab, host)
        _run("ip", "netns", "add", space)
        self._ip(space, "link set lo up")
        self._ip(space, f"link add eth0 type veth peer name {_port(host)} netns {self._switch}")
        self._ip(self._switch, f"link set {_port(host)} master br0 up")
        self._ip(space, f"addr add {address_of(self._lab, host)}/24 dev eth0")
        self._ip(space, "link set eth0 up")

    def cut(self, host: str) -> None:
        """Pull a host's cable out of the switch."""
        self._ip(self._switch, f"link set {_port(host)} down")

    def heal(self, host: str) -> None:
        """Put it back."""
        self._ip(self._switch, f"link set {_port(host)} up")

    def is_cut(self, host: str) -> bool:
        """Whether a host's cable is out."""
        return "UP" not in self._show(self._switch, _port(host))["flags"]

    def rate(self, host: str, rate: str | None) -> None:
        """Limit both directions of a host's cable, e.g. to "200mbit"; None lifts the limit."""
        for space, device in (
            (namespace_of(self._lab, host), "eth0"),
            (self._switch, _port(host)),
        ):
            self._rate(space, device, rate)

    def bytes(self, host: str) -> tuple[int, int]:
        """Bytes that a host has received and sent over its cable."""
        counters = self._show(namespace_of(self._lab, host), "eth0")["stats64"]
        return int(counters["rx"]["bytes"]), int(counters["tx"]["bytes"])

    def _rate(self, space: str, device: str, rate: str | None) -> None:
        qdisc = ("tc", "-n", space, "qdisc")
        if rate is not None:
            limit = ("tbf", "rate", rate, "burst", "256kb", "latency", "100ms")
            _run(*qdisc, "replace", "dev", device, "root", *limit)
        elif "tbf" in _run(*qdisc, "show", "dev", device):
            _run(*qdisc, "delete", "dev", device, "root")

    def _show(self, space: str, device: str) -> dict[str, Any]:
        text = _run("ip", "-n", space, "-s", "-j", "link", "show", "dev", device)
        shown: dict[str, Any] = json.loads(text)[0]
        return shown

    @staticmethod
    def _ip(space: str, arguments: str) -> None:
        _run("ip", "-n", space, *arguments.split())


def _port(host: str) -> str:
    return f"p-{host}"
