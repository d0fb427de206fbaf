"""The keys of Spark's state as Holdfast's: by name or by place, with Holdfast's hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it
from pyspark.sql import types as T  # noqa: N812

from holdfast.errors import InputError
from holdfast.spark.plans.buffers import clean
from holdfast.spark.types import arrow_type_nested, spark_type
from holdfast.state.schema import HASH
from holdfast.state.schema import Column as StateColumn

__all__ = ["Field", "hash_and_keys", "unpacked"]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct in Spark's state: its name, type, and the expression that reads it."""

    name: str
    type: T.DataType
    column: Column

    def __str__(self) -> str:
        return f"{self.name}: {self.type.simpleString()}"


def unpacked(
    state: DataFrame, *structs: str, keep: Sequence[str] = ()
) -> tuple[DataFrame, list[list[Field]]]:
    """The fields of struct columns, also where two have one name, and the frame to read them from."""
    columns, found = [F.col(name) for name in keep], []
    for struct in structs:
        kind = state.schema[struct].dataType
        assert isinstance(kind, T.StructType)
        # Equal names can't be told apart; a cast of structs goes by place.
        names = [f"_{index}" for index in range(len(kind))]
        renamed = T.StructType(
            [T.StructField(name, f.dataType) for name, f in zip(names, kind, strict=True)]
        )
        holder = f"_holdfast_{struct}"
        columns.append(F.col(struct).cast(renamed).alias(holder))
        fields = zip(kind, names, strict=True)
        found.append([Field(f.name, f.dataType, F.col(holder)[name]) for f, name in fields])
    return state.select(*columns), found


def hash_and_keys(keys: Sequence[StateColumn], there: Sequence[Field]) -> list[Column]:
    """Hash and keys, as the program names them; ``InputError`` if the old keys are others.

    Spark keeps the names of columns, not those given in ``groupBy``: unless all names are the same,
    keys go by their place.
    """
    for field in there:
        if isinstance(field.type, T.StructType) and field.type.names == ["start", "end"]:
            raise InputError(
                f"the old state is keyed by {field}, a window, and windows can't be adopted yet",
                hint="leave the job with Spark, or begin anew with a new checkpoint_dir",
            )
    names = [key.name for key in keys]
    ordered = list(there)
    if sorted(names) == sorted(field.name for field in there):
        ordered = [next(f for f in there if f.name == name) for name in names]
    wanted = [spark_type(key.type) for key in keys]
    # By way of Arrow: whether the fields of a struct may be null makes no difference.
    found = [arrow_type_nested(field.name, field.type) for field in ordered]
    if found != [key.type for key in keys]:
        old = ", ".join(map(str, there)) or "nothing"
        new = ", ".join(
            f"{n}: {kind.simpleString()}" for n, kind in zip(names, wanted, strict=True)
        )
        raise InputError(
            f"the old state is keyed by ({old}), the program by ({new})",
            hint="key by the same columns, in the same order and of the same types",
        )
    columns = [
        clean(field.column, key.type).alias(key.name)
        for field, key in zip(ordered, keys, strict=True)
    ]
    return [F.xxhash64(*columns).alias(HASH), *columns]
