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
    sum,  # noqa: A004
    variance,
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
