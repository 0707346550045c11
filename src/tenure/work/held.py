"""One claim in a node's memory, from its commit until its result is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tenure.clock import US
from tenure.ids import AttemptId, new_attempt_id

if TYPE_CHECKING:
    import asyncio

    from tenure.clock import Clock
    from tenure.ids import LaneId, NodeId, WorkId
    from tenure.store.claims import Claimed
    from tenure.work.fence import Fence

__all__ = ["Held", "Stop"]


class Stop(StrEnum):
    """Why an attempt was ended from outside."""

    CUT = "cut at the drain budget"
    FENCED = "this node could not renew"
    GONE = "claim no longer held"
    CANCELLED = "cancel requested"
    OVERRAN = "deadline passed"


@dataclass(slots=True, eq=False, kw_only=True)
class Held:
    """A claim and how far it has come. Belongs to the event loop; is its own guard.

    ``at`` is the monotonic time at which the claim's transaction read the database's
    clock as ``now_us``; every instant of this attempt is told relative to that pair, so
    the host's wall clock never enters the database.
    """

    claimed: Claimed
    node: NodeId
    fence: Fence
    clock: Clock
    ticket: int
    at: float
    now_us: int
    start: float
    deadline: float
    attempt: AttemptId = field(default_factory=new_attempt_id)
    begun_us: int | None = None
    entered: bool = False
    settling: bool = False
    stopped: Stop | None = None
    task: asyncio.Task[Any] | None = None

    @property
    def key(self) -> tuple[WorkId, int]:
        """The claim: work id and number."""
        return self.claimed.work.id, self.claimed.work.claim

    @property
    def lane(self) -> LaneId:
        """The lane it holds a slot for."""
        return self.claimed.work.lane

    @property
    def begun(self) -> bool:
        """Whether the outside world may have been touched."""
        return self.begun_us is not None

    @property
    def running(self) -> bool:
        """Whether there is still something to end from outside."""
        return not self.settling and self.stopped is None

    def instant(self) -> int:
        """Return now in microseconds of the database's clock."""
        return self.now_us + round((self.clock.monotonic() - self.at) * US)

    def too_late(self) -> bool:
        """Tell whether too little is left of the deadline to begin at all.

        More than half of the budget went by before the start: the request would be cut
        for a slowness that is this node's, not the receiver's.
        """
        budget = self.deadline - self.start
        return self.deadline - self.clock.monotonic() < budget / 2

    def may_begin(self) -> bool:
        """Allow the first byte, and from then on refuse a release. See `Guard`."""
        allowed = (
            self.stopped is None
            and self.fence.allows()
            and self.clock.monotonic() < self.deadline
        )
        if allowed and self.begun_us is None:
            self.begun_us = self.instant()
        return allowed

    def restart(self) -> None:
        """Give the whole budget again, counted from now: its wait was ours."""
        budget = self.deadline - self.start
        self.start = self.clock.monotonic()
        self.deadline = self.start + budget
        deadline_at = self.instant() + round(budget * US)
        work = replace(self.claimed.work, deadline_at=deadline_at)
        self.claimed = replace(self.claimed, work=work)

    def stop(self, why: Stop) -> bool:
        """End the attempt from outside; False when there is nothing left to end."""
        if not self.running:
            return False
        self.stopped = why
        # A task that has not entered yet would never run its clean-up; it looks itself.
        if self.task is not None and self.entered:
            self.task.cancel()
        return True
