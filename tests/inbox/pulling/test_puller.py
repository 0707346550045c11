"""Pulling from real brokers, where one answers here."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import aio_pika
import nats
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from tenure.clock import SystemClock
from tenure.errors import DatabaseUnavailable
from tenure.ids import token
from tenure.inbox.arrivals import Arrival
from tenure.inbox.ledger import receiving
from tenure.inbox.model import Pull, PullKind, Source, SourceIn, Verification
from tenure.inbox.pulling import jetstream, puller, streams
from tenure.inbox.pulling.contract import BrokerFailed, Pulled
from tenure.inbox.pulling.puller import Puller, connect
from tenure.telemetry.events import Events
from tests.inbox.conftest import Rig
from tests.inbox.world import ONE
from tests.outbox.world import count, rows

URLS = {
    PullKind.NATS: "nats://127.0.0.1:4222",
    PullKind.REDIS: "redis://127.0.0.1:6379",
    PullKind.AMQP: "amqp://guest:guest@127.0.0.1:5672/",
}
BODIES = [b'{"n": 1}', "gr\u00fc\u00df".encode(), b""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A stream or queue of the test's own on a real broker."""

    pull: Pull
    publish: Callable[[Sequence[bytes]], Awaitable[None]]
    waiting: Callable[[], Awaitable[int]]
    """How many messages are not acknowledged."""


@contextlib.asynccontextmanager
async def of_nats(name: str) -> AsyncGenerator[Broker]:
    client = await nats.connect(URLS[PullKind.NATS])
    stream = client.jetstream()
    await stream.add_stream(name=name, subjects=[name])

    async def publish(bodies: Sequence[bytes]) -> None:
        for body in bodies:
            await stream.publish(name, body, headers={"X-Kind": "test"})

    async def waiting() -> int:
        info = await stream.consumer_info(name, "tenure")
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    try:
        yield Broker(
            pull=Pull(kind=PullKind.NATS, url=URLS[PullKind.NATS], name=name),
            publish=publish,
            waiting=waiting,
        )
    finally:
        await stream.delete_stream(name)
        await client.close()


@contextlib.asynccontextmanager
async def of_redis(name: str) -> AsyncGenerator[Broker]:
    client = Redis.from_url(URLS[PullKind.REDIS])  # pyright: ignore[reportUnknownMemberType]

    async def publish(bodies: Sequence[bytes]) -> None:
        for body in bodies:
            await client.xadd(name, {"body": body, "X-Kind": "test"})

    async def waiting() -> int:
        (group,) = await client.xinfo_groups(name)
        return group["pending"] + (group["lag"] or 0)

    try:
        yield Broker(
            pull=Pull(kind=PullKind.REDIS, url=URLS[PullKind.REDIS], name=name),
            publish=publish,
            waiting=waiting,
        )
    finally:
        await client.delete(name)
        await client.aclose()


@contextlib.asynccontextmanager
async def of_amqp(name: str) -> AsyncGenerator[Broker]:
    connection = await aio_pika.connect(URLS[PullKind.AMQP])
    channel = await connection.channel()
    await channel.declare_queue(name)

    async def publish(bodies: Sequence[bytes]) -> None:
        for n, body in enumerate(bodies):
            message = aio_pika.Message(
                body, message_id=f"m{n}", headers={"X-Kind": "test"}
            )
            await channel.default_exchange.publish(message, routing_key=name)

    async def waiting() -> int:
        asked = await connection.channel()
        found = await asked.declare_queue(name, passive=True)
        await asked.close()
        return found.declaration_result.message_count or 0

    try:
        yield Broker(
            pull=Pull(kind=PullKind.AMQP, url=URLS[PullKind.AMQP], name=name),
            publish=publish,
            waiting=waiting,
        )
    finally:
        await channel.queue_delete(name)
        await connection.close()


MAKERS = {PullKind.NATS: of_nats, PullKind.REDIS: of_redis, PullKind.AMQP: of_amqp}


@pytest_asyncio.fixture(params=[*PullKind])
async def broker(request: pytest.FixtureRequest) -> AsyncGenerator[Broker]:
    kind: PullKind = request.param
    parts = urlsplit(URLS[kind])
    try:
        socket.create_connection((parts.hostname, parts.port), 1).close()
    except OSError:
        pytest.skip(f"no {kind} broker answers on {parts.hostname}:{parts.port}")
    async with MAKERS[kind](f"tenure-test-{token(6).lower()}") as made:
        yield made


async def make_source(rig: Rig, pull: Pull) -> Source:
    given = SourceIn(name="P", verification=Verification(preset="none"), pull=pull)
    return (await rig.inbox.create_source(ONE, given)).value


