"""The loop that fires what is due, on every node, and keeps the catalogue true.

It asks for the next due instant, sleeps until then or for a poll, and ticks. A node
enrols when it has opened, and again under each new incarnation. What it cannot do now
(no database, a catalogue that cannot be read) it does later: due stays due.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from tenure.clock import US
from tenure.errors import ConfigInvalid, Unavailable
from tenure.ids import TenantId, jitter
from tenure.limits import (
    ENROL_RETRY_SECONDS,
    POLL_JITTER,
    TICK_POLL_SECONDS,
)
from tenure.schedules.ledger import catalogue, controls, outcomes, ticking
from tenure.schedules.ledger.looking import look_for
from tenure.telemetry.events import Event
from tenure.work.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tenure.clock import Clock
    from tenure.ids import NodeId
    from tenure.limits import Durations
    from tenure.naming.coordinates import Coordinate
    from tenure.schedules.declaring import Declared
    from tenure.schedules.ledger.catalogue import Enrolled
    from tenure.schedules.ledger.looking import Look
    from tenure.schedules.ledger.ticking import Ticked
    from tenure.store.backend import Backend
    from tenure.store.tx import Tx
    from tenure.telemetry.events import Events

__all__ = ["Ticker"]

_TENANT: Final = TenantId("default")
_PAUSE_MIN_SECONDS: Final = 0.001  # an instant that is as good as now


class Ticker:
    """One node's ticking. `node` is its current incarnation, None while it has none.

    `enrolled` is told what the node serves, before anything of it can be claimed;
    `fired` after a commit that made runs due.
    """

    def __init__(
        self,
        backend: Backend,
        declared: Mapping[Coordinate, Declared],
        *,
        node: Callable[[], NodeId | None],
        enrolled: Callable[[Enrolled], Awaitable[None]],
        fired: Callable[[], None],
        clock: Clock,
        durations: Durations,
        events: Events,
        fires: Callable[[], bool] = lambda: True,
    ) -> None:
        self._backend: Final = backend
        self._definitions: Final = {c: d.definition for c, d in declared.items()}
        self._node: Final = node
        self._enrolled: Final = enrolled
        self._fired: Final = fired
        self._clock: Final = clock
        self._durations: Final = durations
        self._events: Final = events
        self._fires: Final = fires
        self._as: NodeId | None = None
        self._found: Enrolled | None = None
        self._unreadable = False
        self._away = False
        self._kept = 0.0
        self._place = outcomes.START
        self._told: Final[set[str]] = set()
        self.signal: Final = Signal(clock)
        """Wakes the loop: a job was made, changed or resumed in this process."""
        self.open = True

    def close(self) -> None:
        """Fire nothing more; the pass that goes on ends."""
        self.open = False
        self.signal.wake()

    async def run(self) -> None:
        """Tick until `close` is called."""
        while self.open:
            rest = await self._safe_pass()
            if rest > 0:
                await self.signal.wait(rest)

    async def enrol(self) -> bool:
        """Say what this node declares; False when that could not be read or written."""
        node = self._node()
        if node is None or node == self._as:
            return node is not None
        enrol = partial(
            catalogue.enrol,
            node=node,
            tenant=_TENANT,
            declared=self._definitions,
        )
        try:
            found = await self._backend.write(enrol)
        except ConfigInvalid:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing else waits
            if not self._unreadable:
                known = isinstance(error, Unavailable)
                self._events.tell(
                    Event.CATALOGUE_UNREADABLE,
                    error=None if known else error,
                    why=str(error),
                )
            self._unreadable = True
            return False
        if self._unreadable:
            self._events.tell(Event.CATALOGUE_READ, jobs=len(found.ids))
        self._unreadable = False
        if found.added or found.renamed:
            self._events.tell(
                Event.JOBS_CHANGED,
                added=[str(each) for each in found.added],
                renamed=[f"{was} → {now}" for was, now in found.renamed],
            )
        await self._enrolled(found)
        self._as, self._found = node, found
        return True

    # --- one pass --------------------------------------------------------------------

    async def _safe_pass(self) -> float:
        """Return for how long to sleep."""
        try:
            rest = await self._pass()
        except Unavailable as error:
            if not self._away:  # a line for each outage, not one for each pass
                self._events.tell(Event.TICK_FAILED, why=str(error))
            self._away = True
        except Exception as error:  # noqa: BLE001 - the loop outlives what it met
            if not self._away:
                self._events.tell(Event.TICK_FAILED, error=error)
            self._away = True
        else:
            self._away = False
            return rest
        return self._durations.scaled(jitter(0.5, 1.0))

    async def _pass(self) -> float:
        if self._node() is None:
            return self._durations.scaled(ENROL_RETRY_SECONDS)
        if not await self.enrol():
            return self._durations.scaled(ENROL_RETRY_SECONDS)
        poll = jitter(TICK_POLL_SECONDS * (1 - POLL_JITTER), TICK_POLL_SECONDS)
        poll = self._durations.scaled(poll)
        node = self._as
        if node is None:
            return poll
        now = self._clock.monotonic()
        around = now - self._kept >= self._durations.scaled(TICK_POLL_SECONDS) / 2
        look = await self._backend.read(partial(look_for, node=node, around=around))
        if around:
            self._kept = now
            await self._keep(look, node)
        if not self._fires():
            return poll
        if look.next_at is None or look.next_at > look.now:
            left = poll if look.next_at is None else (look.next_at - look.now) / US
            return max(_PAUSE_MIN_SECONDS, min(poll, left))
        ticked = await self._backend.write(partial(ticking.tick, node=node))
        self._tell(ticked)
        if ticked.fired:
            self._fired()
        if ticked.full:
            return 0.0
        # What others hold is theirs; a job that nobody here can read waits for a poll.
        return 0.0 if ticked.jobs > len(ticked.unreadable) else poll / 10

    async def _keep(self, look: Look, node: NodeId) -> None:
        """Follow the nodes that come and go, and what ended without its node."""
        if look.grouped and self._found is not None:
            groups = await self._backend.read(
                partial(catalogue.groups_served, tenant=_TENANT, node=node)
            )
            if groups != self._found.groups:
                self._found = replace(self._found, groups=groups)
                await self._enrolled(self._found)
        if look.stale:
            await self._backend.write(_refresh)
        if look.failing:
            for job in await self._backend.write(controls.pause_failing):
                self._events.tell(Event.JOB_PAUSED_ITSELF, job=job)
        if look.running:
            mend = partial(outcomes.mend, place=self._place)
            _, self._place = await self._backend.write(mend)

    def _tell(self, ticked: Ticked) -> None:
        if ticked.skipped:
            self._events.tell(Event.WINDOWS_MISSED, windows=ticked.skipped)
        for job in ticked.unreadable:
            if job not in self._told:
                self._told.add(job)
                self._events.tell(Event.JOB_UNREADABLE, job=job)


def _refresh(tx: Tx) -> int:
    catalogue.lock_catalogue(tx)
    return catalogue.refresh(tx)
