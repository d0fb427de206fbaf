"""hf.fold on tables in memory; in Spark it is tested with the streams (tests/spark/test_changes.py)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import holdfast as hf

COUNTS = pa.table({"word": ["a", "b", "a", None], "n": [1, 1, 2, 5], "tags": [[1], [2], [3], None]})


def test_the_last_row_of_a_key_counts() -> None:
    folded = hf.fold(COUNTS, key="word")
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
    assert hf.fold(COUNTS.select(["n"]), key=()).to_pylist() == [{"n": 5}]


def test_pandas_gives_pandas() -> None:
    frame = pd.DataFrame({"word": ["a", "b", "a"], "n": [1, 1, 2]})
    pd.testing.assert_frame_equal(
        hf.fold(frame, key="word"), pd.DataFrame({"word": ["a", "b"], "n": [2, 1]})
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
    newest = hf.fold(rows[["a", "n"]].assign(n=[1, 2, 3]), key="a")
    assert newest["n"].tolist() == [3, 2]


def test_what_it_refuses() -> None:
    with pytest.raises(hf.InputError, match="doesn't know whether these rows replace"):
        hf.fold(COUNTS)
    with pytest.raises(hf.InputError, match="no column 'wort'"):
        hf.fold(COUNTS, key="wort")
    with pytest.raises(hf.InputError, match="no column 'epoch'"):
        hf.fold(COUNTS, key="word", epoch="epoch")
    with pytest.raises(hf.InputError, match="taken back that aren't there"):
        hf.fold(pa.table({"n": [1, 1], "change": [-1, 1]}).slice(0, 1))
