"""Restarts under traffic: healthy ones are exact, kills lose nothing.

Traffic comes from a client that asks again with the same idempotency key until it has
its 202. Afterwards every accepted message must have reached every endpoint: exactly
once when processes were only asked to end, and at most once more for each request that
a killed process had in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tenure.clock import SystemClock
from tenure.store.backend import open_backend
from tenure.store.nodes import list_nodes
from tests.crash.fleet import Fleet, fleet
from tests.crash.restarts import attempts_of, count, wait_settled
from tests.crash.sink import Sink

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

PATHS = ("/a", "/b", "/c")


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database."""
    url: str = request.getfixturevalue(request.param)
    return url


def nodes_on(database: str) -> int:
    return 1 if database.startswith("sqlite") else 2


async def prepared(running: Fleet, sink: Sink) -> str:
    """Make an application with three endpoints; return its id."""
    app: str = (await running.api("POST", "/app", json={"name": "restarts"}))["id"]
    for path in PATHS:
        await running.api(
            "POST", f"/app/{app}/endpoint", json={"url": f"{sink.url}{path}"}
        )
    return app


async def keep_going(
    running: Fleet, app: str, keys: list[str], interrupt: AsyncIterator[None]
) -> None:
    """Submit everything while the processes are interrupted."""
    async with asyncio.TaskGroup() as group:
        group.create_task(running.submit_all(app, keys))
        async for _ in interrupt:
            pass


def when(sink: Sink, requests: int) -> Callable[[], bool]:
    return lambda: sink.total >= requests


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not fact():
            await asyncio.sleep(0.01)


@pytest.mark.long
async def test_three_restarts_under_traffic_send_each_request_once(
    database: str, tmp_path: Path
) -> None:
    messages = 600
    keys = [f"key-{at}" for at in range(messages)]
    async with (
        Sink(delay=0.02) as sink,
        fleet(database, tmp_path, nodes=nodes_on(database), settings={}) as running,
    ):
        app = await prepared(running, sink)

        async def restarts() -> AsyncIterator[None]:
            for turn in range(3):
                await until(when(sink, (turn + 1) * 300))
                node = running.nodes[turn % len(running.nodes)]
                assert await node.terminate() == 0
                took = await node.start()
                print(f"restart {turn + 1}: answers after {took:.2f} s")
                yield

        await keep_going(running, app, keys, restarts())
        await sink.wait_distinct(messages * len(PATHS), 60)
        await wait_settled(database, messages * len(PATHS))
        assert len(set(running.accepted.values())) == messages
        assert sink.total == messages * len(PATHS)
        assert set(sink.seen.values()) == {1}
        attempts = await attempts_of(database)
        assert attempts == sink.total


@pytest.mark.long
async def test_five_kills_under_traffic_lose_nothing(
    database: str, tmp_path: Path
) -> None:
    messages = 400
    keys = [f"key-{at}" for at in range(messages)]
    clock = SystemClock()
    in_flight: list[int] = []
    went_on: list[float] = []
    async with (
        Sink(delay=0.02) as sink,
        fleet(database, tmp_path, nodes=nodes_on(database), settings={}) as running,
    ):
        app = await prepared(running, sink)

        async def kills() -> AsyncIterator[None]:
            for turn in range(5):
                await until(when(sink, (turn + 1) * 150))
                node = running.nodes[turn % len(running.nodes)]
                await node.kill()
                in_flight.append(await count(database, "state = 'claimed'"))
                before = sink.total
                await node.start()
                began = clock.monotonic()
                await until(lambda: sink.total > before)  # noqa: B023 - awaited here
                went_on.append(clock.monotonic() - began)
                yield

        await keep_going(running, app, keys, kills())
        await sink.wait_distinct(messages * len(PATHS), 60)
        await wait_settled(database, messages * len(PATHS))
        duplicates = sink.total - len(sink.seen)
        lost_claims = await attempts_of(database, "outcome = 'lost'")
        shown = ", ".join(f"{seconds:.2f}" for seconds in went_on)
        print(
            f"accepted {len(running.accepted)}, lost 0, duplicated {duplicates},"
            f" in flight at the kills {in_flight}, claims lost {lost_claims},"
            f" going on after {shown} s"
        )
        assert len(sink.seen) == messages * len(PATHS)
        assert duplicates <= lost_claims
        assert max(went_on) < 10
        assert await quarantined(database) == 0


async def quarantined(database: str) -> int:
    backend = await open_backend(database)
    try:
        open_nodes = await backend.read(list_nodes)
        assert 1 <= len(open_nodes) <= nodes_on(database), open_nodes
    finally:
        await backend.aclose()
    return await count(database, "state = 'parked'")
