from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator

import pytest

from tenure import limits
from tenure.clock import SettableClock
from tenure.outbox.http.connection import Connection
from tenure.outbox.http.dial import connect_first
from tenure.outbox.http.pool import Key, Pool
from tests.outbox.http.servers import OK, Peer, Server, answering, policy, serving

KEY: Key = ("http", "127.0.0.1", 80, "")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving(answering(OK)) as made:
        yield made


async def connected(server: Server, clock: SettableClock) -> Connection:
    loop = asyncio.get_running_loop()
    address = ipaddress.ip_address("127.0.0.1")
    sock = await connect_first([address], server.port)
    assert not hasattr(sock, "cause")
    made = Connection(
        address=address,
        port=server.port,
        sock=sock,  # type: ignore[arg-type]
        policy=policy(),
        clock=clock,
        loop=loop,
    )
    await loop.create_connection(lambda: made, sock=sock)  # type: ignore[arg-type]
    return made


def pool_of(clock: SettableClock, **bounds: int) -> Pool:
    return Pool(clock=clock, loop=asyncio.get_running_loop(), **bounds)


async def test_the_newest_idle_connection_is_used_first(server: Server) -> None:
    clock = SettableClock()
    pool = pool_of(clock)
    old, new = [await connected(server, clock) for _ in range(2)]
    pool.put(KEY, old, 1.0)
    pool.put(KEY, new, 2.0)
    assert pool.take(KEY, policy(), 3.0) is new
    assert pool.take(KEY, policy(), 3.0) is old
    assert pool.take(KEY, policy(), 3.0) is None
    for connection in (old, new):
        connection.abort()


async def test_a_connection_is_not_used_past_its_idle_time_or_its_age(
    server: Server,
) -> None:
    clock = SettableClock()
    pool = pool_of(clock)
    for at, idle in ((0.0, limits.IDLE_SECONDS), (limits.CONNECTION_AGE_SECONDS, 0.0)):
        connection = await connected(server, clock)
        pool.put(KEY, connection, at)
        assert pool.take(KEY, policy(), at + idle + 0.1) is None
        assert not connection.usable
        connection = await connected(server, clock)
        pool.put(KEY, connection, at)
        assert pool.take(KEY, policy(), at + idle) is connection
        connection.abort()


async def test_a_connection_whose_address_the_present_policy_refuses_is_closed(
    server: Server,
) -> None:
    clock = SettableClock()
    pool = pool_of(clock)
    connection = await connected(server, clock)
    pool.put(KEY, connection, 0.0)
    assert pool.take(KEY, policy(allow_networks=()), 1.0) is None
    assert not connection.usable


async def test_idle_connections_are_bounded_per_key_and_in_all(server: Server) -> None:
    clock = SettableClock()
    pool = pool_of(clock, per_key_max=2, total_max=3)
    first = await connected(server, clock)
    pool.put(KEY, first, 0.0)
    for _ in range(2):
        pool.put(KEY, await connected(server, clock), 0.0)
    assert len(pool) == 2
    for port in (81, 82):
        key: Key = ("http", "127.0.0.1", port, "")
        pool.put(key, await connected(server, clock), 0.0)
    assert len(pool) == 3
    assert not first.usable  # the oldest went
    pool.close()
    assert len(pool) == 0


async def test_a_connection_that_the_peer_ends_leaves_the_pool() -> None:
    clock = SettableClock()
    pool = pool_of(clock)
    leave, gone = asyncio.Event(), asyncio.Event()

    async def script(_: Peer) -> None:
        await leave.wait()

    async with serving(script) as server:
        connection = await connected(server, clock)
        pool.put(KEY, connection, 0.0)
        forget = connection.on_closed
        assert forget is not None

        def closed(ended: Connection) -> None:
            forget(ended)
            gone.set()

        connection.on_closed = closed
        leave.set()
        async with asyncio.timeout(5):
            await gone.wait()
    assert len(pool) == 0
    assert pool._idle == {}


async def test_taking_leaves_nothing_behind(server: Server) -> None:
    clock = SettableClock()
    pool = pool_of(clock)
    connection = await connected(server, clock)
    pool.put(KEY, connection, 0.0)
    pool.take(KEY, policy(), 0.0)
    assert pool._idle == {}
    assert len(pool) == 0
    connection.abort()
    pool.close()


async def test_what_has_been_idle_for_too_long_is_closed_unasked(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDLE_SECONDS", 0.05)
    clock = SettableClock()
    pool = pool_of(clock)
    connection = await connected(server, clock)
    pool.put(KEY, connection, clock.monotonic())
    clock.advance(0.06)
    async with asyncio.timeout(5):
        await server.ended.wait()
    assert len(pool) == 0
