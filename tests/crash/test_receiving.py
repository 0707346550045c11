"""SIGKILL at every write of the accept path: a sender's 2xx is kept, nothing else is.

Either the sender saw no 2xx and nothing of the request is in the database, or it is
committed and sent. The one case in between, killed after the commit and before the
answer, is a request that is stored: the sender's retry finds it, and it is sent once.
"""

from __future__ import annotations

import asyncio
import contextlib
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

from tenure.clock import SystemClock
from tenure.outbox.keyring import new_key
from tenure.store.backend import open_backend
from tests.crash.fleet import Fleet, fleet
from tests.crash.restarts import attempts_of, count, wait_settled
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
            start_new_session=True,
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
        # Its child too: what a child holds open would be waited for.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
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
        # A row that two children lost waits for its turn, although the sink saw it.
        await wait_settled(database, 1 + len(points))
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


async def receive_all(running: Fleet, events: list[str]) -> None:
    """Send every event until it has its 200, a few at a time, to all nodes in turn."""
    pending = list(reversed(events))

    async def sender(turn: int) -> None:
        while pending:
            event = pending.pop()
            while (
                await post(running.nodes[turn % len(running.nodes)].url, event) != 200
            ):
                turn += 1
                await asyncio.sleep(0.05)
            turn += 1

    async with asyncio.TaskGroup() as group:
        for at in range(8):
            group.create_task(sender(at))


@pytest.mark.parametrize(
    ("receipts", "restarts"),
    [
        pytest.param(150, 2, id="short"),
        pytest.param(900, 5, id="whole", marks=pytest.mark.long),
    ],
)
async def test_restarts_under_traffic_hand_each_receipt_over_once(
    database: str, tmp_path: Path, receipts: int, restarts: int
) -> None:
    """One of three targets answers 503 at first, so that retries are due meanwhile."""
    events = [f"d-{at}" for at in range(receipts)]
    clock = SystemClock()
    async with (
        Sink(delay=0.01, refusing=frozenset({"/c"})) as sink,
        fleet(
            database,
            tmp_path,
            nodes=1 if database.startswith("sqlite") else 2,
            settings={"TENURE_TEST_TIME_FACTOR": "10"},
        ) as running,
    ):
        app: str = (await running.api("POST", "/app", json={"name": "a"}))["id"]
        for path in ("/a", "/b", "/c"):
            url = {"url": f"{sink.url}{path}"}
            await running.api("POST", f"/app/{app}/endpoint", json=url)
        source = {
            "name": "gh",
            "uid": "gh",
            "appId": app,
            "verification": {"preset": "github"},
            "secrets": [SECRET],
        }
        await running.api("POST", "/source", json=source)

        async def interrupt() -> None:
            for turn in range(restarts):
                async with asyncio.timeout(60):
                    while sink.total < (turn + 1) * receipts * 3 // (restarts + 1):
                        await asyncio.sleep(0.01)
                node = running.nodes[turn % len(running.nodes)]
                began = clock.monotonic()
                assert await node.terminate() == 0
                stopped = clock.monotonic()
                took = await node.start()
                print(
                    f"restart {turn + 1}: stopped in {stopped - began:.2f} s,"
                    f" accepts after {took:.2f} s"
                )

        async with asyncio.TaskGroup() as group:
            group.create_task(receive_all(running, events))
            group.create_task(interrupt())
        await sink.wait_distinct(receipts * 3, 60)
        await wait_settled(database, receipts * 3)
        attempts = await attempts_of(database)
        print(f"{receipts} receipts, {sink.total} requests, {attempts} attempts")
        assert await count_receipts(database) == receipts
        assert sink.total == attempts == receipts * 4
        assert {sink.seen[key] for key in sink.seen if key[1] == "/c"} == {2}
        assert {sink.seen[key] for key in sink.seen if key[1] != "/c"} == {1}


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
