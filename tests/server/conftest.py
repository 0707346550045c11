"""A whole server over real sockets: the engine's parts, a key, a client, a sink."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest_asyncio
from svix.api import SvixAsync, SvixOptions

from tenure.config import load
from tenure.engine import Engine
from tenure.ids import TenantId
from tenure.outbox.model import Scope
from tenure.server import serving
from tenure.server.app import asgi

BOOTSTRAP = "bootstrap-key-of-the-tests"
LOOPBACK = "127.0.0.0/8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running server, and how to reach it."""

    url: str
    engine: Engine
    svix: SvixAsync
    key: str = BOOTSTRAP

    def connect(self, key: str) -> httpx.AsyncClient:
        """Return an HTTP client that sends this key."""
        return httpx.AsyncClient(
            base_url=self.url, headers={"authorization": f"Bearer {key}"}, timeout=30
        )

    async def make_key(
        self, scope: str, *, app: str | None = None, tenant: str = "default"
    ) -> str:
        """Return the token of a new key."""
        made = await self.engine.outbox.create_api_key(
            TenantId(tenant), name="test", scope=Scope(scope), app_ref=app
        )
        return made.token


@pytest_asyncio.fixture
async def service(sqlite_url: str) -> AsyncIterator[Service]:
    settings = load(
        {
            "database_url": sqlite_url,
            "bootstrap_key": BOOTSTRAP,
            "allow_networks": LOOPBACK,
        },
        environ={},
    )
    async with Engine(settings) as engine:
        running = await serving.start(asgi(engine))
        svix = SvixAsync(BOOTSTRAP, SvixOptions(server_url=running.url))
        yield Service(url=running.url, engine=engine, svix=svix)
        await svix._httpx_client.aclose()
        await running.stop()


@pytest_asyncio.fixture
async def client(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """A client with an admin key of the tenant `default`."""
    async with service.connect(service.key) as connected:
        yield connected


@pytest_asyncio.fixture
async def other(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """A client with an admin key of another tenant."""
    key = await service.make_key("admin", tenant="stranger")
    async with service.connect(key) as connected:
        yield connected


@pytest_asyncio.fixture
async def app(client: httpx.AsyncClient) -> str:
    """The id of an application."""
    made = await client.post("/api/v1/app", json={"name": "A"})
    assert made.status_code == 201, made.text
    return made.json()["id"]
