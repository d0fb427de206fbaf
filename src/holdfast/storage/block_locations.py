"""Which hosts hold an HDFS file: asked of the NameNode over WebHDFS.

The Python client of HDFS doesn't tell block locations, so this speaks the NameNode's public HTTP
interface (``GETFILEBLOCKLOCATIONS``), which is on unless ``dfs.webhdfs.enabled`` is false.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from urllib.parse import quote

__all__ = ["Locator", "WebHdfsLocator", "hosts_of_all"]

Locator = Callable[[str], Sequence[Sequence[str]]]
"""Takes a file's absolute path; gives, for each of its blocks, the hosts that hold it."""


class WebHdfsLocator:
    """Block locations from a NameNode's HTTP address, ``http://nn:9870``."""

    def __init__(self, address: str, timeout_s: float = 5) -> None:
        self.address = address.rstrip("/")
        self.timeout_s = timeout_s

    def __call__(self, path: str) -> list[list[str]]:
        """The hosts of each block; ``OSError`` or ``ValueError`` if the NameNode doesn't say."""
        url = f"{self.address}/webhdfs/v1{quote(path)}?op=GETFILEBLOCKLOCATIONS"
        # Without security the NameNode believes who asks, as it does the other client.
        if user := os.environ.get("HADOOP_USER_NAME"):
            url += f"&user.name={quote(user)}"
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{self.address!r} is no HTTP address")
        with urllib.request.urlopen(url, timeout=self.timeout_s) as answer:  # noqa: S310 - checked
            found = json.load(answer)["BlockLocations"]["BlockLocation"]
        return [list(map(str, block["hosts"])) for block in found]


def hosts_of_all(blocks: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The hosts that hold every block, in the order of the first one's.

    >>> hosts_of_all([["h1", "h2"], ["h3", "h1"]])
    ('h1',)
    >>> hosts_of_all([])
    ()
    """
    if not blocks:
        return ()
    everywhere = set(blocks[0]).intersection(*blocks[1:])
    return tuple(host for host in dict.fromkeys(blocks[0]) if host in everywhere)
