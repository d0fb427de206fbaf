from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.placement.handover import Handover, plan_handover
from holdfast.placement.planner import Assignment, Copy, Host, place

MIB = 2**20


def running(*hosts: str | None) -> list[Assignment]:
    return [Assignment(p, host, 0, 0, 0, 0, "") for p, host in enumerate(hosts)]


def held(*hosts: str, sizes: list[int] | None = None) -> list[list[Copy]]:
    sizes = sizes or [MIB] * len(hosts)
    return [[Copy(size, frozenset({host}))] for size, host in zip(sizes, hosts, strict=True)]


def loads(assignments: list[Assignment], moves: list[Handover]) -> Counter[str]:
    hosts = {a.partition: a.host for a in assignments if a.host is not None}
    return Counter((hosts | {move.partition: move.target for move in moves}).values())


def hosts(*names: str) -> list[Host]:
    return [Host(name, 2) for name in names]


def test_a_host_that_joins_gets_its_share_of_the_smallest_partitions() -> None:
    where = ["h1", "h1", "h1", "h2", "h2", "h2"]
    moves = plan_handover(
        running(*where), held(*where, sizes=[9, 5, 7, 3, 8, 6]), hosts("h1", "h2", "h3")
    )
    assert moves == [Handover(3, "h2", "h3", 3), Handover(1, "h1", "h3", 5)]


def test_a_host_that_joins_is_not_forgotten_where_shares_are_rounded() -> None:
    # Nobody has more than 9 / 4 rounded up, but h4 has nothing.
    where = ["h1", "h2", "h3"] * 3
    moves = plan_handover(running(*where), held(*where), hosts("h1", "h2", "h3", "h4"))
    assert sorted(loads(running(*where), moves).values()) == [2, 2, 2, 3]
    assert {move.target for move in moves} == {"h4"}


def test_a_drained_host_is_emptied_first_and_to_whom_has_the_bytes() -> None:
    where = ["h1", "h2", "h3", "h3"]
    needs = held(*where)
    needs[2] = [Copy(MIB, frozenset({"h3", "h2"}))]
    needs[3] = [Copy(MIB, frozenset({"h3", "h1"}))]
    moves = plan_handover(running(*where), needs, hosts("h1", "h2", "h3"), avoid=["h3"])
    assert moves == [Handover(2, "h3", "h2", 0), Handover(3, "h3", "h1", 0)]


def test_replicas_make_a_better_target_than_nothing() -> None:
    needs = [[Copy(MIB, frozenset({"h1"}), replicas=frozenset({"h3"}))]]
    (move,) = plan_handover(running("h1"), needs, hosts("h1", "h2", "h3"), avoid=["h1"])
    assert move == Handover(0, "h1", "h3", MIB)


def test_state_that_is_not_stored_can_be_handed_over_while_its_host_lives() -> None:
    needs = [[Copy(MIB, frozenset({"h1"}), stored=False)]]
    (move,) = plan_handover(running("h1"), needs, hosts("h1", "h2"), avoid=["h1"])
    assert move == Handover(0, "h1", "h2", MIB)


def test_only_so_many_at_a_time_and_in_the_end_all() -> None:
    where = ["h1"] * 8
    now, needs = running(*where), held(*where, sizes=[8, 7, 6, 5, 4, 3, 2, 1])
    steps = []
    while moves := plan_handover(now, needs, hosts("h1", "h2"), limit=2):
        steps.append([move.partition for move in moves])
        for move in moves:
            needs[move.partition] = [
                Copy(c.bytes, c.hosts | {move.target}) for c in needs[move.partition]
            ]
            now[move.partition] = Assignment(move.partition, move.target, 0, 0, 0, 0, "")
    assert steps == [[7, 6], [5, 4]]
    assert plan_handover(now, needs, hosts("h1", "h2"), limit=0) == []


def test_a_partition_that_was_handed_over_stays_there() -> None:
    where = ["h1"] * 4
    now, needs = running(*where), held(*where)
    moves = plan_handover(now, needs, hosts("h1", "h2"))
    for move in moves:
        needs[move.partition] = [Copy(MIB, frozenset({"h1", "h2"}))]
    previous = dict.fromkeys(range(4), "h1") | {move.partition: move.target for move in moves}
    assert place(needs, hosts("h1", "h2"), previous=previous).hosts == previous


def test_balance_leaves_small_differences_alone() -> None:
    where = ["h1"] * 6 + ["h2"] * 4
    now, needs = running(*where), held(*where)
    assert len(plan_handover(now, needs, hosts("h1", "h2"))) == 1
    assert plan_handover(now, needs, hosts("h1", "h2"), balance=1.2) == []
    with pytest.raises(ValueError, match="balance is 0"):
        plan_handover(now, needs, hosts("h1", "h2"), balance=0)


def test_what_is_no_handover() -> None:
    needs = held("gone", "h1", "h1")
    assert plan_handover(running("gone", "h1", None), needs, hosts("h1")) == []
    assert plan_handover(running("h1", "h1", "h1"), needs, hosts("h1"), avoid=["h1"]) == []
    assert plan_handover([], [], hosts("h1")) == []
    assert plan_handover(running("h1"), needs, []) == []


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_set_of_moves_that_balances_copies_fewer_bytes(data: st.DataObject) -> None:
    names = ["h1", "h2", "h3"]
    where = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=5))
    avoid = data.draw(st.sets(st.sampled_from(names), max_size=2))
    sizes = data.draw(st.lists(st.integers(0, 5), min_size=len(where), max_size=len(where)))
    extra = st.frozensets(st.sampled_from(names), max_size=2)
    # Each source has all of its partition: what a target lacks is then what a move costs.
    needs = [
        [Copy(size, data.draw(extra) | {host})] for size, host in zip(sizes, where, strict=True)
    ]
    moves = plan_handover(running(*where), needs, hosts(*names), avoid=avoid)
    usable = [name for name in names if name not in avoid]

    def spread(choice: tuple[str, ...]) -> int:
        return sum(choice.count(name) ** 2 for name in usable)

    def cost(choice: tuple[str, ...]) -> int:
        return sum(c.bytes for name, (c,) in zip(choice, needs, strict=True) if name not in c.hosts)

    choices = list(product(usable, repeat=len(where)))
    best = min((spread(choice), cost(choice)) for choice in choices)
    found = dict(enumerate(where)) | {m.partition: m.target for m in moves}
    ended = tuple(found[p] for p in range(len(where)))
    assert (spread(ended), sum(move.bytes for move in moves)) == best
