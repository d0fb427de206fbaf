"""PySpark's names on Holdfast's objects: those that are said otherwise here say how.

People type what they know. ``stream.writeStream`` or ``grouped.count()`` then tell the way to say it,
by an ``AttributeError``: to ``hasattr``, ``copy`` and ``pickle`` such a name isn't there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from holdfast.errors import UnknownNameError

__all__ = ["CONNECTED", "GROUPED", "KEYED", "PIPELINE", "QUERY", "ROWS", "WINDOWED", "SaysHow"]


class _Offers(type):
    """Completion looks at classes too, the interactive interpreter's for one."""

    def __dir__(cls) -> list[str]:
        hidden = _hidden(cls)
        return [name for name in super().__dir__() if name not in hidden]


def _hidden(kind: type) -> set[str]:
    """What users have no use for: a dataclass's fields, and what is said to be for other rooms."""
    internal = {name for each in kind.__mro__ for name in vars(each).get("_internal", ())}
    return internal | set(getattr(kind, "__dataclass_fields__", ()))


class SaysHow(metaclass=_Offers):
    """An object that people take for one of PySpark's.

    >>> class Query(SaysHow):
    ...     _how = {"awaitTermination": "await_termination()"}
    >>> hasattr(Query(), "awaitTermination")
    False
    >>> Query().awaitTermination
    Traceback (most recent call last):
    holdfast.errors.UnknownNameError: a Query has no 'awaitTermination'. What to do: say await_termination()
    """

    _how: ClassVar[Mapping[str, str]] = {}
    """For each name of PySpark's what to say instead."""
    _internal: ClassVar[tuple[str, ...]] = ()
    """Names, beside a dataclass's fields, that are for other rooms: tab completion doesn't offer them."""

    def __dir__(self) -> list[str]:
        hidden = _hidden(type(self))
        return [name for name in super().__dir__() if name not in hidden]

    if not TYPE_CHECKING:  # Type checkers should go on finding names that aren't there.

        def __getattr__(self, name: str) -> object:
            kind = type(self)
            if hasattr(kind, name):
                # It is there, and its own code raised an AttributeError, which is what to show.
                return object.__getattribute__(self, name)
            how = kind._how.get(name)  # noqa: SLF001 - its own
            if how is None:
                raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
            article = "an" if kind.__name__[0] in "AEIOU" else "a"
            raise UnknownNameError(
                f"{article} {kind.__name__} has no {name!r}", hint=f"say {how}"
            ) from None


def _each(names: str, how: str) -> dict[str, str]:
    """The same words for several names; ``{}`` stands for the name."""
    return {name: how.replace("{}", name) for name in names.split()}


