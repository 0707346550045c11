"""Short names for what most tests of the outbox begin with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from tenure.clock import SystemClock
from tenure.ids import TenantId
from tenure.outbox.model import (
    Accepted,
    Application,
    ApplicationIn,
    Endpoint,
    EndpointIn,
    EventTypeIn,
    Idempotency,
    NewMessage,
)
from tenure.outbox.outbox import Outbox
from tenure.store.backend import Backend
from tenure.store.tx import Tx

T = TypeVar("T")

ONE = TenantId("org_one")
OTHER = TenantId("org_other")
URL = "https://receiver.example/hook"


async def make_app(
    outbox: Outbox, uid: str | None = None, *, tenant: TenantId = ONE
) -> Application:
    made = await outbox.create_application(tenant, ApplicationIn(name="Shop", uid=uid))
    return made.value


async def make_endpoint(
    outbox: Outbox, app: Application, url: str = URL, **changes: Any
) -> Endpoint:
    given = EndpointIn(url=url, **changes)
    return (await outbox.create_endpoint(app.tenant, app.id, given)).value


async def make_event_types(outbox: Outbox, *names: str, tenant: TenantId = ONE) -> None:
    for name in names:
        await outbox.create_event_type(tenant, EventTypeIn(name=name, description=""))


def message(event_type: str = "invoice.paid", **changes: Any) -> NewMessage:
    given: dict[str, Any] = {"event_type": event_type, "body": b'{"total": 12}'}
    return NewMessage(**(given | changes))


async def accept(
    outbox: Outbox, app: Application, key: str | None = None, **changes: Any
) -> Accepted:
    """Accept one message; `key` is its idempotency key, hashed with its body."""
    given = message(**changes)
    once = None
    if key is not None:
        once = Idempotency(key=key, body_hash=given.body.hex())
    return await outbox.accept(app.tenant, app.id, given, idempotency=once)


async def rows(backend: Backend, query: str, **params: Any) -> list[dict[str, Any]]:
    """Look into the database."""
    found = await backend.read(lambda tx: tx.all(query, params))
    return [dict(row._mapping) for row in found]


async def count(backend: Backend, table: str, where: str = "1 = 1") -> int:
    found = await rows(backend, f"SELECT count(*) AS n FROM {table} WHERE {where}")
    return found[0]["n"]


async def run(backend: Backend, statement: str, **params: Any) -> None:
    """Change the database behind the outbox's back."""
    await backend.write(lambda tx: tx.run(statement, params))


@contextlib.asynccontextmanager
async def held_transaction(url: str) -> AsyncGenerator[HeldTransaction]:
    """A transaction on PostgreSQL that stays open until it is told to commit."""
    engine = create_async_engine(
        make_url(url).set(drivername="postgresql+asyncpg"), poolclass=NullPool
    )
    try:
        async with engine.connect() as connection:
            yield HeldTransaction(connection)
    finally:
        await engine.dispose()


class HeldTransaction:
    """Runs functions over a `Tx` in one open transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def run(self, fn: Callable[[Tx], T]) -> T:
        return await self._connection.run_sync(
            lambda sync: fn(Tx.within(sync, clock=SystemClock()))
        )

    async def commit(self) -> None:
        await self._connection.commit()


async def wait_until_blocked(backend: Backend, *, seconds: float = 10) -> None:
    """Return once some session of the database waits for a lock."""
    blocked = (
        "SELECT count(*) AS n FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    async with asyncio.timeout(seconds):
        while (await rows(backend, blocked))[0]["n"] == 0:  # noqa: ASYNC110 -- a server
            await asyncio.sleep(0.005)
