"""What the tests of days share: one application, its endpoint, and what was kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from tenure.clock import US
from tenure.outbox.model import (
    Accepted,
    ApplicationIn,
    Endpoint,
    EndpointIn,
    EndpointPatch,
    EndpointSettings,
    NewMessage,
)
from tenure.outbox.outbox import DEFAULT_TENANT
from tenure.testing import Receiver, Reply
from tenure.testing.virtual import VirtualEngine

HOUR = 3_600 * US
DAY = 24 * HOUR
OK = Reply(status=204)
AWAY = Reply(status=503)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One delivery as stored."""

    id: str
    message: str
    state: str
    due_at: int | None
    tries: int
    failures: int
    reason: str | None
    settled_at: int | None


@dataclass(slots=True, kw_only=True)
class World:
    """An engine in which time is the test's, and who sends and receives in it."""

    engine: VirtualEngine
    receiver: Receiver
    app: str
    begin: int

    @classmethod
    async def of(cls, engine: VirtualEngine, receiver: Receiver) -> Self:
        made = await engine.outbox.create_application(
            DEFAULT_TENANT, ApplicationIn(name="Shop")
        )
        return cls(
            engine=engine, receiver=receiver, app=made.value.id, begin=engine.now
        )

    async def endpoint(self, **settings: Any) -> Endpoint:
        made = await self.engine.outbox.create_endpoint(
            DEFAULT_TENANT,
            self.app,
            EndpointIn(
                url=f"{self.receiver.url}/hook", settings=EndpointSettings(**settings)
            ),
        )
        return made.value

    async def disable(self, endpoint: Endpoint, *, disabled: bool = True) -> None:
        await self.engine.outbox.patch_endpoint(
            DEFAULT_TENANT, self.app, endpoint.id, EndpointPatch(disabled=disabled)
        )

    async def accept(self, **fields: Any) -> Accepted:
        given: dict[str, Any] = {"event_type": "invoice.paid", "body": b"{}"}
        return await self.engine.outbox.accept(
            DEFAULT_TENANT, self.app, NewMessage(**(given | fields))
        )

    async def rows(self) -> list[Row]:
        """Return every delivery, the oldest message first."""
        found = await self.engine.backend.read(
            lambda tx: tx.all(
                "SELECT id, subject, state, due_at, tries, failures, reason, settled_at"
                " FROM work ORDER BY created_at, id"
            )
        )
        names = tuple(Row.__dataclass_fields__)
        return [Row(**dict(zip(names, row, strict=True))) for row in found]

    async def row(self) -> Row:
        (only,) = await self.rows()
        return only

    async def begun(self) -> list[int]:
        """Return when each attempt began, as its evidence says."""
        found = await self.engine.backend.read(
            lambda tx: tx.all("SELECT begun_at FROM attempt ORDER BY work, claim")
        )
        return [row[0] for row in found]

    def arrived(self) -> list[int]:
        """Return when each request came, by the receiver."""
        return [request.at for request in self.receiver.requests]

    def messages(self) -> list[str | None]:
        """Return which message each request carried."""
        return [request.message_id for request in self.receiver.requests]
