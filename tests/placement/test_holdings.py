"""Which host has which run: what tasks report, what disks show, what a plan makes of it."""

from __future__ import annotations

from holdfast.placement.holdings import Holdings, by_urgency
from holdfast.placement.planner import Copy
from holdfast.state.hashing import FULL_RANGE, partition_range
from holdfast.state.run import LocalForm, Run, Safety, Segment, StoredForm
from holdfast.state.version import Change, Version

STORED = StoredForm("runs/x.parquet", 80, "00", 1)


def run(name: str, *hosts: str, partition: int | None = None, stored: bool = True) -> Run:
    span = FULL_RANGE if partition is None else partition_range(partition, 2)
    local = LocalForm(100, "00", hosts)
    return Run(name, "op.sums", span, 0, 0, 10, local=local, stored=STORED if stored else None)


def version(*runs: Run) -> Version:
    return Version(0, {"op.sums": tuple(Segment(r, r.range) for r in runs)})


def holdings(*runs: Run) -> Holdings:
    known = Holdings()
    known.written(Change("op.sums", r.range, (), r) for r in runs)
    return known


def test_runs_are_where_they_were_written_and_where_they_were_fetched() -> None:
    known = holdings(run("1-a", "h1"))
    known.fetched("h2", ["1-a"])
    assert known.hosts("1-a") == {"h1", "h2"}
    assert known.holders(["1-a"], among={"h2", "h3"}) == {"h2"}


def test_a_host_that_comes_back_without_its_disk_has_nothing() -> None:
    known = holdings(run("1-a", "h1"), run("1-b", "h1"))
    known.looked("h1", ["1-a", "1-b"], {"1-b"})
    assert known.hosts("1-a") == frozenset()
    assert known.hosts("1-b") == {"h1"}


def test_what_no_version_needs_is_forgotten_once() -> None:
    known = holdings(run("1-a", "h1"), run("1-b", "h1"))
    assert known.forget({"1-b"}) == ["1-a"]
    assert known.forget({"1-b"}) == []


def test_what_is_not_stored_and_on_no_live_host_is_out_of_reach() -> None:
    gone, saved, alive = (
        run("1-a", "h1", stored=False),
        run("1-b", "h1"),
        run("1-c", "h2", stored=False),
    )
    known = holdings(gone, saved, alive)
    assert known.out_of_reach(version(gone, saved, alive), {"h2"}) == [gone]
    assert known.out_of_reach(version(gone, saved, alive), {"h1", "h2"}) == []


def test_a_partition_needs_its_part_of_a_run() -> None:
    known = holdings(run("1-a", "h1"), run("1-b", "h2", partition=1))
    needs = known.needs(
        version(run("1-a", "h1"), run("1-b", "h2", partition=1)), 2, {"1-a": ("h3",)}, {"op": 4}
    )
    half = Copy(50, frozenset({"h1"}), frozenset({"h3"}), stored=True, priority=4)
    own = Copy(100, frozenset({"h2"}), stored=True, priority=4)
    assert [len(copies) for copies in needs] == [1, 2]
    assert half.hosts == needs[0][0].hosts
    assert own in needs[1]


def test_hosts_lack_stored_runs_of_their_partitions_only() -> None:
    mine, other, unsaved = (
        run("1-a", "h1", partition=0),
        run("1-b", "h1", partition=1),
        run("1-c", "h1", partition=0, stored=False),
    )
    known = holdings(mine, other, unsaved)
    everything = version(mine, other, unsaved)
    assert known.lacking(everything, [(0, "h1"), (1, "h1")], 2) == {}
    assert known.lacking(everything, [(0, "h2"), (1, "h1")], 2) == {"h2": [mine]}


def test_a_full_disk_gives_up_what_is_stored() -> None:
    saved, unsaved = run("1-a", "h1"), run("1-c", "h1", stored=False)
    known = holdings(saved, unsaved)
    assert known.evict("h1", [saved, unsaved], 150) == ["1-a"]
    assert known.held("h1", [saved, unsaved]) == [unsaved]


def test_runs_are_fetched_by_priority_then_the_newest_then_the_smallest() -> None:
    def made(name: str, table: str, epoch: int, rows: int) -> Run:
        return Run(name, table, FULL_RANGE, epoch, epoch, rows, 0)

    runs = [
        made("old", "op.rows", 1, 5),
        made("large", "op.rows", 2, 50),
        made("small", "op.rows", 2, 5),
        made("first", "urgent.rows", 0, 500),
    ]
    names = [run.name for run in by_urgency(runs, {"urgent": 1})]
    assert names == ["first", "small", "large", "old"]
    assert by_urgency(runs, {})[-1].name == "first"


def test_how_safe_a_run_is_goes_by_who_lives() -> None:
    fresh, saved = run("1-a", "h1", "h2", stored=False), run("1-b", "h1")
    known = holdings(fresh, saved)
    asked = [({"h1", "h2"}, Safety.LOCAL), ({"h2"}, Safety.LOCAL), ({"h3"}, Safety.LOST)]
    assert [known.safety(fresh, alive) for alive, _ in asked] == [safety for _, safety in asked]
    assert {known.safety(saved, alive) for alive, _ in asked} == {Safety.DURABLE}
    # Two hosts have it: one may go. That was promised, or it is luck.
    assert fresh.safety(2, survives=1) is Safety.PROTECTED
    assert fresh.safety(1, survives=1) is Safety.LOCAL
    assert list(version(fresh, saved).unsaved()) == ["1-a"]
