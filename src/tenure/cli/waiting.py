"""Waiting on a command's own thread: for a while, or for a fact with a deadline."""

import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from tenure.clock import SystemClock
from tenure.limits import WATCH_SECONDS

__all__ = ["pause", "ticks", "watch"]

T = TypeVar("T")
_NEVER: Final = threading.Event


def pause(seconds: float) -> None:
    """Return after `seconds`; Ctrl-C ends it at once."""
    _NEVER().wait(max(0.0, seconds))


def ticks(every: float, seconds: float | None) -> Iterator[None]:
    """Yield at once and then `every` so often, until `seconds` have passed."""
    clock = SystemClock()
    until = None if seconds is None else clock.monotonic() + seconds
    while True:
        yield
        if until is not None and clock.monotonic() + every > until:
            return
        pause(every)


def watch(
    look: Callable[[], T], good: Callable[[T], bool], *, seconds: float
) -> tuple[T, bool]:
    """Look until what is seen is good or `seconds` have passed; return the last look."""
    seen = look()
    for _ in ticks(WATCH_SECONDS, seconds):
        if good(seen):
            return seen, True
        seen = look()
    return seen, good(seen)
