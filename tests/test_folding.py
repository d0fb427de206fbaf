"""hf.fold on tables in memory; in Spark it is tested with the streams (tests/spark/test_changes.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import holdfast as hf

COUNTS = pa.table({"word": ["a", "b", "a", None], "n": [1, 1, 2, 5], "tags": [[1], [2], [3], None]})


def test_the_last_row_of_a_key_counts() -> None:
    folded = hf.fold(COUNTS, key="word", in_order=True)
    assert folded.to_pylist() == [
        {"word": "a", "n": 2, "tags": [3]},
        {"word": "b", "n": 1, "tags": [2]},
        {"word": None, "n": 5, "tags": None},
    ]
    assert folded.schema == COUNTS.schema


def test_an_epoch_decides_where_there_is_one() -> None:
    """Readers of a folder get its epochs in any order: epoch=10 comes before epoch=2."""
    rows = COUNTS.append_column("epoch", pa.array([10, 0, 2, 1]))
    assert hf.fold(rows, key=["word"], epoch="epoch").to_pylist() == [
        {"word": "a", "n": 1, "tags": [1]},
        {"word": "b", "n": 1, "tags": [2]},
        {"word": None, "n": 5, "tags": None},
    ]


def test_rows_that_are_taken_back_are_gone_and_others_stay_as_often_as_they_came() -> None:
    rows = pa.table(
        {"tags": [[1], [1], [2], [2], [1]], "change": pa.array([1, 1, 1, -1, 1], pa.int8())}
    )
    assert hf.fold(rows).to_pylist() == [{"tags": [1]}] * 3


def test_one_row_without_any_key() -> None:
    assert hf.fold(COUNTS.select(["n"]), key=(), in_order=True).to_pylist() == [{"n": 5}]


def test_no_rows_without_any_key_are_no_rows() -> None:
    none = pa.table({"n": pa.array([], pa.int64())})
    assert hf.fold(none, key=(), in_order=True).num_rows == 0
    assert len(hf.fold(none.to_pandas(), key=(), in_order=True)) == 0


def test_text_that_is_no_utf_8_is_a_key_like_any_other() -> None:
    words = pa.array([b"a\xff", b"ok", b"a\xff", b"a\xfe"]).view(pa.string())
    folded = hf.fold(pa.table({"word": words, "n": [1, 2, 3, 4]}), key="word", in_order=True)
    assert folded.column("n").to_pylist() == [3, 2, 4]
    back = hf.fold(pa.table({"word": words, "change": [1, 1, -1, 1]}))
    assert back.column("word").cast(pa.binary()).to_pylist() == [b"ok", b"a\xfe"]


def test_pandas_gives_pandas() -> None:
    frame = pd.DataFrame({"word": ["a", "b", "a"], "n": [1, 1, 2]})
    pd.testing.assert_frame_equal(
        hf.fold(frame, key="word", in_order=True), pd.DataFrame({"word": ["a", "b"], "n": [2, 1]})
    )
    assert len(hf.fold(frame.assign(change=[1, 1, 1]))) == 3


@pytest.mark.parametrize("nested", [False, True])
def test_arrays_in_pandas_are_compared_to_the_last_place(nested: bool) -> None:
    """NumPy's words for an array leave out the middle of a long one, and digits of a number."""
    first, second = np.zeros(2001), np.zeros(2001)
    first[1000], second[1000] = 0.1, 0.1 + 1e-12
    values: list[object] = [first, second, first.copy()]
    if nested:
        values = [{"deep": [value]} for value in values]
    rows = pd.DataFrame({"a": values, "n": pd.array([1, 1, 1], "Int8"), "change": [1, 1, -1]})
    (left,) = hf.fold(rows)["a"]
    assert left is values[1]
    assert hf.fold(rows)["n"].dtype == "Int8"
    newest = hf.fold(rows[["a", "n"]].assign(n=[1, 2, 3]), key="a", in_order=True)
    assert newest["n"].tolist() == [3, 2]


def test_what_it_refuses() -> None:
    with pytest.raises(hf.InputError, match="takes a Spark DataFrame"):
        hf.fold("out", key="word")
    with pytest.raises(hf.InputError, match="doesn't know whether these rows replace"):
        hf.fold(COUNTS)
    with pytest.raises(hf.InputError, match="no column 'wort'"):
        hf.fold(COUNTS, key="wort")
    with pytest.raises(hf.InputError, match="no column 'epoch'"):
        hf.fold(COUNTS, key="word", epoch="epoch")
    with pytest.raises(hf.InputError, match="taken back that aren't there"):
        hf.fold(pa.table({"n": [1, 1], "change": [-1, 1]}).slice(0, 1))


def test_zeros_of_either_sign_are_one_value_as_in_spark() -> None:
    rows = pa.table({"x": [0.0, -0.0], "l": [[0.0], [-0.0]], "change": [1, -1]})
    for table in (rows, rows.to_pandas()):
        assert len(hf.fold(table)) == 0
        values = table[["x", "l"]] if isinstance(table, pd.DataFrame) else table.select(["x", "l"])
        assert len(hf.fold(values, key=["x", "l"], in_order=True)) == 1


def test_what_is_missing_in_pandas_is_one_value_whatever_it_is_called() -> None:
    rows = pd.DataFrame({"word": ["a", None, np.nan, pd.NA], "n": [1, 2, 3, 4]})
    assert hf.fold(rows, key="word", in_order=True)["n"].tolist() == [1, 4]


@pytest.mark.parametrize(("given", "more", "words"), [
    ([{"word": "a"}], {"key": "word"}, "hf.fold takes a Spark DataFrame, an Arrow table or .*, not a list"),
    (COUNTS.to_batches()[0], {"key": "word"}, "not a RecordBatch"),
    (COUNTS, {"key": "word"}, "nothing says which of these rows are newer.* in_order=True if"),
    (COUNTS.to_pandas(), {"key": "word"}, "before toPandas\\(\\) or toArrow\\(\\)"),
    (pa.table({"n": [1], "change": [1]}), {"key": "n", "in_order": True}, "take rows back, and don't replace"),
    (COUNTS, {"of": COUNTS}, "of= of hf.fold takes a stream, not a Table"),
    (COUNTS, {"of": "word"}, "of= of hf.fold takes a stream, not 'word'"),
    (COUNTS, {"key": 5}, "key= of hf.fold takes names of columns, not 5"),
    (COUNTS, {"key": "n", "epoch": "word"}, "the column 'word' has 'a', which is no number"),
    (pa.table({"n": [1], "change": pa.array([None], pa.int8())}), {}, "'change' has None, which is no number"),
])  # fmt: skip
def test_what_cannot_be_folded_is_refused_in_words(given: Any, more: Any, words: str) -> None:
    with pytest.raises(hf.InputError, match=words):
        hf.fold(given, **more)
