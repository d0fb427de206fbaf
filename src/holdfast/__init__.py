"""Managed state, checkpoints and recovery for PySpark streams.

>>> import holdfast as hf
>>> hf.__version__
'0.1.0'
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import sinks, testing
from holdfast.aggregates import (
    Aggregate,
    any_value,
    approx_count_distinct,
    avg,
    bool_and,
    bool_or,
    collect_list,
    collect_set,
    count,
    first,
    last,
    max,  # noqa: A004 - hf.max reads as Spark's F.max does
    min,  # noqa: A004
    stddev,
    stddev_pop,
    stddev_samp,
    sum,  # noqa: A004
    var_pop,
    var_samp,
    variance,
)
from holdfast.changes import Changes
from holdfast.checkpoint.coordinator import CheckpointEvent
from holdfast.errors import (
    ConfigurationError,
    CorruptionError,
    FencedError,
    FormatError,
    HoldfastError,
    InputError,
    InternalError,
    ProcessingError,
    StorageError,
    UnknownNameError,
)
from holdfast.folding import fold
from holdfast.joins import JoinedStream, VersionedStream
from holdfast.keyed import (
    AggregatedStream,
    ConnectedStream,
    DeduplicatedStream,
    KeyedStream,
    PartitionStream,
    ProcessedStream,
)
from holdfast.operators.process.batch import BatchProcess, BatchResult, KeyedBatch
from holdfast.operators.process.broadcast import BroadcastState
from holdfast.operators.process.declare import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from holdfast.operators.process.keyed import Context, KeyedProcess
from holdfast.operators.process.unkeyed import OperatorList, Process, UnionList
from holdfast.pipeline import Pipeline, pipeline
from holdfast.sql import sql
from holdfast.stream import ResultStream, Rows, Stream, configure, stream
from holdfast.tops import TopStream
from holdfast.windows import (
    AppliedStream,
    WindowedStream,
    WindowResultStream,
    emit,
    global_window,
    session,
    sliding,
    tumbling,
)

if TYPE_CHECKING:
    from holdfast.spark.adopt import Adoption

__version__ = "0.1.0"


def adopt(
    pipeline: ResultStream | Pipeline,
    name: str,
    checkpoint_dir: str | Path,
    spark_checkpoint: str | Path,
    *,
    operator: int | None = None,
) -> Adoption:
    """Take over the state and the position of a Spark query that was stopped.

    ``pipeline`` is what will go on in its place, started afterwards under ``name`` with
    ``checkpoint_dir``. See docs/adopt.md.
    """
    from holdfast.spark.adopt import adopt as adopt_query

    return adopt_query(pipeline, name, checkpoint_dir, spark_checkpoint, operator=operator)


__all__ = [
    "Aggregate",
    "AggregatedStream",
    "AggregatingState",
    "AppliedStream",
    "BatchProcess",
    "BatchResult",
    "BroadcastState",
    "Changes",
    "CheckpointEvent",
    "ConfigurationError",
    "ConnectedStream",
    "Context",
    "CorruptionError",
    "DeduplicatedStream",
    "FencedError",
    "FormatError",
    "HoldfastError",
    "InputError",
    "InternalError",
    "JoinedStream",
    "KeyedBatch",
    "KeyedProcess",
    "KeyedStream",
    "ListState",
    "MapState",
    "OperatorList",
    "PartitionStream",
    "Pipeline",
    "Process",
    "ProcessedStream",
    "ProcessingError",
    "ReducingState",
    "ResultStream",
    "Rows",
    "StorageError",
    "Stream",
    "TopStream",
    "UnionList",
    "UnknownNameError",
    "ValueState",
    "VersionedStream",
    "WindowResultStream",
    "WindowedStream",
    "adopt",
    "any_value",
    "approx_count_distinct",
    "avg",
    "bool_and",
    "bool_or",
    "collect_list",
    "collect_set",
    "configure",
    "count",
    "emit",
    "first",
    "fold",
    "global_window",
    "last",
    "max",
    "min",
    "pipeline",
    "session",
    "sinks",
    "sliding",
    "sql",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "stream",
    "sum",
    "testing",
    "tumbling",
    "var_pop",
    "var_samp",
    "variance",
]
