"""Refuses input that Holdfast could not keep its promises for, before anything is touched."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from holdfast.errors import InputError
from holdfast.spark.jvm.trees import nodes, source_options

__all__ = ["check_stream"]

# Spark's stateful operators: their state would live outside Holdfast's log.
_STATEFUL = {
    "Aggregate": "groupBy().agg()",
    "Distinct": "distinct()",
    "Deduplicate": "dropDuplicates()",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark()",
    "FlatMapGroupsWithState": "flatMapGroupsWithState()",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState()",
    "TransformWithState": "transformWithState()",
    "TransformWithStateInPySpark": "transformWithState()",
    "TransformWithStateInPandas": "transformWithStateInPandas()",
    "GlobalLimit": "limit()",
}


def check_stream(df: DataFrame) -> None:
    """Raise ``InputError`` unless ``df`` is a stateless streaming DataFrame."""
    if not df.isStreaming:
        raise InputError(
            "hf.stream needs a streaming DataFrame, this one is a batch",
            hint="read it with spark.readStream",
        )
    for node in nodes(df._jdf.queryExecution().analyzed()):
        name = node.nodeName()
        if node.isStreaming() and (name in _STATEFUL or _joins_two_streams(name, node)):
            what = _STATEFUL.get(name, "a join of two streams")
            raise InputError(
                f"the DataFrame already holds a stateful operator of Spark's: {what}",
                hint="give hf.stream a stateless DataFrame and do the stateful part with Holdfast",
            )
        _check_clean_source(name, node)


def _joins_two_streams(name: str, node: Any) -> bool:
    return name == "Join" and bool(node.left().isStreaming() and node.right().isStreaming())


def _check_clean_source(name: str, node: Any) -> None:
    if name != "StreamingRelation":
        return
    for option, value in source_options(node):
        if option.lower() == "cleansource" and value.lower() != "off":
            raise InputError(
                f"the file source has cleanSource={value!r}: Spark would remove input of epochs "
                "that no checkpoint holds yet",
                hint='leave cleanSource "off" and remove old input yourself, behind the checkpoints',
            )
