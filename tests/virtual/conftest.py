"""A week in minutes: a whole engine on each database, with time that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from pydantic import SecretStr

from tenure.config import Settings, Synchronous
from tenure.outbox.keyring import new_key
from tenure.testing import Receiver, Reply
from tenure.testing.virtual import VirtualEngine
from tests.invariants import faults
from tests.outbox.http.servers import LOOPBACK
from tests.virtual.world import World


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """An engine, an application in it, and a receiver that answers 503."""
    settings = Settings(
        database_url=database_url,
        secret_keys=(SecretStr(new_key()),),
        allow_networks=LOOPBACK,
        sqlite_synchronous=Synchronous.NORMAL,
    )
    async with VirtualEngine(settings) as engine:
        receiver = Receiver(Reply(status=503), clock=engine.clock)
        async with receiver:
            yield await World.of(engine, receiver)
            await engine.idle()
        assert await engine.backend.read(faults) == []
