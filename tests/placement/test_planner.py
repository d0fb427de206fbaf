"""The planner: what it must keep to, in any situation; what it says; and its best answers."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.placement.health import HostHealth
from holdfast.placement.planner import Assignment, Copy, Host, PartitionPlan, place

MIB = 2**20
NAMES = ["h1", "h2", "h3", "h4"]
Needs = list[list[Copy]]


def on(*names: str) -> frozenset[str]:
    return frozenset(names)


def disk(size: int, *names: str) -> Copy:
    return Copy(size, hosts=on(*names))


def replica(size: int, *names: str) -> Copy:
    return Copy(size, replicas=on(*names))


def unsaved(size: int, *names: str) -> Copy:
    return Copy(size, hosts=on(*names), stored=False)


def three(slots: int = 2) -> list[Host]:
    return [Host(name, slots) for name in ("h1", "h2", "h3")]


def hosts_of(plan: PartitionPlan) -> list[str | None]:
    return [a.host for a in plan.assignments]


# -- in any situation -------------------------------------------------------------------------

_sets = st.frozensets(st.sampled_from([*NAMES, "dead"]), max_size=3)
_sizes = st.sampled_from([0, 1, 5, 5, 100])
_stored = st.builds(Copy, _sizes, _sets, _sets, st.just(True), st.integers(0, 2))
_unsaved = st.builds(Copy, _sizes, _sets, st.just(frozenset[str]()), st.just(False))
_hosts = st.lists(
    st.builds(Host, st.sampled_from(NAMES), st.integers(1, 3), st.sampled_from([None, "r1", "r2"])),
    min_size=1,
    max_size=4,
    unique_by=lambda host: host.name,
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Needs, list[Host], dict[int, str], set[str]]:
    copies = st.one_of(_stored, _stored, _stored, _unsaved)
    needs = draw(st.lists(st.lists(copies, max_size=3), min_size=1, max_size=5))
    partitions = st.integers(0, len(needs) - 1)
    previous = draw(st.dictionaries(partitions, st.sampled_from([*NAMES, "dead"])))
    return needs, draw(_hosts), previous, draw(st.sets(st.sampled_from(NAMES), max_size=2))


def held_unsaved(copies: list[Copy], name: str) -> int:
    return sum(c.bytes + 1 for c in copies if not c.stored and name in c.hosts)


def may_run_on(copies: list[Copy], hosts: list[Host], avoid: set[str]) -> set[str]:
    """By the rules, told in another way than the planner's."""
    names = {host.name for host in hosts}
    fine = names - avoid or names
    most = max(held_unsaved(copies, name) for name in names)
    if most == 0:
        return fine
    binding = {name for name in names if held_unsaved(copies, name) == most}
    return binding & fine or binding


def most_of(hosts: list[Host], avoid: set[str], partitions: int, balance: float) -> dict[str, int]:
    fine = [h for h in hosts if h.name not in avoid] or hosts
    total = sum(h.slots for h in fine)
    limits = {h.name: max(1, math.ceil(balance * partitions * h.slots / total)) for h in fine}
    return {h.name: limits.get(h.name, 0) for h in hosts}


def score(copies: list[Copy], host: Host, hosts: list[Host]) -> int:
    racks = {h.name: h.rack for h in hosts}
    total = 0
    for c in copies:
        near = {racks.get(name) for name in c.hosts | c.replicas} - {None}
        weight = 10 if host.name in c.hosts else 8 if host.name in c.replicas else 0
        total += (weight or int(host.rack in near)) * c.bytes * (1 + c.priority)
    return total


@settings(max_examples=200, deadline=None)
@given(situations())
def test_no_placement_is_better(
    situation: tuple[Needs, list[Host], dict[int, str], set[str]],
) -> None:
    needs, hosts, previous, avoid = situation
    by_name = {host.name: host for host in hosts}
    limit = most_of(hosts, avoid, len(needs), 1.2)

    def worth(names: tuple[str, ...]) -> tuple[int, int, int]:
        over = sum(max(0, n - limit[name]) for name, n in Counter(names).items())
        total = sum(score(needs[p], by_name[name], hosts) for p, name in enumerate(names))
        return -over, total, sum(previous.get(p) == name for p, name in enumerate(names))

    plan = place(needs, hosts, previous=previous, avoid=avoid)
    names = tuple(a.host for a in plan.assignments if a.host is not None)
    choices = [sorted(may_run_on(copies, hosts, avoid)) for copies in needs]
    assert len(names) == len(needs)
    assert all(name in choice for name, choice in zip(names, choices, strict=True))
    assert worth(names) == max(worth(other) for other in product(*choices))
    # Where nothing is bound, limits are kept.
    fine = sorted(by_name.keys() - avoid or by_name.keys())
    if all(choice == fine for choice in choices):
        assert all(n <= limit[name] for name, n in Counter(names).items())


