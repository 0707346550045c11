import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.clock import SettableClock, SystemClock, from_rfc3339, to_rfc3339

EARLIEST = -62_135_596_800_000_000  # 0001-01-01
LATEST = 253_402_300_799_999_999  # 9999-12-31


@given(st.integers(min_value=EARLIEST, max_value=LATEST))
def test_every_instant_survives_the_wire(instant: int):
    text = to_rfc3339(instant)
    assert len(text) == len("2026-01-02T03:04:05.123456Z")
    assert from_rfc3339(text) == instant


@given(
    st.integers(min_value=EARLIEST, max_value=LATEST),
    st.integers(min_value=EARLIEST, max_value=LATEST),
)
def test_text_sorts_as_time_does(one: int, two: int):
    assert (to_rfc3339(one) < to_rfc3339(two)) == (one < two)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01t00:00:00.5z", 500_000),
        ("1970-01-01T00:00:00.1234569Z", 123_456),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T19:30:00-04:30", 0),
        ("1970-01-01 00:00:01.25 UTC", 1_250_000),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000_000),
    ],
)
def test_the_forms_of_an_instant_are_understood(text: str, instant: int):
    assert from_rfc3339(text) == instant


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-01-02T03:04:05", "has no offset"),
        ("2026-01-02 03:04:05.5", "has no offset"),
        ("2026-01-02", "is no RFC 3339 instant"),
        ("", "is no RFC 3339 instant"),
        ("1700000000", "is no RFC 3339 instant"),
        ("2026-02-29T00:00:00Z", "day"),
        ("2026-01-02T24:00:00Z", "hour"),
        ("2026-01-02T03:04:60Z", "second"),
        ("2026-01-02T03:04:05+24:00", "offset must be"),
        ("2026-01-02T03:04:05Z\n", "is no RFC 3339 instant"),
        ("٢٠٢٦-01-02T03:04:05Z", "is no RFC 3339 instant"),
        ("x" * 5000, "is no RFC 3339 instant"),
    ],
)
def test_what_is_no_instant_is_refused_with_the_reason(text: str, reason: str):
    with pytest.raises(ValueError, match=reason) as caught:
        from_rfc3339(text)
    assert len(str(caught.value)) < 200


async def test_the_system_clock_tells_the_system_s_time():
    clock = SystemClock()
    assert abs(clock.wall_us() - time.time_ns() // 1000) < 1_000_000
    before, boot = clock.monotonic(), clock.boottime()
    await clock.sleep(0.001)
    await clock.sleep(-1)
    assert clock.monotonic() >= before + 0.0009
    assert clock.boottime() >= boot + 0.0009


async def test_sleepers_wake_when_their_time_passes_and_not_before():
    clock, woken = SettableClock(), list[str]()

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(sleeper("late", 10))
        group.create_task(sleeper("early", 1))
        await clock.wait_sleepers(2)
        assert clock.next_wake() == 1
        clock.advance(0.5)
        await asyncio.sleep(0)
        assert woken == []
        clock.advance(100)
    assert woken == ["early", "late"]
    assert clock.next_wake() is None


async def test_a_cancelled_sleeper_is_forgotten():
    clock = SettableClock()
    task = asyncio.create_task(clock.sleep(5))
    await clock.wait_sleepers()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.next_wake() is None


async def test_no_time_is_no_sleep():
    clock = SettableClock()
    async with asyncio.timeout(5):
        await clock.sleep(0)


def test_the_three_clocks_part_as_they_do_on_a_machine():
    clock = SettableClock(wall_us=0)
    clock.advance(2)
    clock.suspend(3)
    clock.step_wall(-10)
    assert clock.monotonic() == 2
    assert clock.boottime() == 5
    assert clock.wall_us() == -5_000_000


def test_a_clock_does_not_advance_backwards():
    with pytest.raises(ValueError, match="step_wall"):
        SettableClock().advance(-1)
