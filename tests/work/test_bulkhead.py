from __future__ import annotations

import pytest

from tenure.ids import LaneId
from tenure.work.bulkhead import Bulkhead, lane_slots

A, B, C = LaneId(1), LaneId(2), LaneId(3)


@pytest.mark.parametrize(
    ("slots", "lane"), [(1, 1), (3, 3), (4, 4), (32, 4), (40, 5), (200, 25)]
)
def test_a_lane_may_have_an_eighth_of_the_slots_and_at_least_four(
    slots: int, lane: int
) -> None:
    assert lane_slots(slots) == lane


def test_a_fresh_bulkhead_offers_every_slot_to_everybody() -> None:
    offer = Bulkhead(slots=10, slow_after=2.0).offer(0.0)
    assert (offer.want, offer.skip, offer.partial) == (10, frozenset(), False)


def test_slots_are_taken_and_given_back() -> None:
    bulkhead = Bulkhead(slots=3, slow_after=2.0)
    first, second = bulkhead.enter(A, 0.0), bulkhead.enter(A, 0.0)
    bulkhead.enter(B, 0.0)
    assert (bulkhead.used, bulkhead.free) == (3, 0)
    assert bulkhead.busy() == {A: 2, B: 1}
    bulkhead.leave(A, first, 1.0)
    bulkhead.leave(A, second, 1.0)
    assert bulkhead.busy() == {B: 1}


def test_a_lane_is_slow_while_its_oldest_attempt_runs_too_long() -> None:
    bulkhead = Bulkhead(slots=10, slow_after=2.0)
    old = bulkhead.enter(A, 0.0)
    bulkhead.enter(A, 9.0)
    assert bulkhead.slow(2.0) == frozenset()
    assert bulkhead.slow(2.1) == {A}
    bulkhead.leave(A, old, 1.0)
    assert bulkhead.slow(10.0) == frozenset()


def test_a_lane_stays_slow_until_an_attempt_of_it_was_quick() -> None:
    bulkhead = Bulkhead(slots=10, slow_after=2.0)
    bulkhead.leave(A, bulkhead.enter(A, 0.0), 3.0)
    assert bulkhead.slow(3.0) == {A}
    bulkhead.leave(A, bulkhead.enter(A, 3.0), 4.0)
    assert bulkhead.slow(4.0) == frozenset()


def test_slow_lanes_start_nothing_while_they_hold_half_of_the_slots() -> None:
    bulkhead = Bulkhead(slots=4, slow_after=2.0)
    bulkhead.enter(A, 0.0)
    bulkhead.enter(B, 0.0)
    offer = bulkhead.offer(3.0)
    assert (offer.want, offer.skip) == (2, {A, B})


def test_what_is_asked_with_slow_lanes_never_passes_half_of_the_slots() -> None:
    bulkhead = Bulkhead(slots=10, slow_after=2.0)
    bulkhead.enter(A, 0.0)
    offers = [bulkhead.offer(3.0) for _ in range(2)]
    assert [(o.want, o.skip, o.partial) for o in offers] == [
        (4, frozenset(), False),
        (9, {A}, True),
    ]


def test_lanes_that_are_not_slow_may_fill_every_slot() -> None:
    bulkhead = Bulkhead(slots=10, slow_after=2.0)
    for lane in (B, C):
        for _ in range(4):
            bulkhead.enter(lane, 2.5)
    assert bulkhead.offer(3.0).want == 2
