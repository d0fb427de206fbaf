"""The division of partitions among hosts against every possible division, and at its full size."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.placement.balance import divide

Answer = tuple[int, int, int, int]


class Case:
    """A question that can be answered by trying everything."""

    def __init__(
        self,
        scores: list[list[int]],
        allowed: list[list[bool]],
        limits: list[list[int]],
        stay: list[int],
    ) -> None:
        self.scores, self.allowed, self.limits, self.stay = scores, allowed, limits, stay
        self.hosts = len(limits[0])

    def worth(self, hosts: tuple[int, ...]) -> Answer:
        """The aims in their order; greater is better. Slots are equal: evenness is by squares."""
        load = [hosts.count(h) for h in range(self.hosts)]
        over = sum(
            max(0, n - most) for limit in self.limits for n, most in zip(load, limit, strict=True)
        )
        total = sum(self.scores[p][h] for p, h in enumerate(hosts))
        stays = sum(h == self.stay[p] for p, h in enumerate(hosts))
        return -over, total, stays, -sum(n * n for n in load)

    def best(self) -> Answer:
        choices = product(*([h for h, may in enumerate(row) if may] for row in self.allowed))
        return max(self.worth(hosts) for hosts in choices)

    def answer(self) -> tuple[int, ...]:
        found = divide(
            np.array(self.scores, np.int64),
            np.array(self.allowed, np.bool_),
            [np.array(limit, np.int64) for limit in self.limits],
            np.ones(self.hosts, np.int64),
            np.array(self.stay, np.int64),
        )
        return tuple(found.tolist())


@st.composite
def cases(draw: st.DrawFn) -> Case:
    hosts, partitions = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    # Few different scores make ties, large ones tell whether anything overflows.
    score = draw(st.sampled_from([st.integers(0, 3), st.integers(0, 10**9), st.just(0)]))
    row = st.lists(score, min_size=hosts, max_size=hosts)
    may = st.lists(st.booleans(), min_size=hosts, max_size=hosts).map(
        lambda flags: flags if any(flags) else [True] * hosts
    )
    limit = st.lists(st.integers(0, 4), min_size=hosts, max_size=hosts)
    return Case(
        [draw(row) for _ in range(partitions)],
        [draw(may) for _ in range(partitions)],
        [draw(limit) for _ in range(draw(st.integers(1, 2)))],
        draw(st.lists(st.integers(-1, hosts - 1), min_size=partitions, max_size=partitions)),
    )


@settings(max_examples=300, deadline=None)
@given(cases())
def test_nothing_is_better_than_the_answer(case: Case) -> None:
    found = case.answer()
    assert all(row[h] for row, h in zip(case.allowed, found, strict=True))
    assert case.worth(found) == case.best()


def test_a_partition_leaves_its_best_host_where_others_gain_more() -> None:
    # Whoever chooses first takes host 0; the best division needs an exchange.
    case = Case([[10, 9, 0], [10, 0, 9], [10, 0, 0]], [[True] * 3] * 3, [[1, 1, 1]], [-1] * 3)
    assert case.answer() == (1, 2, 0)


def test_scores_of_petabytes_do_not_overflow() -> None:
    huge = 2**57
    case = Case([[huge, 0], [huge, huge // 2]], [[True, True]] * 2, [[1, 1]], [-1, -1])
    assert case.answer() == (0, 1)


@pytest.mark.parametrize("kind", ["replicas", "one host", "everywhere", "anything"])
def test_thousands_of_partitions_on_hundreds_of_hosts(kind: str) -> None:
    chance = np.random.default_rng(7)
    partitions, hosts = 4096, 200
    scores = np.zeros((partitions, hosts), np.int64)
    sizes = chance.integers(1, 2**30, partitions)
    if kind == "replicas":
        for replica in range(3):
            scores[np.arange(partitions), (np.arange(partitions) * 7 + replica * 31) % hosts] = (
                sizes
            )
        scores[:, 0] = 0
    elif kind == "one host":
        scores[:, 3] = sizes
    elif kind == "everywhere":
        scores[:] = sizes[:, None]
    else:
        scores[:] = chance.integers(0, 2**30, scores.shape)
    limit = np.full(hosts, 25)
    found = divide(
        scores,
        np.ones(scores.shape, np.bool_),
        [limit],
        np.ones(hosts, np.int64),
        np.full(partitions, -1),
    )
    load = np.bincount(found, minlength=hosts)
    reached = int(scores[np.arange(partitions), found].sum())
    assert load.max() <= 25
    if kind == "replicas":
        assert reached == sizes.sum()
    elif kind == "one host":
        assert reached == np.sort(sizes)[-25:].sum()
    elif kind == "everywhere":
        assert load.max() - load.min() <= 1
    else:
        assert reached > 0.97 * scores.max(axis=1).sum()