@settings(max_examples=100, deadline=None)
@given(situations())
def test_equal_questions_have_equal_answers_however_they_are_put(
    situation: tuple[Needs, list[Host], dict[int, str], set[str]],
) -> None:
    needs, hosts, previous, avoid = situation
    plan = place(needs, hosts, previous=previous, avoid=avoid)
    assert place(needs, hosts[::-1], previous=previous, avoid=sorted(avoid)) == plan
    # And asked again with its own answer, nothing moves.
    again = place(needs, hosts, previous=plan.hosts, avoid=avoid)
    assert hosts_of(again) == hosts_of(plan)
    assert again.moved(plan.hosts) == ()


@settings(max_examples=100, deadline=None)
@given(situations())
def test_every_byte_is_accounted_for(
    situation: tuple[Needs, list[Host], dict[int, str], set[str]],
) -> None:
    needs, hosts, previous, avoid = situation
    live = {host.name for host in hosts}
    plan = place(needs, hosts, previous=previous, avoid=avoid)
    for a, copies in zip(plan.assignments, needs, strict=True):
        found = a.local_bytes + a.replica_bytes + a.remote_bytes + a.lost_bytes
        assert found == sum(c.bytes for c in copies)
        assert a.stranded_bytes <= a.remote_bytes
        gone = sum(c.bytes for c in copies if not c.stored and not c.hosts & live)
        assert a.lost_bytes == gone
        assert (a.partition in plan.lost) == (gone > 0)
        assert a.why


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 40), st.lists(st.integers(1, 8), min_size=2, max_size=5), st.data())
def test_no_fewer_local_bytes_than_round_robin(
    partitions: int, slots: list[int], data: st.DataObject
) -> None:
    hosts = [Host(f"h{number}", n) for number, n in enumerate(slots)]
    names = [host.name for host in hosts]
    place_of = data.draw(st.lists(st.sampled_from(names), min_size=partitions, max_size=partitions))
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=partitions, max_size=partitions))
    needs = [[disk(size, name)] for size, name in zip(sizes, place_of, strict=True)]
    turns = hosts_of(place([[] for _ in needs], hosts))
    by_turns = sum(s for s, name, turn in zip(sizes, place_of, turns, strict=True) if name == turn)
    assert sum(a.local_bytes for a in place(needs, hosts).assignments) >= by_turns


# -- what it decides --------------------------------------------------------------------------


def test_partitions_run_where_their_runs_are() -> None:
    needs = [[disk(MIB, "h3")], [disk(MIB, "h1")], [disk(MIB, "h2")]]
    assert hosts_of(place(needs, three())) == ["h3", "h1", "h2"]


def test_disk_before_replica_before_rack() -> None:
    racked = [Host("h1", 2, "a"), Host("h2", 2, "a"), Host("h3", 2, "b"), Host("h4", 2, "b")]
    everything = Copy(MIB, hosts=on("h4"), replicas=on("h1", "h3"))
    assert hosts_of(place([[everything]], racked)) == ["h4"]
    assert hosts_of(place([[everything]], racked[:3])) == ["h1"]


def test_the_same_rack_is_better_than_another() -> None:
    hosts = [Host("h1", 1, "a"), Host("h2", 1, "b"), Host("h3", 1, "b")]
    # h3 holds both, may run one, and the other goes to its neighbour.
    plan = place([[replica(9, "h3")], [replica(8, "h3")]], hosts)
    assert hosts_of(plan) == ["h3", "h2"]


