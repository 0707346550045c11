"""The only door to time.

Instants are ``int`` microseconds since the Unix epoch, UTC; they become RFC 3339 text
at the wire only. Three clocks tell three things: the wall says what time it is and may
jump, the monotonic clock never goes back but stands still while a machine is suspended,
the boottime clock counts that sleep too, which is why fences use it.
"""

import asyncio
import heapq
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

__all__ = [
    "US",
    "Clock",
    "SettableClock",
    "SystemClock",
    "from_rfc3339",
    "to_rfc3339",
]

US: Final = 1_000_000  # microseconds in a second
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Clock(Protocol):
    """What the rest of Tenure may know about time."""

    def wall_us(self) -> int:
        """Return the wall clock in microseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back; their zero means nothing."""
        ...

    def boottime(self) -> float:
        """Return seconds that never go back and count a suspended machine too."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` of this clock; at once when they are not above 0."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    __slots__ = ()

    def wall_us(self) -> int:
        """Return the wall clock in microseconds since the epoch."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def boottime(self) -> float:
        """Return seconds that count a suspended machine too, where the system can."""
        return _boottime()

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        await asyncio.sleep(max(0.0, seconds))


def _boottime_reader() -> Callable[[], float]:
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:  # macOS and Windows: their monotonic clock has to do
        return time.monotonic
    return lambda: time.clock_gettime(clock)


_boottime: Final = _boottime_reader()


@dataclass(slots=True, order=True)
class _Sleeper:
    until: float
    number: int
    loop: asyncio.AbstractEventLoop = field(compare=False)
    woken: asyncio.Future[None] = field(compare=False)


class SettableClock:
    """A clock that stands still until a test moves it.

    Sleepers wake when `advance` passes their time, in the order of their times. Move it
    from the thread of the loop that sleeps on it.
    """

    __slots__ = ("_arrival", "_boot_extra", "_count", "_now", "_sleepers", "_wall_us")

    def __init__(self, wall_us: int = 1_767_225_600 * US) -> None:
        self._wall_us = wall_us  # 2026-01-01T00:00:00Z unless told
        self._now = 0.0
        self._boot_extra = 0.0
        self._count = 0
        self._sleepers: list[_Sleeper] = []
        self._arrival: asyncio.Event | None = None

    def wall_us(self) -> int:
        """Return the wall clock in microseconds since the epoch."""
        return self._wall_us

    def monotonic(self) -> float:
        """Return the seconds by which the clock was advanced."""
        return self._now

    def boottime(self) -> float:
        """Return the seconds by which the clock was advanced or suspended."""
        return self._now + self._boot_extra

    async def sleep(self, seconds: float) -> None:
        """Return when the clock has been advanced by ``seconds``."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        self._count += 1
        sleeper = _Sleeper(self._now + seconds, self._count, loop, loop.create_future())
        heapq.heappush(self._sleepers, sleeper)
        if self._arrival is not None:
            self._arrival.set()
        try:
            await sleeper.woken
        finally:
            if sleeper in self._sleepers:  # cancelled before its time
                self._sleepers.remove(sleeper)
                heapq.heapify(self._sleepers)

    def advance(self, seconds: float) -> None:
        """Move all three clocks forward and wake whoever waited for that.

        Raises ValueError for a negative number: `step_wall` is what goes back.
        """
        self.shift(seconds)
        self.ring()

    def shift(self, seconds: float) -> None:
        """Move all three clocks forward and wake nobody yet: `ring` does.

        What must have happened before the sleepers see the new time, such as a beat on
        another thread, happens between the two. Raises ValueError as `advance` does.
        """
        if seconds < 0:
            msg = f"cannot advance by {seconds} s: only step_wall may go back"
            raise ValueError(msg)
        self._now += seconds
        self._wall_us += round(seconds * US)

    def ring(self) -> None:
        """Wake whoever's time has come."""
        # A thousandth of a microsecond forgives the rounding of summed floats.
        while self._sleepers and self._sleepers[0].until <= self._now + 1e-9:
            woken = heapq.heappop(self._sleepers).woken
            if not woken.done():
                woken.set_result(None)

    def step_wall(self, seconds: float) -> None:
        """Move the wall clock alone, forward or back, as an operator or NTP would."""
        self._wall_us += round(seconds * US)

    def suspend(self, seconds: float) -> None:
        """Let the machine sleep: wall and boottime move, monotonic stands still."""
        self._boot_extra += seconds
        self._wall_us += round(seconds * US)

    def next_wake(self) -> float | None:
        """Return the seconds until the first sleeper wakes; None when none sleeps."""
        return self._sleepers[0].until - self._now if self._sleepers else None

    async def wait_sleepers(self, count: int = 1) -> None:
        """Return when at least ``count`` tasks sleep on this clock."""
        while len(self._sleepers) < count:
            self._arrival = asyncio.Event()
            await self._arrival.wait()
        self._arrival = None


def to_rfc3339(instant_us: int) -> str:
    """Return an instant as RFC 3339 in UTC with six digits of fraction and ``Z``."""
    moment = _EPOCH + timedelta(microseconds=instant_us)
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


_RFC3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
    r"(?:([Zz])|([+-])(\d\d):(\d\d)|( UTC))",
    re.ASCII,
)
_NO_OFFSET: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?", re.ASCII
)


def from_rfc3339(text: str) -> int:
    """Return the instant that RFC 3339 text names; digits past the sixth are dropped.

    An offset is required; ``YYYY-MM-DD HH:MM:SS.f UTC`` is understood as well. Raises
    ValueError with the reason.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(_why_no_instant(text))
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction = (match[7] or "")[:6].ljust(6, "0")
    try:
        moment = datetime(
            year, month, day, hour, minute, second, int(fraction), tzinfo=UTC
        )
    except ValueError as error:
        msg = f"{text!r} is no instant: {error}"
        raise ValueError(msg) from None
    instant = (moment - _EPOCH) // _MICROSECOND
    if match[9] is None:
        return instant
    hours, minutes = int(match[10]), int(match[11])
    if hours > 23 or minutes > 59:
        msg = f"{text!r} is no instant: the offset must be between -23:59 and +23:59"
        raise ValueError(msg)
    offset = (hours * 60 + minutes) * 60 * US
    return instant - offset if match[9] == "+" else instant + offset


def _why_no_instant(text: str) -> str:
    shown = text if len(text) <= 64 else text[:61] + "..."
    if _NO_OFFSET.fullmatch(text):
        return f"{shown!r} has no offset: add Z or one such as +02:00"
    return f"{shown!r} is no RFC 3339 instant such as 2026-01-02T03:04:05.123456Z"
