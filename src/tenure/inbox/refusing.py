"""Refused requests, for the people who look for them: counted, the newest kept.

Whoever sends garbage must not be able to make the database busy with it. Refusals gather
in memory, bounded, and are written together now and then: the counts exactly, of each
source the newest few whole. A node that is killed loses those of the last half second;
nothing else depends on them.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

import msgspec

from tenure.errors import TenureError
from tenure.ids import Prefix, SourceId, TenantId, new_id
from tenure.inbox import tables
from tenure.limits import (
    REFUSED_BODY_BYTES,
    REFUSED_FLUSH_SECONDS,
    REFUSED_KEPT,
    REFUSED_QUEUE_MAX,
)
from tenure.outbox.ledger.rows import dump_pairs
from tenure.outbox.relayed import CREDENTIALS, MASKED
from tenure.spawn import Tasks
from tenure.telemetry.events import Event

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tenure.clock import Clock
    from tenure.inbox.arrivals import Arrival
    from tenure.store.backend import Backend
    from tenure.store.tx import Tx
    from tenure.telemetry.events import Events

__all__ = ["RefusedRequest", "Refuser", "write_refused"]


_TOKEN: Final = re.compile(
    r"((?:^|&)[^=&]*(?:token|secret|password)[^=&]*=)[^&]*", re.IGNORECASE
)
"""What a query says under a name that promises a secret."""


class RefusedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One refusal: at which source, why, what was answered, and the request."""

    tenant: TenantId
    source: SourceId
    reason: str
    detail: str
    status: int
    method: str
    query: str
    address: str | None
    headers: bytes
    body: bytes
    size: int
    received_at: int

    @classmethod
    def of(
        cls,
        arrival: Arrival,
        *,
        tenant: TenantId,
        source: SourceId,
        reason: str,
        detail: str,
        status: int,
        credentials: Collection[str],
        received_at: int,
    ) -> RefusedRequest:
        """Keep what people need of a request: credentials masked, the body cut."""
        lines = [
            (name, MASKED.encode())
            if (folded := name.decode("latin-1").lower()) in CREDENTIALS
            or folded in credentials
            else (name, value)
            for name, value in arrival.headers
        ]
        return cls(
            tenant=tenant,
            source=source,
            reason=reason,
            detail=detail,
            status=status,
            method=arrival.method,
            query=_TOKEN.sub(rf"\1{MASKED}", arrival.query.decode("latin-1")),
            address=arrival.address,
            headers=dump_pairs(lines),
            body=arrival.body[:REFUSED_BODY_BYTES],
            size=len(arrival.body),
            received_at=received_at,
        )


class Refuser:
    """Gathers refusals and writes them. `start` on the loop that uses it."""

    def __init__(self, backend: Backend, clock: Clock, events: Events) -> None:
        self._backend: Final = backend
        self._clock: Final = clock
        self._events: Final = events
        self._counts: Counter[tuple[SourceId, str]] = Counter()
        self._kept: dict[SourceId, deque[RefusedRequest]] = {}
        self._waiting = 0
        self._dirty = asyncio.Event()
        self._writing: Final = asyncio.Lock()
        self._tasks: Final = Tasks()

    def start(self) -> None:
        """Begin to write what is noted."""
        self._tasks.start(self._run(), name="inbox.refusing")

    async def aclose(self) -> None:
        """Write what is left, once, and end."""
        await self._tasks.cancel()
        await self.flush()

    def note(self, refused: RefusedRequest) -> None:
        """Count a refusal and keep it if it is among the newest of its source."""
        self._counts[refused.source, refused.reason] += 1
        kept = self._kept.setdefault(refused.source, deque(maxlen=REFUSED_KEPT))
        if len(kept) == REFUSED_KEPT:
            kept.append(refused)  # the oldest goes
        elif self._waiting < REFUSED_QUEUE_MAX:
            kept.append(refused)
            self._waiting += 1
        self._dirty.set()

    async def flush(self) -> None:
        """Write what is noted by now; counts that cannot be written are kept.

        Returns once what another call is writing is written too.
        """
        async with self._writing:
            await self._flush()

    async def _flush(self) -> None:
        counts, kept = self._counts, self._kept
        if not counts:
            return
        self._counts, self._kept, self._waiting = Counter(), {}, 0
        requests = [each for group in kept.values() for each in group]
        try:
            await self._backend.write(lambda tx: write_refused(tx, counts, requests))
        except Exception as error:  # noqa: BLE001 - the next ones are written
            self._counts.update(counts)  # people see the count; the requests are gone
            if not isinstance(error, TenureError):
                self._events.tell(Event.REFUSED_NOT_KEPT, error=error)
            return
        for (source, reason), count in sorted(counts.items()):
            self._events.tell(
                Event.RECEIPTS_REFUSED, source=source, reason=reason, count=count
            )

    async def _run(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await self.flush()
            await self._clock.sleep(REFUSED_FLUSH_SECONDS)


def write_refused(
    tx: Tx,
    counts: Counter[tuple[SourceId, str]],
    requests: Iterable[RefusedRequest],
) -> None:
    """Add to the counts, insert the requests, drop what is not among the newest."""
    for (source, reason), count in sorted(counts.items()):
        tx.run(
            "INSERT INTO refusal_count (source, reason, count, last_at)"
            " VALUES (:source, :reason, :count, :now)"
            " ON CONFLICT (source, reason) DO UPDATE"
            " SET count = refusal_count.count + excluded.count,"
            " last_at = excluded.last_at",
            {"source": source, "reason": reason, "count": count, "now": tx.now},
        )
    kept = list(requests)
    names = ("id", *RefusedRequest.__struct_fields__)
    tx.insert_records(
        tables.refused,
        names,
        [(new_id(Prefix.REFUSED), *msgspec.structs.astuple(each)) for each in kept],
    )
    for source in sorted({each.source for each in kept}):
        tx.run(
            "DELETE FROM refused WHERE source = :source AND id <= (SELECT id"
            " FROM refused WHERE source = :source ORDER BY id DESC"
            " LIMIT 1 OFFSET :kept)",
            {"source": source, "kept": REFUSED_KEPT},
        )
