"""What users and contributors test with.

Spark is needed, and imported, only by :class:`EpochSource`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.testing.sinks import SinkTests
from holdfast.testing.storage import StorageTests

if TYPE_CHECKING:
    from holdfast.testing.source import EpochSource

__all__ = ["EpochSource", "SinkTests", "StorageTests"]


def __getattr__(name: str) -> Any:
    if name == "EpochSource":
        from holdfast.testing.source import EpochSource

        return EpochSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
