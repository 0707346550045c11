from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tenure.kernel.lanes import SECOND_US, Limits, group_of, interval, room, starts

NOW = 1_000_000_000
AHEAD = SECOND_US


def test_a_lane_without_limits_has_no_bound():
    assert room(Limits(), 1_000, NOW, AHEAD) is None
    assert not Limits().any
    assert starts(Limits(), 3, NOW) == ([NOW] * 3, None)


def test_concurrency_leaves_what_live_claims_do_not_use():
    limits = Limits(concurrency=3)
    assert limits.any
    assert [room(limits, live, NOW, AHEAD) for live in range(5)] == [3, 2, 1, 0, 0]


def test_a_half_open_lane_lets_one_through_at_a_time():
    limits = Limits(half_open=True, concurrency=3)
    assert [room(limits, live, NOW, AHEAD) for live in range(3)] == [1, 0, 0]


def test_a_rate_lets_rows_start_up_to_the_time_ahead():
    limits = Limits(rate_per_second=4)
    assert room(limits, 0, NOW, AHEAD) == 5, "now, and four more within the second"
    assert room(Limits(rate_per_second=4, tat=NOW + AHEAD), 0, NOW, AHEAD) == 1
    assert room(Limits(rate_per_second=4, tat=NOW + AHEAD + 1), 0, NOW, AHEAD) == 0


def test_a_rate_of_zero_lets_nothing_start():
    assert room(Limits(rate_per_second=0), 0, NOW, AHEAD) == 0
    assert starts(Limits(rate_per_second=0, tat=7), 0, NOW) == ([], 7)


def test_the_tightest_limit_counts():
    limits = Limits(concurrency=2, rate_per_second=100)
    assert room(limits, 0, NOW, AHEAD) == 2
    assert room(Limits(concurrency=9, rate_per_second=1), 0, NOW, AHEAD) == 2


def test_the_interval_is_rounded_so_that_a_rate_is_never_exceeded():
    assert interval(3) == 333_334
    assert interval(65_535) == 16


def test_a_lane_id_carries_its_group():
    assert group_of((5 << 24) | 77, 24) == 5


@given(
    rate=st.integers(1, 65_535),
    claims=st.lists(
        st.tuples(st.integers(0, 3 * SECOND_US), st.integers(1, 500)),
        min_size=1,
        max_size=20,
    ),
)
def test_starts_are_evenly_spaced_over_all_claims(
    rate: int, claims: list[tuple[int, int]]
):
    now, tat = NOW, None
    started: list[int] = []
    for pause, want in claims:
        now += pause
        limits = Limits(rate_per_second=rate, tat=tat)
        allowed = room(limits, 0, now, AHEAD)
        assert allowed is not None
        count = min(want, allowed)
        instants, tat = starts(limits, count, now)
        assert all(now <= at <= now + AHEAD for at in instants)
        started += instants
    gaps = [b - a for a, b in pairwise(started)]
    assert all(gap * rate >= SECOND_US for gap in gaps)


@given(rate=st.integers(1, 1_000), seconds=st.integers(1, 5))
def test_a_busy_lane_uses_its_rate(rate: int, seconds: int):
    tat: int | None = None
    started = 0
    for tick in range(seconds * 4):
        now = NOW + tick * SECOND_US // 4
        limits = Limits(rate_per_second=rate, tat=tat)
        count = room(limits, 0, now, AHEAD) or 0
        _, tat = starts(limits, count, now)
        started += count
    span = seconds * SECOND_US - SECOND_US // 4 + AHEAD
    assert started == 1 + span // interval(rate)
