"""What the database says, read from outside as an operator would.

Every read is repeated while the database is away: looking is no part of the traffic.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from tenure.clock import Clock, SystemClock
from tenure.errors import Unavailable
from tenure.limits import LAB_AGAIN_SECONDS, LAB_READY_SECONDS
from tenure.store.backend import open_backend

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.store.backend import Backend
    from tenure.store.tx import Tx

__all__ = ["Begun", "Evidence", "Held", "Totals"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Claims of some nodes at an instant; `claimed` are live, `taken` were lost since.

    `alone` are those of `claimed` that run with nothing beside them, as suspects.
    """

    claimed: int
    taken: int
    alone: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A request that began: when, in µs since the epoch, and in which process."""

    at: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Rows at the end."""

    messages: int
    succeeded: int
    parked: int
    unsettled: int
    attempts: int
    attempts_lost: int


class Evidence:
    """One connection to the database of a lab."""

    def __init__(self, backend: Backend) -> None:
        self.backend: Final = backend
        self._clock: Final[Clock] = SystemClock()

    @classmethod
    async def open(cls, url: str) -> Evidence:
        """Open it; the database must be there."""
        return cls(await open_backend(url))

    async def aclose(self) -> None:
        """Close it."""
        await self.backend.aclose()

    async def claimed(self) -> int:
        """Return how many claims are live."""
        return await self._read(
            lambda tx: tx.scalar("SELECT count(*) FROM work WHERE state = 'claimed'")
        )

    async def held_by(self, pid: int) -> Held:
        """Return the claims of a process, those that were taken from it too.

        Once it is dead the sum stays: it claims no more, and nobody else settles them.
        """
        return await self._read(lambda tx: _held(tx, pid))

    async def settled(self) -> bool:
        """Return whether every delivery has come to its end."""
        open_ = await self._read(
            lambda tx: tx.scalar(
                "SELECT count(*) FROM work WHERE state IN ('ready', 'claimed')"
            )
        )
        return open_ == 0

    async def begun(self) -> list[Begun]:
        """Return every request that began and was settled, in order."""
        rows = await self._read(
            lambda tx: tx.all(
                "SELECT a.begun_at, n.pid FROM attempt a JOIN node n ON n.id = a.node"
                " WHERE a.begun_at IS NOT NULL ORDER BY a.begun_at"
            )
        )
        return [Begun(at=at, pid=pid) for at, pid in rows]

    async def totals(self) -> Totals:
        """Count everything."""
        return await self._read(_totals)

    async def _read(self, fn: Callable[[Tx], T]) -> T:
        """Read, again while the database is away; raises Unavailable when it stays so."""
        end = self._clock.monotonic() + LAB_READY_SECONDS
        while True:
            try:
                return await self.backend.read(fn)
            except Unavailable:
                if self._clock.monotonic() > end:
                    raise
            await asyncio.sleep(LAB_AGAIN_SECONDS)


def _held(tx: Tx, pid: int) -> Held:
    [(claimed, alone)] = tx.all(
        "SELECT count(*), count(CASE WHEN w.alone THEN 1 END)"
        " FROM work w JOIN node n ON n.id = w.claimed_by"
        " WHERE w.state = 'claimed' AND n.pid = :pid",
        {"pid": pid},
    )
    taken = tx.scalar(
        "SELECT count(*) FROM attempt a JOIN node n ON n.id = a.node"
        " WHERE a.outcome = 'lost' AND n.pid = :pid",
        {"pid": pid},
    )
    return Held(claimed=claimed, taken=taken, alone=alone)


def _totals(tx: Tx) -> Totals:
    states: dict[str, int] = {
        row[0]: row[1]
        for row in tx.all("SELECT state, count(*) FROM work GROUP BY state")
    }
    outcomes: dict[str, int] = {
        row[0]: row[1]
        for row in tx.all("SELECT outcome, count(*) FROM attempt GROUP BY outcome")
    }
    succeeded = states.get("succeeded", 0)
    return Totals(
        messages=tx.scalar("SELECT count(*) FROM message"),
        succeeded=succeeded,
        parked=states.get("parked", 0),
        unsettled=sum(states.values()) - succeeded,
        attempts=sum(outcomes.values()),
        attempts_lost=outcomes.get("lost", 0),
    )
