"""What users and contributors test with.

Spark is imported only by :class:`EpochSource`, and for testing PySpark's own ``StatefulProcessor``.

>>> import holdfast as hf
>>> sorted(hf.testing.__all__)
['EpochSource', 'ProcessorTester', 'Simulated', 'SinkTests', 'StorageTests', 'simulate']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.testing.processor import ProcessorTester

if TYPE_CHECKING:
    from holdfast.testing.sinks import SinkTests
    from holdfast.testing.source import EpochSource
    from holdfast.testing.storage import StorageTests
    from holdfast.testing.under_faults import Simulated, simulate

__all__ = [
    "EpochSource",
    "ProcessorTester",
    "Simulated",
    "SinkTests",
    "StorageTests",
    "simulate",
]

# These need Spark, pytest or other processes, which whoever tests a process may not.
_LAZY = {
    "EpochSource": "source",
    "Simulated": "under_faults",
    "SinkTests": "sinks",
    "StorageTests": "storage",
    "simulate": "under_faults",
}


if not TYPE_CHECKING:  # Type checkers should go on finding names that aren't there.

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            return getattr(import_module(f"holdfast.testing.{_LAZY[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
