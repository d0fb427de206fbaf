"""A map's entry has one name, however user code writes it, in small maps and in large ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import ProcessingError
from holdfast.operators.process import entries
from holdfast.operators.process.declare import MapState
from holdfast.operators.process.keyed import KeyedProcess
from holdfast.operators.process.rows import row_class
from tests.operators.process_harness import Harness

KEYS = (("k", pa.string()),)
UTC = timezone.utc


def harness(process: type[KeyedProcess], folder: Path) -> Harness:
    return Harness(process, folder, KEYS, (*KEYS, ("a", pa.int64())))


def one_entry(kind: str, first: Any, second: Any, folder: Path) -> list[list[Any]]:
    """Set one name, add to the other, and say what is there: twice, in two epochs."""

    class Entries(KeyedProcess):
        output = "n long, there boolean, entries long"
        m = MapState(kind, "long")

        def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
            self.m[first] = self.m.get(second, 0) + 1
            yield self.m[second], second in self.m and first in self.m, len(self.m)

    run = harness(Entries, folder)
    return [list(run.run([("k", e)], 1000 + e).output[0].values()) for e in range(3)]


NAMES: list[tuple[str, Any, Any]] = [
    ("string", "é", "é"),
    ("string", "not UTF-8: \udcff", "not UTF-8: \udcff"),
    ("long", 5, np.int64(5)),
    ("int", None, None),
    ("float", 0.1, np.float32(0.1)),
    ("double", 0.0, -0.0),
    ("double", float("nan"), float("nan")),
    ("decimal(10,2)", Decimal("1.0"), 1),
    ("date", date(2026, 1, 1), datetime(2026, 1, 1)),
    ("timestamp", datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)),
    ("timestamp_ntz", datetime(2026, 1, 1), datetime(2026, 1, 1)),
    ("binary", b"x", bytearray(b"x")),
    ("struct<a:int,b:string>", (1, "x"), {"b": "x", "a": 1}),
    ("struct<a:int,b:string>", {"a": 1}, row_class(("a", "b"))(1, None)),
    ("struct<a:int,b:string>", (1, "é\udcff"), {"b": "é\udcff", "a": 1}),
    ("struct<a:double>", (float("nan"),), (float("nan"),)),
]


@pytest.mark.parametrize("large", [256, 0], ids=["fetched", "entry by entry"])
@pytest.mark.parametrize(("kind", "first", "second"), NAMES, ids=[str(n) for n in NAMES])
def test_two_ways_to_write_a_name_mean_one_entry(
    kind: str,
    first: Any,
    second: Any,
    large: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entries, "LARGE", large)
    seen = one_entry(kind, first, second, tmp_path)
    assert seen == [[1, True, 1], [2, True, 1], [3, True, 1]]


@pytest.mark.parametrize(
    ("kind", "wrong"), [("long", "x"), ("long", True), ("boolean", 1), ("date", "2026-01-01")]
)
def test_a_name_of_another_type_is_an_error_at_once(kind: str, wrong: Any, tmp_path: Path) -> None:
    class Wrong(KeyedProcess):
        output = "n long"
        m = MapState(kind, "long")

        def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> None:
            self.m[wrong] = 1

    with pytest.raises(ProcessingError, match=r"k='it'.*epoch 0") as raised:
        harness(Wrong, tmp_path).run([("it", 0)], 1000)
    assert "self.m[wrong] = 1" in str(raised.value)
