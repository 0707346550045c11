"""How much of a node one lane may take, and what slow lanes may take together.

Theory. A receiver that hangs keeps its slots until its deadline. Without a bound a few
hung receivers fill the node and everybody else waits for them. Two bounds keep that
away: one lane never holds more than an eighth of the slots, and lanes that are slow
*now* start nothing while they together hold half of the slots. So hung receivers can
fill a node once, for one deadline at most, and never more than half of it afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tenure.limits import LANE_SLOTS_DIVISOR, LANE_SLOTS_MIN, SLOW_SHARE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.ids import LaneId

__all__ = ["Bulkhead", "Offer", "lane_slots"]

SLOW_REMEMBERED_MAX: Final = 10_000
"""Lanes whose last attempt was slow; the longest remembered is forgotten beyond it."""


def lane_slots(slots: int) -> int:
    """Return how many attempts one lane may have at once in a node of ``slots``."""
    return min(slots, max(LANE_SLOTS_MIN, slots // LANE_SLOTS_DIVISOR))


@dataclass(slots=True)
class _Lane:
    """Start times (monotonic seconds) of one lane's claims, the oldest first."""

    started: dict[int, float] = field(default_factory=dict[int, float])


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """How many rows to claim now, and the lanes to leave out.

    ``partial`` says that the lanes left out are worth asking at once afterwards.
    """

    want: int
    skip: frozenset[LaneId]
    partial: bool


class Bulkhead:
    """The slots of one node and who sits in them. One event loop's, not locked."""

    __slots__ = (
        "_lanes",
        "_reserved",
        "_slow_last",
        "_ticket",
        "_with_slow",
        "lane_max",
        "slots",
        "slow_after",
    )

    def __init__(self, *, slots: int, slow_after: float) -> None:
        self.slots: Final = slots
        self.lane_max: Final = lane_slots(slots)
        self.slow_after: Final = slow_after
        self._lanes: Final[dict[LaneId, _Lane]] = {}
        self._slow_last: Final[dict[LaneId, None]] = {}
        self._ticket = 0
        self._reserved = 0
        self._with_slow = False

    def enter(self, lane: LaneId, at: float) -> int:
        """Take a slot for a lane at monotonic time ``at``; return its ticket."""
        self._ticket += 1
        self._lanes.setdefault(lane, _Lane()).started[self._ticket] = at
        return self._ticket

    def leave(self, lane: LaneId, ticket: int, at: float) -> None:
        """Give a slot back; what it took is what the lane is judged by from now."""
        seats = self._lanes[lane]
        took = at - seats.started.pop(ticket)
        if not seats.started:
            del self._lanes[lane]
        self._slow_last.pop(lane, None)
        if took > self.slow_after:
            self._slow_last[lane] = None
            while len(self._slow_last) > SLOW_REMEMBERED_MAX:
                del self._slow_last[next(iter(self._slow_last))]

    def reserve(self, count: int) -> None:
        """Keep slots for what is being accepted; a negative count gives them back."""
        self._reserved += count

    @property
    def used(self) -> int:
        """How many slots are taken or reserved."""
        taken = sum(len(seats.started) for seats in self._lanes.values())
        return taken + self._reserved

    def full(self, lane: LaneId) -> bool:
        """Tell whether a lane holds as many slots as one lane may."""
        seats = self._lanes.get(lane)
        return seats is not None and len(seats.started) >= self.lane_max

    @property
    def free(self) -> int:
        """How many slots are free."""
        return max(0, self.slots - self.used)

    def busy(self) -> Mapping[LaneId, int]:
        """Return how many slots each lane holds."""
        return {lane: len(seats.started) for lane, seats in self._lanes.items()}

    def slow(self, now: float) -> frozenset[LaneId]:
        """Return the lanes that are slow at monotonic time ``now``."""
        hung = {
            lane
            for lane, seats in self._lanes.items()
            if now - next(iter(seats.started.values())) > self.slow_after
        }
        return frozenset(hung.union(self._slow_last))

    def offer(self, now: float) -> Offer:
        """Return what may be claimed at ``now``.

        Slow lanes never get beyond half of the slots: while they hold less, what is
        asked for with them alternates with what is asked for without them, and never
        exceeds what they may still take.
        """
        free, slow = self.free, self.slow(now)
        if not slow:
            return Offer(want=free, skip=slow, partial=False)
        busy = self.busy()
        room = int(SLOW_SHARE * self.slots) - sum(busy.get(lane, 0) for lane in slow)
        if room <= 0:
            return Offer(want=free, skip=slow, partial=False)
        if room >= free:
            return Offer(want=free, skip=frozenset(), partial=False)
        self._with_slow = not self._with_slow
        if self._with_slow:
            return Offer(want=room, skip=frozenset(), partial=False)
        return Offer(want=free, skip=slow, partial=True)
