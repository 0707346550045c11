from __future__ import annotations

from tenure.clock import SettableClock
from tenure.work.fence import Fence


def test_the_fence_closes_when_no_beat_was_good_for_too_long() -> None:
    clock = SettableClock()
    fence = Fence(clock, 25.0)
    clock.advance(24.9)
    assert fence.allows()
    clock.advance(0.1)
    assert not fence.allows()


def test_a_good_beat_opens_it_from_the_time_it_was_sent() -> None:
    clock = SettableClock()
    fence = Fence(clock, 25.0)
    clock.advance(20.0)
    sent = fence.sending()
    clock.advance(20.0)  # the answer took its time
    assert not fence.allows()
    fence.renew(sent)
    assert fence.allows()
    assert fence.age() == 20.0


def test_a_machine_that_slept_is_behind_the_fence_when_it_wakes() -> None:
    clock = SettableClock()
    fence = Fence(clock, 25.0)
    clock.suspend(60.0)
    assert not fence.allows()


def test_a_wall_clock_stepped_forward_closes_it_and_one_stepped_back_does_not_open_it() -> (
    None
):
    clock = SettableClock()
    fence = Fence(clock, 25.0)
    clock.step_wall(3600.0)
    assert not fence.allows()
    clock.step_wall(-7200.0)
    assert fence.allows()
    clock.advance(25.0)
    assert not fence.allows()


def test_a_fence_that_was_shut_stays_shut_whatever_its_beats_say() -> None:
    fence = Fence(SettableClock(), 25.0)
    fence.shut("closed by another node")
    fence.renew(fence.sending())
    assert not fence.allows()
    assert fence.shut_because == "closed by another node"
