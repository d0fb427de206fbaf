"""What one aggregate does to its buffers: merge those of equal keys, and finish them.

A *buffer* is the part of a state row that belongs to one aggregate: one or more columns. Input rows
reach a task as buffers, too (of one input row, or of all rows of a key in a map partition), so that
there is one operation only: merge the buffers of a key, however many there are and wherever they
come from. Merging must not depend on order or grouping (invariant 4).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from holdfast.operators.groups import RowGroups

__all__ = ["Merger"]


class Merger(ABC):
    """An aggregate, resolved for its input types. Small and picklable."""

    parts: tuple[tuple[str, pa.DataType], ...]
    """Name and type of each buffer column."""
    result: pa.DataType
    """The type of the finished result."""

    @abstractmethod
    def merge(self, parts: Sequence[pa.Array], groups: RowGroups) -> list[pa.Array]:
        """One buffer per group. ``GroupOverflow`` if a group's buffer doesn't fit its type."""

    @abstractmethod
    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        """The result of each buffer. ``GroupOverflow`` if one doesn't fit :attr:`result`."""
