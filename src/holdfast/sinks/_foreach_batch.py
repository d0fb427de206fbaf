"""The sink that calls the user's function with each epoch."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from holdfast.errors import ConfigurationError, FencedError, HoldfastError, InputError
from holdfast.sinks.base import SinkContext
from holdfast.sinks.write_ahead import WriteAheadSink

__all__ = ["ForeachBatchSink", "foreach_batch"]

BatchFunction = Callable[[Any, int, bool], object]


def foreach_batch(fn: BatchFunction) -> ForeachBatchSink:
    """Call ``fn(df, epoch, maybe_repeated)`` on the driver with each epoch's output.

    ``df`` is a Spark DataFrame of the epoch's output, which passes through the driver's memory.
    The call comes after the log entry that covers the epoch, oldest epoch first, at least once:
    ``maybe_repeated`` is true if the same output may have been given to ``fn`` before (it raised, or
    the driver died before it could note the end of the call). Write under the epoch's number, or
    look whether it is there, and the result is exactly once. Epochs without output are not called.

    >>> def write(df, epoch, maybe_repeated):
    ...     df.write.mode("overwrite").parquet(f"out/epoch={epoch}")
    >>> foreach_batch(write).describe()
    'foreach_batch(write)'
    """
    return ForeachBatchSink(fn)


class ForeachBatchSink(WriteAheadSink):
    """What :func:`foreach_batch` makes."""

    def __init__(self, fn: BatchFunction) -> None:
        if not callable(fn):
            raise InputError(
                f"foreach_batch needs a function, not {fn!r}",
                hint="give it a function of (df, epoch, maybe_repeated)",
            )
        if not _takes_three(fn):
            raise InputError(
                f"the function {getattr(fn, '__qualname__', fn)} of foreach_batch can't be called with "
                "three arguments",
                hint="PySpark's foreachBatch gives two, this one gives maybe_repeated as well: "
                f"def {getattr(fn, '__name__', 'write')}(df, epoch, maybe_repeated)",
            )
        self._fn = fn

    def __repr__(self) -> str:
        return f"hf.sinks.{self.describe()}"

    def describe(self) -> str:
        """The function's name."""
        return f"foreach_batch({getattr(self._fn, '__qualname__', type(self._fn).__name__)})"

    def validate(self, context: SinkContext) -> None:
        """Raise unless there is a way to make DataFrames."""
        if context.to_dataframe is None:
            raise ConfigurationError(
                f"{self.describe()} needs a Spark session to make DataFrames",
                hint="start the pipeline from one, or use another sink",
            )

    def deliver(self, epoch: int, table: pa.Table, *, maybe_repeated: bool) -> None:
        """Call the function; its exception becomes a ``HoldfastError``, and it is called again."""
        make = self.context.to_dataframe
        if make is None:  # refused by validate
            raise ConfigurationError(f"{self.describe()} has no Spark session")
        df = make(table)
        try:
            self._fn(df, epoch, maybe_repeated)
        except FencedError:
            raise
        # sys.exit() would end only a thread of ours.
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what is raised quotes it
            raise HoldfastError(
                f"the function of {self.describe()} raised {type(error).__name__} for epoch "
                f"{epoch}: {error}\n{_users_part(error)}",
                hint="mend the function: it is called again with this epoch, which is safe in the "
                "checkpoint, and with maybe_repeated=True",
            ) from None  # The text has its traceback already, and those of its causes.


def _takes_three(fn: BatchFunction) -> bool:
    try:
        inspect.signature(fn).bind(None, 0, False)
    except TypeError:
        return False
    except ValueError:  # Some functions of C's don't say what they take.
        return True
    return True


def _users_part(error: BaseException) -> str:
    """The traceback from the user's function on."""
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()
