"""Managed state, checkpoints and recovery for PySpark streams.

>>> import holdfast as hf
>>> hf.__version__
'0.1.0'
"""

from holdfast import sinks
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
)
from holdfast.stream import (
    AggregatedStream,
    KeyedStream,
    Pipeline,
    Stream,
    configure,
    stream,
)

__version__ = "0.1.0"

__all__ = [
    "Aggregate",
    "AggregatedStream",
    "CheckpointEvent",
    "ConfigurationError",
    "CorruptionError",
    "FencedError",
    "FormatError",
    "HoldfastError",
    "InputError",
    "InternalError",
    "KeyedStream",
    "Pipeline",
    "ProcessingError",
    "StorageError",
    "Stream",
    "any_value",
    "approx_count_distinct",
    "avg",
    "bool_and",
    "bool_or",
    "collect_list",
    "collect_set",
    "configure",
    "count",
    "first",
    "last",
    "max",
    "min",
    "sinks",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "stream",
    "sum",
    "var_pop",
    "var_samp",
    "variance",
]