def _joined(parts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {name: how for part in parts for name, how in part.items()}


_STEP = "transform(lambda df: df.{}(…)): any step of PySpark's without state goes there"
_WRITE = (
    'write_to(hf.sinks.parquet("out")).start("name", checkpoint_dir="ck"); sinks are named in '
    "docs/sinks.md, and foreachBatch(fn) is hf.sinks.foreach_batch(fn)"
)
_MODE = (
    'window(…, output_mode="update") or top(…, output_mode="append"), where results are made; aggregates put '
    "out what changed, and joins and processes each row once"
)
_LOOK = (
    "write_to(sink) with sink = hf.sinks.memory('seen') or hf.sinks.console(), and start it: rows are "
    "there as they come, in sink.rows()"
)
_SCHEMA = "rows.df.{}: rows.df is a DataFrame with these columns"
_AGGREGATE = (
    'key_by("word").aggregate(n=hf.count(), total=hf.sum("x")), with the keys that you mean; for one '
    "total over everything key_by(F.lit(0).alias('all'))"
)
_TOP = (
    'key_by("word").top(n, by=[("x", "desc")]), the first n of each key: a stream as a whole has no '
    "order and no end"
)
_ONCE = 'key_by("id").drop_duplicates(), by the columns that tell rows apart'
_STATEFUL = (
    'key_by("id").process(…) with an hf.KeyedProcess, or groupBy("id").transformWithState(…) with a '
    "StatefulProcessor"
)
_WITHOUT = "nothing instead: Holdfast keeps rows, state and checkpoints itself, where start(…) says"
_SETS = "key_by(…).aggregate(…) for each set of keys; hf.pipeline(…) runs all of them as one"
_BATCH = (
    "transform(…) for what needs one row alone, or take it from the results: "
    "spark.read.parquet(…) of what write_to(hf.sinks.parquet(…)) has published"
)

ROWS = _joined(
    (
        _each(
            "alias colRegex dropna fillna hint mapInArrow mapInPandas melt na replace "
            "to toDF toJSON unpivot withMetadata "
            "coalesce repartition repartitionById repartitionByRange metadataColumn observe asTable",
            _STEP,
        ),
        {
            "selectExpr": 'select_expr("a", "b + 1 AS c")',
            "withColumn": "with_column(name, column)",
            "withColumns": "with_columns({name: column})",
            "withColumnRenamed": "with_column_renamed(existing, new)",
            "withColumnsRenamed": "with_columns_renamed({existing: new})",
            "withWatermark": 'with_watermark("ts", "10 minutes")',
            "groupby": 'groupBy("id") for a StatefulProcessor, key_by("id") for all else',
            "explain": "write_to(…).explain(): a whole pipeline can be explained",
            "dropDuplicatesWithinWatermark": 'key_by("id").drop_duplicates(within_watermark=True)',
            "crossJoin": 'join(other, on="id", between=(…)): a join needs a key and a bound in time',
        },
        _each("unionAll unionByName", "union(other), which goes by the names of columns"),
        _each(
            "lateralJoin nearestByJoin",
            'join(other, on="id", between=(…)), or join_as_of(table, on="id")',
        ),
        _each("write writeStream writeTo mergeInto", _WRITE),
        _each(
            "foreach foreachPartition foreachBatch",
            "write_to(hf.sinks.foreach_batch(fn)), where fn(df, epoch, maybe_repeated) gets each epoch",
        ),
        _each("trigger option options format queryName start toTable", _WRITE),
        {"outputMode": _MODE},
        _each("agg aggregate count sum avg mean min max", _AGGREGATE),
        _each("cube rollup groupingSets", _SETS),
        _each("distinct dropDuplicates drop_duplicates", _ONCE),
        _each("limit offset orderBy sort sortWithinPartitions top", _TOP),
        _each(
            "collect first head isEmpty show tail take toArrow toLocalIterator toPandas pandas_api plot",
            _LOOK,
        ),
        _each("columns schema dtypes printSchema isStreaming sparkSession", _SCHEMA),
        _each(
            "cache checkpoint localCheckpoint persist unpersist storageLevel executionInfo inputFiles "
            "isLocal rdd sameSemantics semanticHash",
            _WITHOUT,
        ),
        _each(
            "createGlobalTempView createOrReplaceGlobalTempView createOrReplaceTempView createTempView "
            "registerTempTable",
            'hf.sql("SELECT … FROM words", words=stream), which needs no view',
        ),
        _each(
            "exceptAll intersect intersectAll subtract exists",
            'join(other, on="id", between=(…), how="semi") or how="anti"',
        ),
        _each(
            "approxQuantile corr cov crosstab describe freqItems randomSplit sample sampleBy scalar stat "
            "summary transpose zip zipWithIndex",
            _BATCH,
        ),
        _each(
            "transformWithState transformWithStateInPandas applyInPandasWithState applyInPandas "
            "applyInArrow apply",
            _STATEFUL,
        ),
        _each("pivot", "key_by(…).aggregate(…) with a filter for each value"),
        _each("cogroup", 'union(other), or join(other, on="id", between=(…))'),
    )
)
"""What a stream of rows says for the names of a DataFrame, its writer and its groups."""

_GROUPS = (
    _each("count sum avg mean min max agg", 'aggregate(n=hf.count(), total=hf.sum("x"))'),
    _each("pivot", "aggregate(…) with a filter for each value: hf.count(F.when(…, True))"),
    _each(
        "apply applyInPandas applyInArrow", "process(…) with an hf.BatchProcess, on Arrow columns"
    ),
    _each("applyInPandasWithState", "process(…) with an hf.KeyedProcess"),
    _each("cogroup", "union(other) before the grouping, or join(other, on=…, between=…)"),
)
_FIRST = "what is kept of each key first, such as aggregate(n=hf.count()): its results have {}"

KEYED = _joined(
    (
        *_GROUPS,
        _each(
            "transformWithState transformWithStateInPandas",
            'groupBy("id").{}(…) in the place of key_by',
        ),
        _each("dropDuplicates distinct", "drop_duplicates()"),
        {"dropDuplicatesWithinWatermark": "drop_duplicates(within_watermark=True)"},
        _each("limit orderBy sort", 'top(n, by=[("x", "desc")])'),
        _each(
            "select select_expr filter where drop with_column with_columns with_column_renamed "
            "with_columns_renamed write_to transform join union",
            _FIRST,
        ),
        {
            theirs: _FIRST.replace("{}", ours)
            for theirs, ours in {
                "selectExpr": "select_expr",
                "withColumn": "with_column",
                "withColumns": "with_columns",
                "withColumnRenamed": "with_column_renamed",
                "withColumnsRenamed": "with_columns_renamed",
            }.items()
        },
        _each("with_watermark withWatermark", 'with_watermark("ts", "10 minutes") before key_by'),
        _each("write writeStream", _FIRST.replace("its results have {}", "then write_to(sink)")),
    )
)
"""What rows grouped by key say."""

GROUPED = _joined(
    (
        {name: f"key_by(…).{how}" for part in _GROUPS for name, how in part.items()},
        _each("aggregate process window top drop_duplicates connect", "key_by(…).{}(…)"),
        {
            "applyInPandasWithState": "transformWithState(…) with a StatefulProcessor, or "
            "key_by(…).process(…) with an hf.KeyedProcess"
        },
        _each("write_to write writeStream", "transformWithState(…).write_to(sink)"),
    )
)
"""What PySpark's own grouping says for all that isn't a StatefulProcessor."""

WINDOWED = _joined(
    (
        _each("count sum avg mean min max agg", 'aggregate(n=hf.count(), total=hf.sum("x"))'),
        _each(
            "applyInPandas applyInArrow process",
            "apply(function, output), on the rows of all windows that close",
        ),
        _each("write_to write writeStream", "aggregate(n=hf.count()).write_to(sink)"),
    )
)
"""What rows in windows say."""

CONNECTED = _each("process aggregate window write_to transformWithState", "broadcast(process)")
"""What rows beside a control stream say."""

_START = 'start("name", checkpoint_dir="ck", trigger="10 s"), which takes all settings'
PIPELINE = _joined(
    (
        _each("option options queryName trigger format partitionBy clusterBy", _START),
        {"outputMode": _MODE},
        _each("foreach foreachBatch", "write_to(hf.sinks.foreach_batch(fn))"),
        _each("toTable", 'write_to(hf.sinks.parquet("out"))'),
        _each("awaitTermination await_termination", "start(…).await_termination()"),
        _each("write_to", "write_to(sink, another) on the stream, or hf.pipeline(one, other)"),
    )
)
"""What a whole pipeline says for the names of a DataStreamWriter."""

QUERY = {
    "awaitTermination": "await_termination()",
    "processAllAvailable": "process_all_available()",
    "isActive": "is_active",
    "lastProgress": "progress[-1]",
    "recentProgress": "progress",
    "id": "name: a pipeline is known by its name",
    "runId": "name: a pipeline is known by its name",
    "explain": "explain() of the pipeline, before start",
}
"""What a running pipeline says for the names of a StreamingQuery."""
