"""Rows that this node holds from the moment they are accepted (see `claims.bearing`).

A birth has three steps on the event loop: room is *offered* before the accepting
transaction, what was born is *taken* into the hand after its commit, and an offer whose
transaction failed is *withdrawn*. Slots are reserved from the first step on, so claims
and births together never exceed them; and while an offer is open the node says that a
claim may be under way, so that no beat releases what was born a moment ago.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tenure.limits import BORN_SHARE
from tenure.store.claims import Birth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.clock import Clock
    from tenure.store.claims import Claimed
    from tenure.work.kinds import Loaded
    from tenure.work.loop import Incarnation, WorkerLoop

__all__ = ["Births", "Offered"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offered:
    """One open offer: what the transaction may use, and under which incarnation."""

    birth: Birth
    incarnation: Incarnation
    since: float


class Births:
    """What one worker loop offers to those who accept work on its event loop."""

    __slots__ = ("_clock", "_loop", "_open")

    def __init__(self, loop: WorkerLoop, clock: Clock) -> None:
        self._loop: Final = loop
        self._clock: Final = clock
        self._open: Final[dict[Offered, None]] = {}

    @property
    def since(self) -> float | None:
        """Monotonic start of the oldest open offer; None without one. From any thread."""
        return min((each.since for each in self._open.copy()), default=None)

    def offer(self, count: int) -> Offered | None:
        """Reserve up to `count` slots; None where the next claim should decide.

        Nothing is offered while a backlog is known (the last claim was full): what is
        new would overtake what waits. Births take at most half of the slots.
        """
        loop, now = self._loop, self._clock.monotonic()
        incarnation = loop.incarnation
        if incarnation is None or not loop.at_ease or not incarnation.fence.allows():
            return None
        seats = loop.bulkhead
        room = min(count, int(seats.slots * BORN_SHARE) - seats.used)
        if room <= 0:
            return None
        birth = Birth(
            node=incarnation.node,
            serves=incarnation.walker.serves,
            count=room,
            lane_max=seats.lane_max,
            busy=seats.busy(),
            skip=seats.slow(now),
        )
        offered = Offered(birth=birth, incarnation=incarnation, since=now)
        seats.reserve(room)
        self._open[offered] = None
        return offered

    def withdraw(self, offered: Offered) -> None:
        """Give the reserved slots back: nothing was born, or nobody knows."""
        del self._open[offered]
        self._loop.bulkhead.reserve(-offered.birth.count)
        self._loop.look_again()

    def take(
        self,
        offered: Offered,
        born: Sequence[Claimed],
        loaded: Sequence[Loaded | None],
        *,
        at: float,
        now_us: int,
    ) -> None:
        """Hold what was born, and run it. `at` is when the transaction read `now_us`.

        What is not loaded from memory (None) is read from the database first.
        """
        try:
            if born:
                self._loop.receive(
                    offered.incarnation, born, loaded, at=at, now_us=now_us
                )
        finally:  # only now: a beat that finds neither hand nor offer would release
            self.withdraw(offered)
