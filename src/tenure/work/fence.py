"""Whether a node may still act for the claims that it holds.

Theory. Others may take a node's work when its beats have been silent for 40 s. A node
that cannot prove that it was heard within 25 s therefore starts nothing more, so that
the two never act at once. The proof is the *sending* time of the last beat that
succeeded: an answer may be old when it arrives. The age is taken from the clock that
counts a suspended machine too, or from the wall clock when that has moved further,
because a stopped process and a restored snapshot are asleep without knowing it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tenure.clock import US

if TYPE_CHECKING:
    from tenure.clock import Clock

__all__ = ["Fence", "Sent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """When a beat was sent: boottime seconds and wall microseconds."""

    boottime: float
    wall_us: int


class Fence:
    """The fence of one node incarnation. Renewed by the beats, read by everybody.

    Safe to read from any thread: each change is one assignment.
    """

    __slots__ = ("_clock", "_seconds", "_sent", "_shut")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock: Final = clock
        self._seconds: Final = seconds
        self._sent = self.sending()
        self._shut: str | None = None

    def sending(self) -> Sent:
        """Return the stamp to keep while a beat is under way."""
        return Sent(boottime=self._clock.boottime(), wall_us=self._clock.wall_us())

    def renew(self, sent: Sent) -> None:
        """Say that the beat which was sent then has been committed."""
        self._sent = sent

    def shut(self, why: str) -> None:
        """Close for good: this incarnation was closed, whatever its beats say."""
        self._shut = why

    @property
    def shut_because(self) -> str | None:
        """Why it was closed for good; None while it was not."""
        return self._shut

    def age(self) -> float:
        """Return the seconds since the last good beat was sent."""
        sent = self._sent
        booted = self._clock.boottime() - sent.boottime
        walled = (self._clock.wall_us() - sent.wall_us) / US
        return max(booted, walled)

    def allows(self) -> bool:
        """Tell whether work may be started under this incarnation now."""
        return self._shut is None and self.age() < self._seconds
