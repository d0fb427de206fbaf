"""Managed state, checkpoints and recovery for PySpark streams.

>>> import holdfast as hf
>>> hf.__version__
'0.1.0'
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from holdfast.checkpoint.entry import PlacedPartition
from holdfast.checkpoint.ledger import Ahead
from holdfast.choices import (
    ChangeKind,
    Durability,
    JoinKind,
    MergeName,
    OutputMode,
    QueryState,
    SortOrder,
    TimeKind,
    TimeMode,
    TopOutputMode,
    Trigger,
    TtlOn,
    VersionedKind,
)
from holdfast.durations import Duration
from holdfast.errors import (
    ConfigurationError,
    CorruptionError,
    FencedError,
    FormatError,
    HoldfastError,
    InputError,
    InternalError,
    ProcessingError,
    StateLostError,
    StorageError,
    TimedOutError,
    UnknownNameError,
)
from holdfast.folding import fold
from holdfast.grouped import GroupedStream, TransformedStream
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
from holdfast.operators.process.unkeyed import OperatorList, PartitionContext, Process, UnionList
from holdfast.pipeline import Pipeline, pipeline
from holdfast.sizes import Size
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
    from holdfast.driver.progress import EpochProgress
    from holdfast.driver.recovery import Recovery
    from holdfast.spark.adopt import Adoption
    from holdfast.spark.query import Query, QueryStatus

__version__ = "0.1.0"

# These need Spark, which whoever only tests a process may not have.
_LAZY = {
    "Adoption": "holdfast.spark.adopt",
    "EpochProgress": "holdfast.driver.progress",
    "Query": "holdfast.spark.query",
    "QueryStatus": "holdfast.spark.query",
    "Recovery": "holdfast.driver.recovery",
}
# What people try, and how it is said.
_HOW = {
    "trigger": "hf.emit(…) for when windows put results out; when Spark looks for input is start(…, trigger=…)",
    "mean": "hf.avg(column)",
    "count_distinct": "hf.approx_count_distinct(column)",
    "countDistinct": "hf.approx_count_distinct(column)",
    "window": 'key_by(…).window(hf.tumbling("1 minute"))',
    "session_window": 'key_by(…).window(hf.session("30 s"))',
}


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


if not TYPE_CHECKING:  # Type checkers should go on finding names that aren't there.

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            return getattr(import_module(_LAZY[name]), name)
        if name in _HOW:
            raise UnknownNameError(f"holdfast has no {name!r}", hint=f"say {_HOW[name]}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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

    >>> import holdfast as hf
    >>> def move(counts: hf.ResultStream) -> hf.Query:
    ...     pipeline = counts.write_to(hf.sinks.parquet("out"))
    ...     hf.adopt(pipeline, "counts", "ck", spark_checkpoint="old-checkpoint")
    ...     return pipeline.start("counts", checkpoint_dir="ck")
    """
    from holdfast.spark.adopt import adopt as adopt_query

    return adopt_query(pipeline, name, checkpoint_dir, spark_checkpoint, operator=operator)


__all__ = [
    "Adoption",
    "Aggregate",
    "AggregatedStream",
    "AggregatingState",
    "Ahead",
    "AppliedStream",
    "BatchProcess",
    "BatchResult",
    "BroadcastState",
    "ChangeKind",
    "Changes",
    "CheckpointEvent",
    "ConfigurationError",
    "ConnectedStream",
    "Context",
    "CorruptionError",
    "DeduplicatedStream",
    "Durability",
    "Duration",
    "EpochProgress",
    "FencedError",
    "FormatError",
    "GroupedStream",
    "HoldfastError",
    "InputError",
    "InternalError",
    "JoinKind",
    "JoinedStream",
    "KeyedBatch",
    "KeyedProcess",
    "KeyedStream",
    "ListState",
    "MapState",
    "MergeName",
    "OperatorList",
    "OutputMode",
    "PartitionContext",
    "PartitionStream",
    "Pipeline",
    "PlacedPartition",
    "Process",
    "ProcessedStream",
    "ProcessingError",
    "Query",
    "QueryState",
    "QueryStatus",
    "Recovery",
    "ReducingState",
    "ResultStream",
    "Rows",
    "Size",
    "SortOrder",
    "StateLostError",
    "StorageError",
    "Stream",
    "TimeKind",
    "TimeMode",
    "TimedOutError",
    "TopOutputMode",
    "TopStream",
    "TransformedStream",
    "Trigger",
    "TtlOn",
    "UnionList",
    "UnknownNameError",
    "ValueState",
    "VersionedKind",
    "VersionedStream",
    "WindowResultStream",
    "WindowedStream",
    "__version__",
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
