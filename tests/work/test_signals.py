from __future__ import annotations

import asyncio
import threading

from tenure.clock import SettableClock
from tenure.work.signals import Broadcast, Signal


async def test_a_wait_ends_when_its_time_is_over() -> None:
    clock = SettableClock()
    waiting = asyncio.create_task(Signal(clock).wait(5.0))
    await clock.wait_sleepers()
    clock.advance(5.0)
    assert await waiting is False


async def test_a_wake_ends_the_wait() -> None:
    clock = SettableClock()
    signal = Signal(clock)
    waiting = asyncio.create_task(signal.wait(5.0))
    await clock.wait_sleepers()
    signal.wake()
    assert await waiting is True


async def test_a_wake_before_the_wait_is_kept_once() -> None:
    signal = Signal(SettableClock())
    signal.wake()
    assert await signal.wait(5.0) is True
    assert await signal.wait(0.0) is False


async def test_a_wake_from_another_thread_ends_the_wait() -> None:
    clock = SettableClock()
    signal = Signal(clock)
    waiting = asyncio.create_task(signal.wait(5.0))
    await clock.wait_sleepers()
    thread = threading.Thread(target=signal.wake_soon)
    thread.start()
    assert await waiting is True
    await asyncio.to_thread(thread.join)


def test_a_wake_after_the_loop_ended_is_nothing() -> None:
    async def make() -> Signal:
        return Signal(SettableClock())

    asyncio.run(make()).wake_soon()


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    clock = SettableClock()
    waiting = asyncio.create_task(Signal(clock).wait(5.0))
    await clock.wait_sleepers()
    waiting.cancel()
    await asyncio.wait([waiting])
    await asyncio.sleep(0)
    assert clock.next_wake() is None


async def test_a_broadcast_reaches_all_who_wait_and_nobody_later() -> None:
    clock, broadcast = SettableClock(), Broadcast()
    waiting = [asyncio.create_task(broadcast.wait(clock, 5.0)) for _ in range(2)]
    await clock.wait_sleepers(2)
    broadcast.tell()
    await asyncio.gather(*waiting)
    late = asyncio.create_task(broadcast.wait(clock, 5.0))
    await clock.wait_sleepers()
    assert not late.done()
    clock.advance(5.0)
    await late
