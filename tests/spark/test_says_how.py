"""Names of PySpark's that people try on a stream: each works, or says how to say it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import holdfast as hf
from holdfast.grouped import GroupedStream
from holdfast.keyed import ConnectedStream, KeyedStream
from holdfast.spark.query import Query
from holdfast.spark.says_how import SaysHow
from holdfast.windows import WindowedStream

STREAM = hf.Stream(())
KEYED = KeyedStream(STREAM, ("word",))
GROUPED = STREAM.groupBy("word")
WINDOWED = WindowedStream(STREAM, (), hf.tumbling("1 s"), hf.emit(), "append")
PIPELINE = hf.Pipeline(())
EVERYONE: list[Any] = [STREAM, KEYED, GROUPED, WINDOWED, PIPELINE, ConnectedStream(KEYED, STREAM)]


def names_of(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (hf.Stream, DataFrame),
        (hf.Stream, GroupedData),
        (hf.ResultStream, DataFrame),
        (KeyedStream, GroupedData),
        (GroupedStream, GroupedData),
        (hf.Pipeline, DataStreamWriter),
        (Query, StreamingQuery),
    ],
    ids=lambda kind: kind.__name__,
)
def test_every_name_of_pysparks_works_or_says_how(ours: type[SaysHow], theirs: type) -> None:
    silent = [n for n in names_of(theirs) if not hasattr(ours, n) and n not in ours._how]
    assert not silent


@pytest.mark.parametrize("thing", EVERYONE, ids=lambda thing: type(thing).__name__)
def test_what_is_said_names_what_is_there(thing: Any) -> None:
    for name in type(thing)._how:
        assert not hasattr(type(thing), name), f"{name} works, and would never say how"
        assert not hasattr(thing, name)
        with pytest.raises(hf.UnknownNameError, match=f"has no '{name}'. What to do: say ") as said:
            getattr(thing, name)
        assert isinstance(said.value, AttributeError)
        assert isinstance(said.value, hf.InputError)
        assert "{}" not in str(said.value)
        assert getattr(thing, name, None) is None


def test_what_people_try_first() -> None:
    with pytest.raises(hf.UnknownNameError, match=r"write_to\(hf.sinks.parquet"):
        _ = STREAM.writeStream  # type: ignore[attr-defined]
    with pytest.raises(hf.UnknownNameError, match=r"key_by\(…\).aggregate\(n=hf.count\(\)"):
        GROUPED.count()  # type: ignore[attr-defined]
    with pytest.raises(hf.UnknownNameError, match=r'say key_by\("word"\).aggregate\('):
        STREAM.aggregate(n=hf.count())  # type: ignore[attr-defined]
    with pytest.raises(hf.UnknownNameError, match=r'say key_by\("word"\).top\('):
        STREAM.top(3, by="n")  # type: ignore[attr-defined]
    with pytest.raises(hf.UnknownNameError, match=r"say with_column_renamed\(existing, new\)"):
        STREAM.withColumnRenamed("a", "b")  # type: ignore[attr-defined]
    for thing in (STREAM, PIPELINE):
        with pytest.raises(hf.UnknownNameError, match=r'say window\(…, output_mode="update"\)'):
            thing.outputMode("update")  # type: ignore[union-attr]
    with pytest.raises(hf.UnknownNameError, match=r"transform\(lambda df: df.fillna"):
        STREAM.fillna(0)  # type: ignore[attr-defined]
    with pytest.raises(hf.UnknownNameError, match=r"its results have select_expr"):
        KEYED.selectExpr("a")  # type: ignore[attr-defined]
    with pytest.raises(hf.UnknownNameError, match=r'start\("name", checkpoint_dir'):
        PIPELINE.trigger(availableNow=True)  # type: ignore[attr-defined]


@pytest.mark.parametrize("thing", EVERYONE, ids=lambda thing: type(thing).__name__)
def test_all_else_is_pythons_own_affair(thing: Any) -> None:
    assert type(copy.copy(thing)) is type(copy.deepcopy(thing)) is type(thing)
    assert type(pickle.loads(pickle.dumps(thing))) is type(thing)
    for name in ("nonsense", "_repr_html_", "__array__", "__len__"):
        with pytest.raises(AttributeError) as said:
            getattr(thing, name)
        assert not isinstance(said.value, hf.HoldfastError)


def test_an_attribute_error_of_a_property_is_shown_as_it_is() -> None:
    class Broken(hf.Stream):
        @property
        def watermark(self) -> Any:
            return "text".nonsense  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="'str' object has no attribute 'nonsense'"):
        _ = Broken(()).watermark
