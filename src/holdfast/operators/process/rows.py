"""What rows look like to user code: named tuples that also know their columns by name."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa

from holdfast.operators.process.convert import to_python

__all__ = ["row_class", "to_rows"]


@lru_cache(maxsize=256)
def row_class(names: tuple[str, ...]) -> Any:
    """A class of rows with these columns.

    >>> row = row_class(("price", "not an identifier"))(3, 4)
    >>> row.price, row["not an identifier"], row[0]
    (3, 4, 3)
    """
    # Names that Python can't have as attributes are reached by row["name"] alone.
    base = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    places = {name: place for place, name in enumerate(names)}

    class Row(base):
        __slots__ = ()

        def __getitem__(self, item: Any) -> Any:
            if isinstance(item, str):
                if item not in places:
                    raise KeyError(f"no column {item!r}; there are: {', '.join(names)}")
                item = places[item]
            return tuple.__getitem__(self, item)

        def as_dict(self) -> dict[str, Any]:
            """The row as a dict."""
            return dict(zip(names, self, strict=True))

    return Row


def to_rows(table: pa.Table) -> Sequence[Any]:
    """All rows of a table."""
    if not table.num_columns:
        return [row_class(())()] * table.num_rows
    # The constructor of tuples itself: a namedtuple's own one takes three times as long.
    make = partial(tuple.__new__, row_class(tuple(table.column_names)))
    return list(map(make, zip(*(to_python(column) for column in table.columns), strict=True)))
