"""PySpark's own way to make pandas values of nested columns: a user's function gets what it is used to."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import DataType

from holdfast.spark.jvm.probing import Capability

__all__ = ["CONVERSION", "as_pyspark_does"]

CONVERSION = Capability(
    "values as PySpark hands them to pandas",
    {},
    python=("pyspark.sql.pandas.types:_create_converter_to_pandas",),
)


def as_pyspark_does(series: Any, kind: DataType, zone: str) -> Any:
    """A series of a nested type as PySpark hands it to functions on pandas: structs are dicts."""
    from pyspark.sql.pandas.types import _create_converter_to_pandas

    return _create_converter_to_pandas(
        kind, timezone=zone, struct_in_pandas="dict", error_on_duplicated_field_names=False
    )(series)
