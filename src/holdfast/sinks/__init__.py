"""Where output goes, exactly once.

:func:`parquet` publishes each epoch exactly once; :func:`memory` keeps it for tests and notebooks;
:func:`console` prints it; :func:`foreach_batch` calls your function; :func:`noop` drops it. To write
another, subclass :class:`Sink` (it stages output itself) or :class:`WriteAheadSink` (output waits in
checkpoint storage), and test it with :class:`holdfast.testing.SinkTests`.

>>> import holdfast as hf
>>> hf.sinks.parquet("out")
hf.sinks.parquet('out')
"""

from holdfast.checkpoint.entry import StagedOutput
from holdfast.sinks._console import console
from holdfast.sinks._foreach_batch import foreach_batch
from holdfast.sinks._memory import memory, memory_table
from holdfast.sinks._noop import noop
from holdfast.sinks._parquet import parquet
from holdfast.sinks.base import Sink, SinkContext, Stager, StageWriter
from holdfast.sinks.write_ahead import WriteAheadSink

__all__ = [
    "Sink",
    "SinkContext",
    "StageWriter",
    "StagedOutput",
    "Stager",
    "WriteAheadSink",
    "console",
    "foreach_batch",
    "memory",
    "memory_table",
    "noop",
    "parquet",
]


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
