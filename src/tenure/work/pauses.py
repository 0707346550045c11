"""Where a test may stop the worker: named points that do nothing otherwise.

An interleaving that happens once in a million runs is forced by holding one side at a
point while the other goes on. Production passes `Pauses` as it is.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

__all__ = ["Pauses", "Point"]


class Point(StrEnum):
    """Each place where the worker may be held."""

    CLAIMED = "claim committed, not yet in memory"
    LOADED = "loaded, not yet started"
    BEGIN = "before a request may begin"
    SETTLE = "before a result is written"
    SETTLED = "result written, slot not yet free"
    RECONCILE = "inside the beat, before claims are compared"


class Pauses:
    """Never waits. A test's own class with these methods waits where it likes."""

    __slots__ = ()

    async def at(self, point: Point, **facts: Any) -> None:
        """Return when the worker may go on from ``point``."""

    def at_blocking(self, point: Point, **facts: Any) -> None:
        """Return when the beat's thread may go on from ``point``."""
