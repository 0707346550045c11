"""AMQP 0-9-1 (RabbitMQ): a queue that exists."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import aio_pika
from aio_pika.exceptions import AMQPError

from tenure.inbox.pulling.contract import BrokerFailed, Pulled
from tenure.limits import (
    PULL_BATCH,
    PULL_CONNECT_SECONDS,
    PULL_WAIT_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

    from tenure.inbox.model import Pull

__all__ = ["Queue", "connect"]


async def connect(pull: Pull) -> Queue:
    """Connect and begin to consume."""
    connection: AbstractConnection | None = None
    try:
        connection = await aio_pika.connect(pull.url, timeout=PULL_CONNECT_SECONDS)
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=PULL_BATCH)
        queue = await channel.get_queue(pull.name, ensure=True)
        session = Queue(connection)
        await queue.consume(session.arrived.put)
    except (AMQPError, OSError, TimeoutError) as error:
        if connection is not None:
            await connection.close()
        raise BrokerFailed(f"AMQP: {error or type(error).__name__}") from None
    return session


class Queue:
    """A session of one consumer; the broker bounds how much waits here."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection: Final = connection
        self.arrived: Final[asyncio.Queue[AbstractIncomingMessage]] = asyncio.Queue()

    async def fetch(self) -> Sequence[Pulled]:
        """Return what has arrived."""
        if self._connection.is_closed:
            raise BrokerFailed("AMQP: the connection was closed")
        try:
            async with asyncio.timeout(PULL_WAIT_SECONDS):
                found = [await self.arrived.get()]
        except TimeoutError:
            return ()
        while len(found) < PULL_BATCH and not self.arrived.empty():
            found.append(self.arrived.get_nowait())
        return [_pulled(each) for each in found]

    async def aclose(self) -> None:
        """Leave."""
        await self._connection.close()


def _pulled(message: AbstractIncomingMessage) -> Pulled:
    async def acknowledge() -> None:
        try:
            await message.ack()
        except (AMQPError, OSError, RuntimeError) as error:
            raise BrokerFailed(f"AMQP: {error or type(error).__name__}") from None

    headers = [
        (name.lower().encode("utf-8", "replace"), _bytes(value))
        for name, value in (message.headers or {}).items()
    ]
    if message.content_type:
        headers.append((b"content-type", message.content_type.encode()))
    return Pulled(
        body=message.body,
        headers=tuple(headers),
        key=message.message_id or None,
        acknowledge=acknowledge,
    )


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
