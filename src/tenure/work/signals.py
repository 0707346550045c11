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

__all__ = ["Signal"]


class Signal:
    """One waiter's hint. Set from the loop by `wake`, from threads by `wake_soon`.

    Made on the event loop that waits.
    """

    __slots__ = ("_clock", "_event", "_loop", "_tasks")

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._event: Final = asyncio.Event()
        self._loop: Final = asyncio.get_running_loop()
        self._tasks: Final = Tasks()

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
        if not self._event.is_set() and seconds > 0:
            slept = self._tasks.start(self._clock.sleep(seconds), name="signal.slept")
            woken = self._tasks.start(self._event.wait(), name="signal.woken")
            try:
                await asyncio.wait((slept, woken), return_when=asyncio.FIRST_COMPLETED)
            finally:
                slept.cancel()
                woken.cancel()
        was_set = self._event.is_set()
        self._event.clear()
        return was_set
