"""User code on its way to the workers.

A class is pickled by name, and workers import its module: which they can't if it lies beside the
driver's program and nowhere else. Such modules are sent along instead.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle

__all__ = ["pickled", "send_along"]

_INSTALLED = [
    Path(folder).resolve()
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (folder := sysconfig.get_path(name))
]
_HOLDFAST = Path(__file__).resolve().parents[2]


def send_along(process: object) -> None:
    """Have the modules of an object's classes pickled by value, unless every worker has them."""
    for cls in type(process).__mro__:
        module = sys.modules.get(cls.__module__)
        if module is not None and cls.__module__ != "__main__" and not _is_everywhere(module):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def pickled(thing: object) -> bytes:
    """Something as workers get it."""
    sent: bytes = cloudpickle.dumps(thing)  # type: ignore[no-untyped-call]
    return sent


def _is_everywhere(module: ModuleType) -> bool:
    """Whether a module is installed: part of Python, of a package, or of Holdfast."""
    file = getattr(module, "__file__", None)
    if file is None:
        return True
    path = Path(file).resolve()
    return any(path.is_relative_to(folder) for folder in (*_INSTALLED, _HOLDFAST))
