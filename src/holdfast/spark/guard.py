"""Refuses input that Holdfast could not keep its promises for, before anything is touched."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame

from holdfast.errors import InputError
from holdfast.spark.jvm.trees import streaming_steps

__all__ = ["check_stream"]

_FILES = "StreamingRelation"
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
    for step in streaming_steps(df):
        if step.name in _STATEFUL or step.of_two_streams:
            what = _STATEFUL.get(step.name, "a join of two streams")
            raise InputError(
                f"the DataFrame already holds a stateful operator of Spark's: {what}",
                hint="give hf.stream a stateless DataFrame and do the stateful part with Holdfast",
            )
        if step.name == _FILES:
            _check_clean_source(step.options)


def _check_clean_source(options: Iterable[tuple[str, str]]) -> None:
    for option, value in options:
        if option.lower() == "cleansource" and value.lower() != "off":
            raise InputError(
                f"the file source has cleanSource={value!r}: Spark would remove input of epochs "
                "that no checkpoint holds yet",
                hint='leave cleanSource "off" and remove old input yourself, behind the checkpoints',
            )
