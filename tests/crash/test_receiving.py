"""SIGKILL at every write of the accept path: a sender's 2xx is kept, nothing else is.

Either the sender saw no 2xx and nothing of the request is in the database, or it is
committed and sent. The one case in between, killed after the commit and before the
answer, is a request that is stored: the sender's retry finds it, and it is sent once.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenure.outbox.keyring import new_key
from tenure.store.backend import open_backend
from tests.crash.restarts import count
from tests.crash.sink import Sink
from tests.inbox.world import SECRET, hook

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[2]
KEY = "tnr_bootstrap-key-of-a-test-0123456789abcdef"


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database."""
    url: str = request.getfixturevalue(request.param)
    return url


class Mother:
    """The process that makes a child for each point."""

    def __init__(self, process: asyncio.subprocess.Process, settings: Any) -> None:
        self._process = process
        self._settings = settings

    async def said(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(30):
            line = await self._process.stdout.readline()
        assert line, "the process that makes the others has ended"
        return json.loads(line)

    async def child(self, point: int | str | None) -> dict[str, Any]:
        """Start a child that ends at this point; return where it answers."""
        assert self._process.stdin is not None
        asked = {"point": point, "settings": self._settings}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        await self._process.stdin.drain()
        return await self.said()


@asynccontextmanager
async def mother(database: str, folder: Path) -> AsyncGenerator[Mother]:
    with (folder / "children.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.crash.dying",
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    settings = {
        "database_url": database,
        "bootstrap_key": KEY,
        "secret_keys": new_key(),
        "allow_networks": "127.0.0.0/8",
    }
    made = Mother(process, settings)
    try:
        assert await made.said() == {"ready": True}
        yield made
    finally:
        process.kill()
        await process.wait()


async def post(url: str, event: str) -> int | None:
    """Send an event; return the status, None when nobody answered."""
    arrival = hook(event)
    headers = [(n, v) for n, v in arrival.headers if n != b"host"]
    try:
        async with httpx.AsyncClient(timeout=20) as client:
            answer = await client.post(
                f"{url}/in/gh", content=arrival.body, headers=headers
            )
    except httpx.TransportError:
        return None
    return answer.status_code


async def prepared(url: str, sink: Sink) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=url, headers=headers) as client:
        app = (await client.post("/api/v1/app", json={"name": "a"})).json()["id"]
        path = f"/api/v1/app/{app}/endpoint"
        assert (await client.post(path, json={"url": f"{sink.url}/a"})).is_success
        source = {
            "name": "gh",
            "uid": "gh",
            "appId": app,
            "verification": {"preset": "github"},
            "secrets": [SECRET],
        }
        assert (await client.post("/api/v1/source", json=source)).is_success


async def test_a_kill_at_every_write_keeps_what_was_answered_and_nothing_else(
    database: str, tmp_path: Path
) -> None:
    async with Sink() as sink, mother(database, tmp_path) as made:
        first = await made.child(None)
        await prepared(first["url"], sink)
        assert await post(first["url"], "dry") == 200
        await sink.wait_distinct(1, 20)
        os.kill(first["pid"], signal.SIGTERM)
        statements = (await made.said())["statements"]
        assert (await made.said())["ended"] == 0
        assert statements > 5
        points: list[int | str] = [*range(statements), "commit", "committed", "answer"]
        for point in points:
            stored = await count_receipts(database)
            child = await made.child(point)
            assert await post(child["url"], f"p-{point}") is None
            assert (await made.said())["ended"] == 9
            now = await count_receipts(database)
            assert now - stored == int(point in {"committed", "answer"}), point
        last = await made.child(None)
        # Every sender tries again, as one does that saw no 2xx.
        for point in points:
            assert await post(last["url"], f"p-{point}") == 200
        await sink.wait_distinct(1 + len(points), 30)
        os.kill(last["pid"], signal.SIGTERM)
        await made.said()
        assert await count_receipts(database) == 1 + len(points)
        assert await count(database, "state = 'succeeded'") == 1 + len(points)
        print(
            f"{statements} statements and {len(points)} points:"
            f" {sink.total} requests for {len(sink.seen)} receipts"
        )
        # A child killed after its commit may have begun to send what was born there.
        assert sink.total - len(sink.seen) <= 2


async def count_receipts(database: str) -> int:
    backend = await open_backend(database)
    try:
        (row,) = await backend.read(
            lambda tx: tx.all(
                "SELECT (SELECT count(*) FROM receipt) AS receipts,"
                " (SELECT count(DISTINCT receipt) FROM receipt_key) AS keys,"
                " (SELECT count(*) FROM message) AS messages"
            )
        )
    finally:
        await backend.aclose()
    assert row.receipts == row.keys == row.messages
    return row.receipts
