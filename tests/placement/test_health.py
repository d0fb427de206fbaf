from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.placement.health import HostHealth


def fail(health: HostHealth, host: str, *times: float) -> None:
    for now in times:
        health.failed(host, now)


def avoided_for(health: HostHealth, host: str, now: float) -> int:
    """For how many whole seconds a host is still avoided."""
    seconds = 0
    while host in health.avoided(now + seconds):
        seconds += 1
    return seconds


def test_two_failures_are_no_pattern() -> None:
    health = HostHealth()
    fail(health, "h1", 0, 599)
    assert health.avoided(599) == {}


def test_three_failures_within_ten_minutes_are() -> None:
    health = HostHealth()
    fail(health, "h1", 0, 100, 200)
    assert health.avoided(201) == {"h1": "failed 3 times within 10 min, avoided for another 59 s"}
    assert avoided_for(health, "h1", 200) == 60


def test_old_failures_do_not_count() -> None:
    health = HostHealth()
    fail(health, "h1", 0, 1, 601)
    assert health.avoided(601) == {}


def test_hosts_are_judged_alone() -> None:
    health = HostHealth()
    fail(health, "h1", 0, 1)
    fail(health, "h2", 2, 3, 4)
    assert list(health.avoided(5)) == ["h2"]


def test_who_fails_again_is_avoided_for_twice_as_long_up_to_half_an_hour() -> None:
    health = HostHealth()
    fail(health, "h1", 0, 0)
    now, pauses = 0.0, []
    for _ in range(8):
        health.failed("h1", now)
        if not health.avoided(now):
            fail(health, "h1", now, now)
        pauses.append(avoided_for(health, "h1", now))
        now += pauses[-1] + 1
    assert pauses == [60, 120, 240, 480, 960, 1800, 1800, 1800]


def test_failures_of_a_host_that_is_already_avoided_do_not_lengthen_the_pause() -> None:
    health = HostHealth()
    fail(health, "h1", *range(10))
    assert avoided_for(health, "h1", 9) == 53


def test_who_has_been_good_for_long_is_forgiven() -> None:
    health = HostHealth()
    fail(health, "h1", 0, 0, 0, 61)
    assert avoided_for(health, "h1", 61) == 120
    fail(health, "h1", 781, 781)
    assert health.avoided(781) == {}
    fail(health, "h1", 781)
    assert avoided_for(health, "h1", 781) == 60


def test_drained_hosts_are_avoided_until_further_notice() -> None:
    health = HostHealth()
    health.drain("h2")
    fail(health, "h1", 0, 0, 0)
    fail(health, "h2", 0, 0, 0)
    assert list(health.avoided(1).items())[1] == ("h2", "drained")
    assert health.avoided(1e9) == {"h2": "drained"}
    assert health.drained == {"h2"}
    health.undrain("h2")
    health.undrain("never drained")
    assert health.avoided(1e9) == {}


def test_limits_that_make_no_sense_are_refused() -> None:
    for wrong in ({"failures": 0}, {"within_s": 0}, {"pause_s": -1}, {"longest_s": 1}):
        with pytest.raises(ValueError, match="at least one failure"):
            HostHealth(**wrong)


@given(st.lists(st.integers(0, 400), max_size=30))
def test_never_avoided_without_failures_and_always_forgiven_in_the_end(gaps: list[int]) -> None:
    health, now = HostHealth(), 0.0
    for count, gap in enumerate(gaps, 1):
        now += gap
        health.failed("h1", now)
        if count < 3:
            assert health.avoided(now) == {}
    assert health.avoided(now + 1800) == {}
    later = now + 1800 + 600
    fail(health, "h1", later, later)
    assert health.avoided(later) == {}
