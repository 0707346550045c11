"""A service whose PostgreSQL stops and starts again: what callers see, what is kept."""

from __future__ import annotations

import asyncio
import base64
import os
import pwd
import shlex
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tenure.config import load
from tenure.engine import Engine
from tenure.outbox.keyring import new_key
from tenure.server import serving
from tenure.server.app import asgi
from tenure.store.backend import open_backend
from tests.databases import PostgresServer, running_postgres
from tests.server.running import BOOTSTRAP, LOOPBACK, Sink, until

BASIC = "Basic " + base64.b64encode(f"x:{BOOTSTRAP}".encode()).decode()


class Stoppable:
    """A PostgreSQL that a test stops as a crash does, and starts again."""

    def __init__(self, server: PostgresServer, data: Path) -> None:
        self.url = server.database("postgres")
        self._data = data
        self._command = shlex.split((data / "postmaster.opts").read_text())
        self._owner = pwd.getpwuid(data.stat().st_uid).pw_name
        self._started: subprocess.Popen[bytes] | None = None

    async def stop(self) -> None:
        """Return once it is gone."""
        lock = self._data / "postmaster.pid"
        text = await asyncio.to_thread(lock.read_text)
        os.kill(int(text.splitlines()[0]), signal.SIGQUIT)
        async with asyncio.timeout(20):
            while await asyncio.to_thread(lock.exists):
                await asyncio.sleep(0.02)

    async def start(self) -> None:
        """Return at once; it recovers on its own."""
        user = None if os.geteuid() == self._data.stat().st_uid else self._owner
        self._started = await asyncio.to_thread(
            subprocess.Popen,
            self._command,
            user=user,
            cwd=self._data.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def reap(self) -> None:
        """Wait for the server that `start` began, after it was told to stop."""
        if self._started is not None:
            self._started.wait(20)


@pytest.fixture
def postgres() -> Iterator[Stoppable]:
    if os.environ.get("TENURE_TEST_POSTGRES"):
        pytest.skip("the server given is not ours to stop")
    with running_postgres() as server:
        assert server.data is not None
        stoppable = Stoppable(server, server.data)
        yield stoppable
    stoppable.reap()


@pytest_asyncio.fixture
async def outage(postgres: Stoppable) -> AsyncIterator[httpx.AsyncClient]:
    backend = await open_backend(postgres.url)
    await backend.migrate(post=True)
    await backend.aclose()
    settings = load(
        {
            "database_url": postgres.url,
            "bootstrap_key": BOOTSTRAP,
            "allow_networks": LOOPBACK,
            "secret_keys": new_key(),
        },
        environ={},
    )
    async with Engine(settings) as engine:
        running = await serving.start(asgi(engine))
        async with httpx.AsyncClient(
            base_url=running.url,
            headers={"authorization": f"Bearer {BOOTSTRAP}"},
            timeout=30,
        ) as client:
            yield client
        await running.stop()


async def test_without_its_database_it_says_when_to_come_back_and_loses_nothing(
    outage: httpx.AsyncClient, postgres: Stoppable, sink: Sink
):
    app = (await outage.post("/api/v1/app", json={"name": "A"})).json()["id"]
    path = f"/api/v1/app/{app}/msg"
    made = await outage.post(f"/api/v1/app/{app}/endpoint", json={"url": sink.url})
    assert made.status_code == 201, made.text

    async def send() -> httpx.Response:
        return await outage.post(path, json={"eventType": "et", "payload": {}})

    accepted = {(await send()).json()["id"] for _ in range(10)}
    await postgres.stop()

    stranger = {"authorization": "Bearer nobodys"}
    for refused in (
        await send(),
        await outage.get("/api/v1/app"),
        await outage.post("/api/v1/app", json={"name": "B"}),
        await outage.get("/api/v1/app", headers=stranger),
        await outage.get("/api/v1/health"),
        await outage.get("/", headers={"authorization": BASIC}),
    ):
        assert refused.status_code == 503, refused.text
        assert int(refused.headers["retry-after"]) >= 1
        for secret in ("postgres", "host=", "port=", str(postgres.url)):
            assert secret not in refused.text
    assert (await outage.get("/api/v1/health/ping")).status_code == 204

    await postgres.start()
    back = await until(send, lambda answer: answer.status_code == 202)
    accepted.add(back.json()["id"])

    async def delivered() -> set[str]:
        return {request.headers["webhook-id"] for request in sink.received}

    await until(delivered, lambda found: accepted <= found)
    assert (await outage.get("/api/v1/health")).status_code == 200
