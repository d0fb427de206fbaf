"""A limit for a host's disk: the oldest stored runs go first, nothing unsaved ever does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.placement.eviction import evictions
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.run import LocalForm, Run, StoredForm

STORED = StoredForm("runs/x.parquet", 1, "00", 1)


def run(name: str, size: int, epoch: int, *, stored: bool = True) -> Run:
    local = LocalForm(size, "00")
    saved = STORED if stored else None
    return Run(name, "t", FULL_RANGE, 0, epoch, rows=1, local=local, stored=saved)


def test_the_run_that_was_changed_longest_ago_goes_first() -> None:
    runs = [run("new", 50, 9), run("old", 60, 1), run("unsaved", 40, 0, stored=False)]
    assert evictions(runs, 150) == []
    assert evictions(runs, 149) == ["old"]
    assert evictions(runs, 60) == ["old", "new"]


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 9), st.booleans()), max_size=20),
    st.integers(0, 1000),
)
def test_the_rest_fits_or_is_all_unsaved(sizes: list[tuple[int, int, bool]], limit: int) -> None:
    runs = [run(str(i), size, epoch, stored=s) for i, (size, epoch, s) in enumerate(sizes)]
    gone = set(evictions(runs, limit))
    left = [r for r in runs if r.name not in gone]
    assert all(r.stored is not None for r in runs if r.name in gone)
    assert sum(r.size_bytes for r in left) <= limit or all(r.stored is None for r in left)
    # Nothing goes without need: with the last one to go, it would not have fitted.
    if gone:
        smallest = min(r.size_bytes for r in runs if r.name in gone)
        assert (
            sum(r.size_bytes for r in left) + max(r.size_bytes for r in runs if r.name in gone)
            > limit
            or smallest == 0
        )
