"""The in-process hint that something may be due: never needed, only quicker.

Correctness rests on the poll. A wake that comes while nobody waits is kept, so the next
wait returns at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from tenure.spawn import Tasks

if TYPE_CHECKING:
    from tenure.clock import Clock

__all__ = ["Broadcast", "Signal"]


async def _either(clock: Clock, seconds: float, event: asyncio.Event) -> None:
    """Return when the event is set or ``seconds`` of the clock have passed."""
    if event.is_set() or seconds <= 0:
        return
    tasks = Tasks()
    both = (
        tasks.start(clock.sleep(seconds), name="signal.slept"),
        tasks.start(event.wait(), name="signal.woken"),
    )
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            task.cancel()


class Broadcast:
    """Tells everybody who waits just now that something changed."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Let all present waiters go on; from the event loop's thread."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self, clock: Clock, seconds: float) -> None:
        """Wait for the next `tell`, at most ``seconds`` of the clock."""
        await _either(clock, seconds, self._event)


class Signal:
    """One waiter's hint. Set from the loop by `wake`, from threads by `wake_soon`.

    Made on the event loop that waits.
    """

    __slots__ = ("_clock", "_event", "_loop")

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._event: Final = asyncio.Event()
        self._loop: Final = asyncio.get_running_loop()

    def wake(self) -> None:
        """Let the waiter go on; from the event loop's thread."""
        self._event.set()

    def wake_soon(self) -> None:
        """Let the waiter go on; from any thread, also when the loop has ended."""
        # A loop that ends meanwhile has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> bool:
        """Wait for a wake, at most ``seconds`` of the clock; True when woken."""
        await _either(self._clock, seconds, self._event)
        was_set = self._event.is_set()
        self._event.clear()
        return was_set
