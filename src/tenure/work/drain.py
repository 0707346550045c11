"""Stopping without losing anything: what SIGTERM means.

No new claims. What was claimed and not begun is released. What is in flight finishes and
is recorded, for as long as its own deadlines allow and at most the drain budget. What is
cut then is settled as cut: uncharged, due at once. The node is closed last.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from tenure.limits import DRAIN_SETTLE_SECONDS
from tenure.spawn import Tasks
from tenure.telemetry.events import Event
from tenure.work.held import Stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.clock import Clock
    from tenure.limits import Durations
    from tenure.telemetry.events import Events
    from tenure.work.loop import WorkerLoop
    from tenure.work.node import Node

__all__ = ["Drain", "Drained", "Draining"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining:
    """What a drain is about to wait for, and how long at most, in seconds."""

    in_flight: int
    released: int
    budget_seconds: float
    settle_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """How a drain went: counts of attempts, and seconds."""

    finished: int
    released: int
    cut: int
    unwritten: int
    budget_seconds: float
    settle_seconds: float
    took_seconds: float


class Drain:
    """Stops one node. `run` it once; `hurry` ends the wait for what is in flight."""

    __slots__ = (
        "_clock",
        "_events",
        "_hurried",
        "_loop",
        "_node",
        "_seconds",
        "_settle",
    )

    def __init__(
        self,
        loop: WorkerLoop,
        node: Node,
        *,
        seconds: float,
        clock: Clock,
        durations: Durations,
        events: Events,
    ) -> None:
        self._loop: Final = loop
        self._node: Final = node
        self._seconds: Final = seconds
        self._settle: Final = durations.scaled(DRAIN_SETTLE_SECONDS)
        self._clock: Final = clock
        self._events: Final = events
        self._hurried = False

    def hurry(self) -> None:
        """Cut what is in flight now: the second signal."""
        self._hurried = True
        self._loop.look_again()

    def budget(self) -> float:
        """Return how long what is in flight may still take, in seconds."""
        now = self._clock.monotonic()
        longest = max(
            (held.deadline - now for held in self._loop.hand.values()), default=0.0
        )
        return min(self._seconds, max(0.0, longest))

    async def run(self, *, told: Callable[[Draining], None] | None = None) -> Drained:
        """Drain, close the node's row, and return how it went.

        ``told`` is called once with both budgets, before the wait.
        """
        began = self._clock.monotonic()
        self._loop.close()
        before = len(self._loop.hand)
        released = self._loop.stop(Stop.CUT, begun=False)
        budget = self.budget()
        plan = Draining(
            in_flight=before - released,
            released=released,
            budget_seconds=budget,
            settle_seconds=self._settle,
        )
        self._events.tell(Event.DRAINING, **asdict(plan))
        if told is not None:
            try:
                told(plan)
            except Exception as error:  # noqa: BLE001 - a closed pipe ends no drain
                self._failed("drain.told", error)
        tasks = Tasks(self._failed)
        tasks.start(self._node.drain(), name="drain.mark")
        await self._loop.wait_for(lambda: self._hurried or self._loop.idle, budget)
        cut = self._loop.stop(Stop.CUT, begun=True)
        if cut:
            self._events.tell(Event.CUT, attempts=cut)
        await self._loop.wait_for(lambda: self._loop.idle, self._settle)
        unwritten = len(self._loop.hand)
        await self._end(tasks)
        return Drained(
            finished=max(0, before - released - cut - unwritten),
            released=released,
            cut=cut,
            unwritten=unwritten,
            budget_seconds=budget,
            settle_seconds=self._settle,
            took_seconds=self._clock.monotonic() - began,
        )

    async def _end(self, tasks: Tasks) -> None:
        """Close the node, within the second budget although the database may hang."""
        await tasks.wait(self._settle)
        tasks.start(self._node.close(), name="drain.close")
        await tasks.wait(self._settle)
        await tasks.cancel()
        await self._loop.aclose()

    def _failed(self, name: str, error: BaseException) -> None:
        self._events.tell(Event.LOOP_FAILED, error=error, task=name)
