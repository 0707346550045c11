"""A whole server over real sockets: the engine's parts, a key, a client, a sink."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from ipaddress import ip_network

import httpx
import pytest_asyncio
from svix.api import SvixAsync, SvixOptions

from tenure.clock import SystemClock
from tenure.ids import TenantId
from tenure.outbox.keyring import KeyRing, new_key
from tenure.outbox.model import OutboxSettings, Scope
from tenure.outbox.outbox import Outbox
from tenure.server import serving
from tenure.server.app import asgi
from tenure.server.site import Site
from tenure.store.backend import Backend

BOOTSTRAP = "bootstrap-key-of-the-tests"
LOOPBACK = ip_network("127.0.0.0/8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running server, and how to reach it."""

    url: str
    site: Site
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
        made = await self.site.outbox.create_api_key(
            TenantId(tenant), name="test", scope=Scope(scope), app_ref=app
        )
        return made.token


@pytest_asyncio.fixture
async def service(sqlite_backend: Backend) -> AsyncIterator[Service]:
    outbox = Outbox(
        sqlite_backend,
        OutboxSettings(allow_networks=(LOOPBACK,)),
        KeyRing([new_key()]),
        SystemClock(),
        bootstrap_key=BOOTSTRAP,
    )
    outbox.start()
    site = Site(outbox=outbox, backend=sqlite_backend)
    running = await serving.start(asgi(site))
    svix = SvixAsync(BOOTSTRAP, SvixOptions(server_url=running.url))
    yield Service(url=running.url, site=site, svix=svix)
    await svix._httpx_client.aclose()
    await running.stop()
    await outbox.aclose()


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
