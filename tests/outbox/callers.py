"""Applications with a transaction of their own: every door that SQLAlchemy has."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    create_async_engine,
)
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tenure.outbox.joining import Submitter
from tenure.outbox.model import Accepted

ORDERS = "CREATE TABLE orders (number integer PRIMARY KEY)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """How an application talks to its database: a driver, and a session or none."""

    driver: str
    session: bool

    @property
    def dialect(self) -> str:
        return "sqlite" if "sqlite" in self.driver else "postgresql"

    @property
    def is_async(self) -> bool:
        return self.driver in {"aiosqlite", "psycopg_async", "asyncpg"}

    def __str__(self) -> str:
        return f"{self.driver}-{'session' if self.session else 'connection'}"


def door(name: str) -> Door:
    driver, _, kind = name.rpartition("-")
    return Door(driver=driver, session=kind == "session")


EVERY_DOOR = tuple(
    Door(driver=driver, session=session)
    for driver in ("pysqlite", "aiosqlite", "psycopg", "psycopg_async", "asyncpg")
    for session in (True, False)
)
SOME_DOORS = tuple(
    map(
        door,
        (
            "pysqlite-session",
            "aiosqlite-connection",
            "psycopg-connection",
            "asyncpg-session",
        ),
    )
)


class Transaction:
    """What an application does in one transaction; the last word is its own."""

    def __init__(
        self,
        into: Session | Connection | AsyncSession | AsyncConnection,
        submitter: Submitter,
    ) -> None:
        self.into = into
        self.submitter = submitter

    async def submit(
        self,
        application: str = "shop",
        event_type: str = "order.placed",
        payload: object = b'{"n": 1}',
        **more: Any,
    ) -> Accepted:
        if isinstance(self.into, AsyncSession | AsyncConnection):
            return await self.submitter.submit_async(
                self.into, application, event_type, payload, **more
            )
        return await asyncio.to_thread(
            self.submitter.submit, self.into, application, event_type, payload, **more
        )

    async def run(self, statement: str) -> Any:
        """Run a statement of the application's own; return its first value, if any."""
        clause = sa.text(statement)
        into: Any = self.into
        if isinstance(into, AsyncSession | AsyncConnection):
            done: Any = await into.execute(clause)
        else:
            done = await asyncio.to_thread(into.execute, clause)
        return done.scalar() if done.returns_rows else None

    async def order(self, number: int) -> None:
        await self.run(f"INSERT INTO orders (number) VALUES ({number})")

    async def commit(self) -> None:
        if isinstance(self.into, AsyncSession | AsyncConnection):
            await self.into.commit()
        else:
            await asyncio.to_thread(self.into.commit)

    async def rollback(self) -> None:
        if isinstance(self.into, AsyncSession | AsyncConnection):
            await self.into.rollback()
        else:
            await asyncio.to_thread(self.into.rollback)


class Application:
    """An application's engine on the database that Tenure uses too."""

    def __init__(self, url: str, door: Door, submitter: Submitter, **more: Any) -> None:
        self.door = door
        self.submitter = submitter
        driver = f"{door.dialect}+{door.driver}"
        address = make_url(url).set(drivername=driver)
        self.engine: Engine | AsyncEngine = (
            create_async_engine(address, poolclass=NullPool, **more)
            if door.is_async
            else sa.create_engine(address, poolclass=NullPool, **more)
        )

    @property
    def sync_engine(self) -> Engine:
        engine = self.engine
        return engine.sync_engine if isinstance(engine, AsyncEngine) else engine

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction]:
        """Begin; what is not committed inside is rolled back."""
        if isinstance(self.engine, AsyncEngine):
            opened = (
                AsyncSession(self.engine)
                if self.door.session
                else self.engine.connect()
            )
            async with opened as into:
                yield Transaction(into, self.submitter)
            return
        into = (
            Session(self.engine)
            if self.door.session
            else await asyncio.to_thread(self.engine.connect)
        )
        try:
            yield Transaction(into, self.submitter)
        finally:
            await asyncio.to_thread(into.close)

    async def prepare(self) -> None:
        """Make the application's own table."""
        async with self.transaction() as mine:
            await mine.run(ORDERS)
            await mine.commit()

    async def aclose(self) -> None:
        if isinstance(self.engine, AsyncEngine):
            await self.engine.dispose()
        else:
            await asyncio.to_thread(self.engine.dispose)
