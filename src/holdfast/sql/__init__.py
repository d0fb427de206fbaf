"""SQL for streams: a statement becomes calls of Holdfast's own API."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.stream import ResultStream, Rows, Stream

__all__ = ["sql"]


def sql(statement: str, /, **tables: Rows) -> Stream | ResultStream:
    """The rows that a SELECT makes of streams, which it knows by the names given here.

    The result is an operator's own if the statement ends with one, so that it can be named and its
    late rows can be had; otherwise a stream. What can't be done exactly is refused with an
    ``InputError``. See docs/sql.md. Needs ``holdfast[sql]``.

    >>> import holdfast as hf
    >>> def busy(bids: hf.Stream) -> hf.Stream | hf.ResultStream:
    ...     return sql("SELECT auction, count(*) AS n FROM bids GROUP BY auction", bids=bids)
    """
    from holdfast.errors import ConfigurationError

    try:
        import sqlglot  # noqa: F401 - only whether it is there
    except ImportError:
        raise ConfigurationError(
            "hf.sql needs sqlglot, which is not installed", hint='pip install "holdfast[sql]"'
        ) from None
    from holdfast.sql.statement import run

    return run(statement, tables)
