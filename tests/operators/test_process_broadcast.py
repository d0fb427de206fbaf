"""Broadcast state: every partition sees the same, and only control rows change it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import HoldfastError
from holdfast.operators.process.broadcast import BroadcastState
from holdfast.operators.process.declare import ValueState
from holdfast.operators.process.keyed import KeyedProcess
from tests.operators.process_harness import Harness

KEYS = (("k", pa.string()),)
CONTROL = (("name", pa.string()), ("limit", pa.int64()))


class Limits(KeyedProcess):
    """Shows the limits to every row, and counts rows."""

    output = "k string, n long, seen string"
    n = ValueState("long", default=0)
    limits = BroadcastState("string", "long")

    def process_broadcast(self, rows: Sequence[Any], ctx: Any) -> None:
        for row in rows:
            if row.name is None:
                self.limits.clear()
            elif row.limit is None:
                self.limits.pop(row.name)
            else:
                self.limits[row.name] = row.limit

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        self.n.value += len(rows)
        yield key.k, self.n.value, repr(sorted(self.limits.items()))


epochs = st.lists(
    st.tuples(
        st.lists(st.sampled_from("abcdef"), max_size=6),
        st.lists(
            st.tuples(
                st.sampled_from(["x", "y", "z", None]), st.one_of(st.none(), st.integers(0, 9))
            ),
            max_size=4,
        ),
        st.sampled_from([1, 2, 3]),
        st.booleans(),
    ),
    max_size=8,
)


@settings(max_examples=40)
@given(epochs)
def test_all_partitions_see_the_control_rows_up_to_their_epoch(plan: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(Limits, Path(folder), KEYS, KEYS, control=CONTROL)
        limits: dict[str, int] = {}
        counts: dict[str, int] = {}
        for now, (keys, control, partitions, merge) in enumerate(plan):
            for name, limit in control:
                if name is None:
                    limits.clear()
                elif limit is None:
                    limits.pop(name, None)
                else:
                    limits[name] = limit
            for key in keys:
                counts[key] = counts.get(key, 0) + 1
            rows = [(key,) for key in keys]
            output = harness.run(rows, now, partitions, control).output
            seen = repr(sorted(limits.items()))
            expected = [{"k": k, "n": counts[k], "seen": seen} for k in sorted(set(keys))]
            assert sorted(output, key=lambda row: row["k"]) == expected
            if merge:
                harness.compact()
        if plan:
            kept = {row["map_key"]: row["value"] for row in harness.state(TABLE)}
            assert kept == limits


TABLE = "process.broadcast.limits"


def failure(act: Callable[[Any, Any], Any], folder: Path, *, where: str) -> HoldfastError:
    class Bad(Limits):
        side_outputs = {"notes": "n long"}  # noqa: RUF012 - as a user writes it

        def process_broadcast(self, rows: Sequence[Any], ctx: Any) -> None:
            if where == "broadcast":
                act(self, ctx)

        def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
            act(self, ctx)
            yield key.k, 1, ""

    harness = Harness(Bad, folder, KEYS, KEYS, control=CONTROL)
    with pytest.raises(HoldfastError) as raised:
        harness.run([("a",)], 1, 2, [("x", 1)])
    return raised.value


def test_only_control_rows_change_it(tmp_path: Path) -> None:
    for act in (
        lambda p, c: p.limits.update({"x": 1}),
        lambda p, c: p.limits.pop("x"),
    ):
        error = failure(act, tmp_path, where="process")
        assert "Bad.process, for key (k='a') in epoch 0: broadcast state was changed" in str(error)


def test_control_rows_have_no_key_and_no_output(tmp_path: Path) -> None:
    error = failure(lambda p, c: p.n.value, tmp_path, where="broadcast")
    assert "Bad.process_broadcast, in epoch 0: state 'n' was used outside" in error.message
    error = failure(lambda p, c: c.side_output("notes", (1,)), tmp_path, where="broadcast")
    assert "it runs in every partition" in error.message


@pytest.mark.parametrize("value", ["x", 1.5, 2**70])
def test_a_limit_of_another_type(value: Any, tmp_path: Path) -> None:
    error = failure(lambda p, c: p.limits.update({"x": value}), tmp_path, where="broadcast")
    assert f"state '{TABLE}' was given {value!r}" in error.message
    assert "which is no bigint" in error.message