def test_without_state_partitions_are_spread_by_slots() -> None:
    assert hosts_of(place([[]] * 6, three())) == ["h1", "h2", "h3", "h1", "h2", "h3"]
    uneven = place([[]] * 8, [Host("big", 6), Host("small", 2)])
    assert Counter(hosts_of(uneven)) == {"big": 6, "small": 2}


def test_state_on_every_host_is_spread_evenly() -> None:
    needs = [[replica(MIB * (p + 1), "h1", "h2", "h3")] for p in range(12)]
    plan = place(needs, three())
    assert Counter(hosts_of(plan)) == {"h1": 4, "h2": 4, "h3": 4}
    assert sum(a.replica_bytes for a in plan.assignments) == 78 * MIB


def test_no_host_gets_more_than_its_limit_and_the_largest_state_stays() -> None:
    needs = [[disk(size * MIB, "h1")] for size in (1, 9, 2, 8, 3, 7)]
    plan = place(needs, three())
    assert [a.partition for a in plan.assignments if a.host == "h1"] == [1, 3, 5]
    assert hosts_of(place(needs, three(), balance=3.0)) == ["h1"] * 6


def test_with_equal_scores_partitions_stay() -> None:
    needs = [[replica(MIB, "h1", "h2", "h3")] for _ in range(3)]
    previous = {0: "h3", 1: "h1", 2: "h2"}
    plan = place(needs, three(), previous=previous)
    assert plan.hosts == previous
    assert plan.moved(previous) == ()
    assert place(needs, three()[:2], previous=previous).moved(previous) == (0,)


def test_unsaved_state_binds_beyond_the_limit_and_though_avoided() -> None:
    needs = [[unsaved(1, "h2"), replica(MIB, "h1", "h3")] for _ in range(6)]
    plan = place(needs, three(), avoid={"h2"})
    assert hosts_of(plan) == ["h2"] * 6
    assert "not yet stored, are only here, though it is to be avoided" in plan.assignments[0].why


def test_unsaved_state_on_two_hosts_leaves_a_choice() -> None:
    needs = [[unsaved(MIB, "h1", "h2")] for _ in range(6)]
    assert Counter(hosts_of(place(needs, three()))) == {"h1": 3, "h2": 3}
    assert hosts_of(place(needs, three(), avoid={"h1"})) == ["h2"] * 6


def test_unsaved_state_on_several_hosts_is_stranded_but_for_the_largest_part() -> None:
    plan = place([[unsaved(3 * MIB, "h3"), unsaved(MIB, "h1")]], three())
    (only,) = plan.assignments
    assert (only.host, only.stranded_bytes, plan.stranded) == ("h3", MIB, (0,))
    assert plan.lost == ()
    assert "1.0 MiB not yet stored have to be copied from other hosts" in only.why


def test_avoided_hosts_are_used_when_nothing_else_is_left() -> None:
    needs = [[disk(MIB, "h1")], [disk(MIB, "h2")]]
    assert hosts_of(place(needs, three(), avoid=["h1", "h2"])) == ["h3", "h3"]
    assert hosts_of(place(needs, three()[:2], avoid=["h1", "h2"])) == ["h1", "h2"]


def test_state_of_a_higher_priority_counts_more() -> None:
    first = Copy(MIB, hosts=on("h1"), priority=5)
    assert hosts_of(place([[first, disk(2 * MIB, "h2")]], three())) == ["h1"]


def test_without_hosts_partitions_run_anywhere() -> None:
    plan = place([[disk(5, "h1")], [unsaved(7, "h1")], []], [])
    assert hosts_of(plan) == [None, None, None]
    assert plan.lost == (1,)
    assert plan.hosts == {}
    assert plan.explain()[0] == "partition 0 anywhere: no host is known"


def test_no_partitions_are_no_plan() -> None:
    assert place([], three()).assignments == ()


