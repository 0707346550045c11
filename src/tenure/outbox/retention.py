"""The loop of retention: due chores in turn, at a bounded share of the time."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tenure.errors import Unavailable
from tenure.limits import (
    HOUSEKEEPING_SECONDS,
    PAYLOADS_PASS_SECONDS,
    RETENTION_PASS_SECONDS,
    RETENTION_PAUSE_SECONDS,
    RETENTION_SHARE,
    TASKS_PASS_SECONDS,
)
from tenure.outbox.ledger.retaining import STEPS, Keep, Step, Stepping
from tenure.store import chores
from tenure.store.contract import RowsLocked
from tenure.telemetry.events import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tenure.clock import Clock
    from tenure.ids import NodeId
    from tenure.outbox.model import OutboxSettings
    from tenure.store.backend import Backend
    from tenure.store.tx import Tx
    from tenure.telemetry.events import Events

__all__ = ["Retention"]

_OFTEN: Final = {"payloads": PAYLOADS_PASS_SECONDS, "tasks": TASKS_PASS_SECONDS}
"""Seconds between two passes of what comes more often than the rest."""


class Retention:
    """Removes what is over and old. One node of a fleet does it at a time.

    `node` says under which id this process takes chores; None takes none. `more` are
    the chores of other slices.
    """

    def __init__(
        self,
        backend: Backend,
        settings: OutboxSettings,
        clock: Clock,
        events: Events,
        node: Callable[[], NodeId | None],
        *,
        more: Mapping[str, Stepping] = MappingProxyType({}),
    ) -> None:
        self._backend: Final = backend
        self._keep: Final = Keep.of(settings)
        self._clock: Final = clock
        self._events: Final = events
        self._node: Final = node
        self._more: Final = more
        self._every: Final = settings.durations.scaled(HOUSEKEEPING_SECONDS)

    async def run(self) -> None:
        """Look for due chores now and then, until cancelled."""
        away = False
        while True:
            await self._clock.sleep(self._every)
            try:
                await self.turn()
                away = False
            except Unavailable as error:
                if not away:  # a line for each outage, not one for each turn
                    self._events.tell(Event.HOUSEKEEPING_FAILED, why=str(error))
                away = True
            except Exception as error:  # noqa: BLE001 - tried again, never the end
                self._events.tell(Event.HOUSEKEEPING_FAILED, error=error)

    async def turn(self) -> int:
        """Do every chore that is due and free, each to the end of its pass.

        Returns how many rows went. What fails in one chore never holds up the others.
        Raises Unavailable while the database is away.
        """
        due = await self._backend.read(partial(chores.due, names=[*STEPS, *self._more]))
        removed = 0
        for name in due:
            try:
                while (step := await self._paced(name)) is not None:
                    removed += step.removed
                    if step.place is None:
                        break
            except RowsLocked:
                pass  # rows in use; the pass goes on from its place at the next turn
            except Unavailable:
                raise
            except Exception as error:  # noqa: BLE001 - tried again, never the end
                self._events.tell(Event.HOUSEKEEPING_FAILED, error=error, chore=name)
        return removed

    async def _paced(self, name: str) -> Step | None:
        """Do one step, then pause so that steps take their share of the time only."""
        node = self._node()
        if node is None:
            return None
        began = self._clock.monotonic()
        step = await self._backend.write(
            partial(one_step, name=name, node=node, keep=self._keep, more=self._more)
        )
        took = self._clock.monotonic() - began
        if step is not None and step.place is not None:
            pause = took * (1 / RETENTION_SHARE - 1)
            await self._clock.sleep(max(RETENTION_PAUSE_SECONDS, pause))
        return step


def one_step(
    tx: Tx,
    name: str,
    node: NodeId,
    keep: Keep,
    more: Mapping[str, Stepping] = MappingProxyType({}),
) -> Step | None:
    """Do the next step of a chore; None when it is not due or another node has it."""
    chore = chores.take(tx, name, node)
    if chore is None:
        return None
    doing = STEPS.get(name) or more[name]
    step = doing(tx, chore.place, keep)
    if step.place is None:
        chores.rest(tx, chore, _OFTEN.get(name, RETENTION_PASS_SECONDS))
    else:
        chores.advance(tx, chore, step.place)
    return step
