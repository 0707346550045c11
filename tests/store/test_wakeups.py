from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import pytest
import pytest_asyncio
import sqlalchemy as sa
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import QueuePool

from tenure.store.backend import parse_url
from tenure.store.wakeups import CHANNEL, Ringer, Wakeups
from tenure.telemetry.events import Event, Events
from tests.databases import PostgresServer
from tests.proxy import proxied
from tests.work.rig import until

DRIVERS = ("psycopg", "psycopg_async", "asyncpg")


class Listener:
    """A node's wake-ups, and how often it was woken."""

    def __init__(self, url: str) -> None:
        self.heard = 0
        self.events = Events()
        self.wakeups = Wakeups(parse_url(url), heard=self._hear, events=self.events)
        self._task = asyncio.ensure_future(self.wakeups.run())

    def _hear(self) -> None:
        self.heard += 1

    async def listens(self) -> None:
        await until(lambda: self.wakeups.listens, "a listener")
        self.heard = 0  # at a start it looks once, whatever it missed

    async def aclose(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


@pytest_asyncio.fixture
async def exits() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def listening(exits: AsyncExitStack, url: str) -> Listener:
    made = Listener(url)
    exits.push_async_callback(made.aclose)
    await made.listens()
    return made


def engine_of(url: str, driver: str) -> Engine:
    address = make_url(url).set(drivername=f"postgresql+{driver}")
    if driver == "psycopg":
        return sa.create_engine(address)
    return create_async_engine(address).sync_engine


async def kill_listeners(postgres_server: PostgresServer, url: str) -> None:
    name = make_url(url).database
    await postgres_server.run(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        f" WHERE datname = '{name}' AND query LIKE '%{CHANNEL}%'"
    )


async def test_a_node_wakes_the_others_and_not_itself(
    postgres_url: str, exits: AsyncExitStack
) -> None:
    one = await listening(exits, postgres_url)
    other = await listening(exits, postgres_url)
    await until(lambda: one.wakeups.listens)
    one.heard = 0
    one.wakeups.tell()
    await until(lambda: other.heard, "the other node")
    other.wakeups.tell()
    await until(lambda: one.heard, "the first node")
    assert (one.heard, other.heard) == (1, 1)


async def test_many_commits_at_once_are_one_notification(
    postgres_url: str, exits: AsyncExitStack
) -> None:
    one = await listening(exits, postgres_url)
    other = await listening(exits, postgres_url)
    for _ in range(1000):
        one.wakeups.tell()
    await until(lambda: other.heard, "the other node")
    last = await listening(exits, postgres_url)
    last.wakeups.tell()
    await until(lambda: other.heard >= 2, "a notification behind all of those")
    assert other.heard == 2


async def test_a_storm_of_notifications_wakes_a_node_a_few_times_and_once_at_its_end(
    postgres_url: str, postgres_server: PostgresServer, exits: AsyncExitStack
) -> None:
    one = await listening(exits, postgres_url)
    async with create_async_engine(
        make_url(postgres_url).set(drivername="postgresql+asyncpg")
    ).connect() as anybody:
        many = (
            "SELECT count(pg_notify(:channel, n::text)) FROM generate_series(1, 5000) n"
        )
        await anybody.execute(sa.text(many), {"channel": CHANNEL})
        await anybody.commit()
        await until(lambda: one.heard >= 2, "the first of them, and the rest together")
        assert one.heard < 500
        before = one.heard
        await anybody.execute(sa.text(f"NOTIFY {CHANNEL}, 'echo somebody'"))
        await anybody.execute(sa.text(f"NOTIFY {CHANNEL}"))
        await anybody.commit()
        await until(lambda: one.heard > before, "a later one")
    await anybody.engine.dispose()


async def test_a_lost_listener_says_so_once_comes_back_and_looks_at_once(
    postgres_url: str, postgres_server: PostgresServer, exits: AsyncExitStack
) -> None:
    one = await listening(exits, postgres_url)
    await kill_listeners(postgres_server, postgres_url)
    await until(lambda: one.events.count(Event.WAKEUPS_BACK), "the way back")
    assert one.events.count(Event.WAKEUPS_LOST) == 1
    assert one.heard >= 1
    other = await listening(exits, postgres_url)
    one.heard = 0
    other.wakeups.tell()
    await until(lambda: one.heard, "a wake-up after the way back")


async def test_a_listener_whose_server_is_away_tries_again_and_repeats_no_line(
    postgres_url: str, postgres_server: PostgresServer, exits: AsyncExitStack
) -> None:
    async with proxied(postgres_server) as proxy:
        url = postgres_server.database_by_port(
            str(make_url(postgres_url).database), proxy.port
        )
        one = await listening(exits, url)
        proxy.mode = "refuse"
        proxy.close()
        await until(lambda: proxy.refused >= 2, "two tries")
        assert one.events.count(Event.WAKEUPS_LOST) == 1
        assert not one.wakeups.listens
        proxy.mode = "pass"
        await until(lambda: one.wakeups.listens, "the way back")
        assert one.events.count(Event.WAKEUPS_LOST) == 1


async def test_behind_a_transaction_pooler_it_says_so_and_leaves_no_listener(
    postgres_url: str, postgres_server: PostgresServer, exits: AsyncExitStack
) -> None:
    async with proxied(postgres_server) as proxy:
        proxy.mode = "deaf"
        url = postgres_server.database_by_port(
            str(make_url(postgres_url).database), proxy.port
        )
        one = Listener(url)
        exits.push_async_callback(one.aclose)
        await until(lambda: one.events.count(Event.WAKEUPS_LOST), "the line")
        assert not one.wakeups.listens


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_process_without_a_node_rings_as_its_own_engine_connects(
    postgres_url: str, exits: AsyncExitStack, driver: str
) -> None:
    node = await listening(exits, postgres_url)
    engine = engine_of(postgres_url, driver)
    ringer = Ringer(Events())
    ringer.ring(engine, 0.0)
    await until(lambda: node.heard, "the node")
    assert isinstance(engine.pool, QueuePool)
    assert engine.pool.checkedout() == engine.pool.checkedin() == 0
    node.heard = 0
    ringer.ring(engine, 3600.0)
    await asyncio.to_thread(ringer.close)
    await until(lambda: node.heard, "what waited when it was closed")
    assert not [t for t in threading.enumerate() if t.name == "tenure-ringer"]


async def test_a_ringer_that_cannot_connect_says_so_once_and_stops_nobody() -> None:
    events = Events()
    ringer = Ringer(events)
    engine = engine_of("postgresql://nobody@127.0.0.1:1/nothing", "psycopg")
    for _ in range(1000):
        ringer.ring(engine, 0.0)
    await until(lambda: events.count(Event.WAKEUPS_LOST), "the line")
    ringer.ring(engine, 0.0)
    await asyncio.to_thread(ringer.close)
    assert events.count(Event.WAKEUPS_LOST) == 1
    ringer.ring(engine, 0.0)  # closed: nothing happens


async def test_on_sqlite_there_is_nobody_to_ring(sqlite_url: str) -> None:
    ringer = Ringer(Events())
    ringer.ring(sa.create_engine(sqlite_url), 0.0)
    assert not [t for t in threading.enumerate() if t.name == "tenure-ringer"]