# -- what it says -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("copies", "host", "why"),
    [
        ([disk(50 * MIB, "h2")], "h2", "all 50.0 MiB are on its disk"),
        (
            [disk(48 * MIB, "h2"), Copy(2 * MIB + MIB // 10)],
            "h2",
            "48.0 of 50.1 MiB are on its disk",
        ),
        (
            [Copy(50 * MIB, hosts=on("gone"), replicas=on("h3"))],
            "h3",
            "replica of 50.0 MiB in HDFS; gone, which had it on disk, is gone",
        ),
        (
            [disk(MIB, "h1"), replica(MIB, "h1")],
            "h1",
            "1.0 of 2.0 MiB are on its disk, replica of 1.0 of 2.0 MiB in HDFS",
        ),
        ([Copy(3000)], "h1", "all 2.9 KiB come over the network"),
        ([], "h1", "nothing to read, fewest partitions"),
        (
            [disk(MIB, "h4")],
            "h1",
            "all 1.0 MiB come over the network; h4, which has it on disk, is to be avoided",
        ),
        (
            [unsaved(MIB, "gone")],
            "h1",
            "nothing is left to read; gone, which had it on disk, is gone; "
            "all 1.0 MiB are lost: on no live host, and never stored",
        ),
        (
            [unsaved(MIB, "h2")],
            "h2",
            "all 1.0 MiB are on its disk; 1.0 MiB of it, not yet stored, are only here",
        ),
    ],
)
def test_reasons(copies: list[Copy], host: str, why: str) -> None:
    (only,) = place([copies], [*three(), Host("h4", 1)], avoid=["h4"]).assignments
    assert (only.host, only.why) == (host, why)


def test_a_full_host_is_named() -> None:
    plan = place(
        [[disk(2 * MIB, "h1")], [disk(MIB, "h1")]], [Host("h1", 1), Host("h2", 1)], balance=1
    )
    assert plan.explain() == [
        "partition 0 on h1: all 2.0 MiB are on its disk",
        "partition 1 on h2: all 1.0 MiB come over the network; "
        "h1, which has it on disk, has its share of partitions",
        "h1: 1 partition, 2.0 MiB without the network, 0 B over it",
        "h2: 1 partition, 0 B without the network, 1.0 MiB over it",
    ]


def test_why_a_host_is_avoided_is_said_if_it_is_known() -> None:
    health = HostHealth(failures=1)
    health.drain("h1")
    health.failed("h2", 0)
    plan = place([[disk(MIB, "h1")], [unsaved(MIB, "h2")]], three(), avoid=health.avoided(20))
    assert hosts_of(plan) == ["h3", "h2"]
    assert plan.assignments[0].why.endswith("is to be avoided (drained)")
    assert "to be avoided (failed once within 10 min" in plan.assignments[1].why


def test_staying_is_said() -> None:
    (only,) = place([[]], three(), previous={0: "h3"}).assignments
    assert (only.host, only.why) == ("h3", "nothing to read, stays where it was")


# -- what it refuses --------------------------------------------------------------------------


def test_questions_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="h1 is listed twice"):
        place([[]], [Host("h1", 1), Host("h1", 2)])
    with pytest.raises(ValueError, match="h1 has no task slots"):
        Host("h1", 0)
    with pytest.raises(ValueError, match=r"balance is 0\.5"):
        place([[]], three(), balance=0.5)
    with pytest.raises(ValueError, match="-1 bytes"):
        Copy(-1)
    with pytest.raises(ValueError, match="has no replicas"):
        Copy(1, replicas=on("h1"), stored=False)


def test_an_assignment_can_be_written_by_hand() -> None:
    assert Assignment(0, "h1", 1, 2, 3, 4, "why").stranded_bytes == 0


# -- its size ---------------------------------------------------------------------------------


def test_thousands_of_partitions_after_a_host_is_lost() -> None:
    names = [f"h{number:03d}" for number in range(200)]
    needs = []
    for p in range(4096):
        own, second, third = (names[(p + p // 200 * step + step) % 200] for step in (0, 7, 9))
        runs = [Copy(MIB * size, on(own), on(own, second, third)) for size in (1, 3, 20, 90)]
        needs.append(runs)
    everyone = [Host(name, 4) for name in names]
    before = place(needs, everyone)
    after = place(needs, everyone[1:], previous=before.hosts)
    assert sum(a.remote_bytes for a in before.assignments + after.assignments) == 0
    moved = set(after.moved(before.hosts))
    orphans = {p for p, host in before.hosts.items() if host == names[0]}
    assert orphans <= moved
    assert len(moved) <= 2 * len(orphans)
    assert max(Counter(hosts_of(after)).values()) <= 25