@contextlib.asynccontextmanager
async def pulling(rig: Rig) -> AsyncGenerator[Puller]:
    puller = Puller(
        rig.backend,
        rig.inbox.receiver,
        rig.ring,
        SystemClock(),
        Events(),
        lambda: True,
    )
    task = asyncio.ensure_future(puller.run())
    try:
        yield puller
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def until(fact: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await fact():  # noqa: ASYNC110 -- a broker's fact
            await asyncio.sleep(0.01)


async def test_what_a_broker_has_is_committed_then_acknowledged(
    rig: Rig, broker: Broker
):
    source = await make_source(rig, broker.pull)
    assert source.pull is not None
    assert "guest:guest" not in source.pull.url
    await broker.publish(BODIES)
    async with pulling(rig):

        async def received() -> bool:
            return await count(rig.backend, "receipt") == len(BODIES)

        async def acknowledged() -> bool:
            return await broker.waiting() == 0

        await until(received)
        await until(acknowledged)
    found = await rows(rig.backend, "SELECT body FROM payload ORDER BY message")
    assert sorted(bytes(row["body"]) for row in found) == sorted(BODIES)
    told = await rows(rig.backend, "SELECT relay FROM message")
    assert all('["x-kind","test"]' in row["relay"] for row in told)


async def test_what_was_committed_and_not_acknowledged_is_not_received_twice(
    rig: Rig, broker: Broker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(jetstream, "PULL_IDLE_SECONDS", 0.5)
    monkeypatch.setattr(streams, "PULL_IDLE_SECONDS", 0.1)
    source = await make_source(rig, broker.pull)
    session = await connect(broker.pull)
    await broker.publish(BODIES)
    taken: list[Pulled] = []
    while len(taken) < len(BODIES):
        taken += await session.fetch()
    for each in taken:  # committed, and then the node is gone
        arrival = Arrival(
            method="POST",
            url="",
            query=b"",
            headers=each.headers,
            body=each.body,
            address=None,
        )
        assert await rig.inbox.receiver.take(source.path, arrival, each.key)
    await session.aclose()
    async with pulling(rig):

        async def acknowledged() -> bool:
            return await broker.waiting() == 0

        await until(acknowledged)
    assert await count(rig.backend, "receipt") == len(BODIES)
    assert await count(rig.backend, "message") == len(BODIES)


async def test_what_cannot_be_stored_now_is_not_acknowledged(
    rig: Rig, broker: Broker, monkeypatch: pytest.MonkeyPatch
):
    await make_source(rig, broker.pull)
    insert, tried = receiving._insert, asyncio.Event()

    def away(*args: object) -> None:
        del args
        tried.set()
        raise DatabaseUnavailable("gone", retry_after=0.05)

    monkeypatch.setattr(receiving, "_insert", away)
    await broker.publish(BODIES[:1])
    async with pulling(rig):
        await tried.wait()
        assert await count(rig.backend, "receipt") == 0
        monkeypatch.setattr(receiving, "_insert", insert)

        async def acknowledged() -> bool:
            return (
                await count(rig.backend, "receipt") == 1 and await broker.waiting() == 0
            )

        await until(acknowledged)


@dataclass(slots=True)
class OneMessage:
    """A broker's session, without a broker: what is in the database at each step."""

    rig: Rig
    left: int = 1
    stored: list[int] = field(default_factory=list[int])
    told: asyncio.Event = field(default_factory=asyncio.Event)

    async def fetch(self) -> list[Pulled]:
        if self.left == 0:
            await asyncio.Event().wait()
        self.left -= 1
        return [Pulled(key="m", headers=(), body=b"{}", acknowledge=self.acknowledge)]

    async def acknowledge(self) -> None:
        self.stored.append(await count(self.rig.backend, "receipt"))
        self.told.set()

    async def aclose(self) -> None:
        pass


async def test_what_is_acknowledged_is_in_the_database_by_then(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    session = OneMessage(rig)

    async def connected(_: Pull) -> OneMessage:
        return session

    monkeypatch.setattr(puller, "connect", connected)
    await make_source(rig, Pull(kind=PullKind.NATS, url="nats://h:4222", name="s"))
    async with pulling(rig):
        await asyncio.wait_for(session.told.wait(), 20)
    assert session.stored == [1]


async def test_a_source_that_is_deleted_after_the_look_is_not_pulled_from(rig: Rig):
    pull = Pull(kind=PullKind.NATS, url="nats://h:4222", name="s")
    source = await make_source(rig, pull)
    async with pulling(rig) as made:
        made._wanted = {source.id: source.version}
        await rig.inbox.delete_source(ONE, source.id)
        await asyncio.wait_for(made._pull(source.id, source.version), 20)


async def test_a_broker_that_does_not_answer_says_which(rig: Rig):
    del rig
    for kind in PullKind:
        scheme = URLS[kind].partition("://")[0]
        pull = Pull(kind=kind, url=f"{scheme}://user:hidden@127.0.0.1:9/", name="x")
        with pytest.raises(BrokerFailed) as failed:
            await connect(pull)
        assert "hidden" not in str(failed.value)
