"""How late the event loop is: what a hung handler or a full processor does to a node."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from tenure.limits import LAG_EVERY_SECONDS, LAG_LOOKS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Lag"]


class Lag:
    """Looks at the loop's own clock every so often; `run` it on the loop in question."""

    __slots__ = ("_lagged", "_late")

    def __init__(self, lagged: Callable[[float], None]) -> None:
        self._lagged: Final = lagged
        self._late: Final[deque[float]] = deque(maxlen=LAG_LOOKS)

    @property
    def seconds(self) -> float:
        """The least lag of the last looks: above a bound the loop is late for good."""
        return min(self._late) if len(self._late) == LAG_LOOKS else 0.0

    async def run(self) -> None:
        """Look for ever."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_SECONDS
            await asyncio.sleep(LAG_EVERY_SECONDS)
            late = max(0.0, loop.time() - due)
            self._late.append(late)
            self._lagged(late)
