"""A whole server over real sockets: the engine's parts, a key, a client, a sink."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import httpx
import pytest
import pytest_asyncio
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope
from svix.api import SvixAsync, SvixOptions

from tenure.config import load
from tenure.engine import Engine
from tenure.ids import TenantId
from tenure.outbox.keyring import new_key
from tenure.outbox.model import Scope
from tenure.server import serving
from tenure.server.app import asgi

T = TypeVar("T")

BOOTSTRAP = "bootstrap-key-of-the-tests"
LOOPBACK = "127.0.0.0/8"
BOTH = pytest.mark.parametrize("service_dialect", ["sqlite", "postgresql"])
"""The mark of tests that run on a server of each database."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request as the receiver saw it."""

    path: str
    headers: dict[str, str]
    body: bytes


class Sink:
    """A receiver: keeps what it gets, answers the next of `statuses`, then 200."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.statuses: list[int] = []
        self.arrived: asyncio.Condition = asyncio.Condition()
        self.url = ""

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Take one request."""
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        got = Received(path=scope["path"], headers=headers, body=body)
        status = self.statuses.pop(0) if self.statuses else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"said the sink"})
        async with self.arrived:
            self.received.append(got)
            self.arrived.notify_all()

    async def wait(self, count: int) -> list[Received]:
        """Return what came once `count` requests were answered."""
        async with asyncio.timeout(20), self.arrived:
            await self.arrived.wait_for(lambda: len(self.received) >= count)
        return self.received


async def until(ask: Callable[[], Awaitable[T]], good: Callable[[T], bool]) -> T:
    """Ask until the answer is good; the test fails when that takes too long."""
    async with asyncio.timeout(20):
        while not good(answer := await ask()):  # noqa: ASYNC110 -- another process's fact
            await asyncio.sleep(0.02)
    return answer


@pytest_asyncio.fixture
async def sink() -> AsyncIterator[Sink]:
    """A receiver on loopback."""
    receiver = Sink()
    running = await serving.start(receiver)
    receiver.url = running.url
    yield receiver
    await running.stop()


@pytest.fixture
def service_dialect() -> str:
    """Which database the server uses, unless the test is marked with `BOTH`."""
    return os.environ.get("TENURE_TEST_SERVICE", "sqlite")


@pytest.fixture
def service_settings(
    service_dialect: str, request: pytest.FixtureRequest
) -> dict[str, object]:
    """What the deployment of `service` says, on a fresh migrated database."""
    url = "sqlite_url" if service_dialect == "sqlite" else "postgres_url"
    return {
        "database_url": request.getfixturevalue(url),
        "bootstrap_key": BOOTSTRAP,
        "allow_networks": LOOPBACK,
        "secret_keys": new_key(),
    }


@pytest_asyncio.fixture
async def service(service_settings: dict[str, object]) -> AsyncIterator[Service]:
    """A server on the database of `service_dialect`."""
    settings = load(service_settings, environ={})
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
