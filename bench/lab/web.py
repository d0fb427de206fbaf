"""Questions to the daemons' web pages, asked from inside the lab: nothing outside can reach them."""

from __future__ import annotations

import ctypes
import http.client
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from bench.lab.names import address_of, namespace_of

__all__ = ["ask", "inside"]

T = TypeVar("T")
_NAMESPACES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000


def ask(lab: str, host: str, port: int, path: str) -> Any:
    """The JSON that a host answers; None if it doesn't."""

    def get() -> bytes:
        connection = http.client.HTTPConnection(address_of(lab, host), port, timeout=2)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()

    try:
        return json.loads(inside(namespace_of(lab, host), get))
    except (OSError, http.client.HTTPException, json.JSONDecodeError):
        return None


def inside(namespace: str, work: Callable[[], T]) -> T:
    """Call a function that uses the network of a host. Names aren't known there, addresses are.

    Belonging to a network namespace is a thread's own affair, so a thread does it and ends.
    """

    def enter_and_work() -> T:
        libc = ctypes.CDLL(None, use_errno=True)
        with (_NAMESPACES / namespace).open() as file:
            if libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"can't enter {namespace}")
        return work()

    with ThreadPoolExecutor(1, thread_name_prefix=namespace) as pool:
        return pool.submit(enter_and_work).result()
