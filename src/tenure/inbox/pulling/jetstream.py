"""NATS: a durable pull consumer of a JetStream stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import nats
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import ConsumerConfig

from tenure.inbox.pulling.contract import BrokerFailed, Pulled
from tenure.limits import (
    PULL_BATCH,
    PULL_CONNECT_SECONDS,
    PULL_IDLE_SECONDS,
    PULL_WAIT_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from tenure.inbox.model import Pull

__all__ = ["JetStream", "connect"]


async def connect(pull: Pull) -> JetStream:
    """Connect, and make or find the durable consumer."""
    client: Client | None = None
    try:
        client = await nats.connect(
            pull.url,
            connect_timeout=round(PULL_CONNECT_SECONDS),
            allow_reconnect=False,
            max_reconnect_attempts=1,  # without it, a first connection tries for ever
            reconnect_time_wait=0.1,
            error_cb=_quiet,
        )
        stream = client.jetstream()
        subscription = await stream.pull_subscribe(
            pull.name,
            durable=pull.group,
            config=ConsumerConfig(ack_wait=PULL_IDLE_SECONDS),
        )
    except (NatsError, OSError, TimeoutError) as error:
        if client is not None:
            await client.close()
        raise BrokerFailed(f"NATS: {error or type(error).__name__}") from None
    return JetStream(client, subscription)


async def _quiet(error: Exception) -> None:
    """The next fetch fails and says why."""
    del error


class JetStream:
    """A session of one consumer."""

    def __init__(self, client: Client, subscription: Any) -> None:
        self._client: Final = client
        self._subscription: Final = subscription

    async def fetch(self) -> Sequence[Pulled]:
        """Return what the stream has for this consumer."""
        try:
            found: list[Msg] = await self._subscription.fetch(
                PULL_BATCH, timeout=PULL_WAIT_SECONDS
            )
        except NatsTimeout:
            return ()
        except (NatsError, OSError) as error:
            raise BrokerFailed(f"NATS: {error or type(error).__name__}") from None
        return [self._pulled(each) for each in found]

    def _pulled(self, message: Msg) -> Pulled:
        meta = message.metadata

        async def acknowledge() -> None:
            try:
                await message.ack_sync(timeout=PULL_CONNECT_SECONDS)
            except (NatsError, OSError, TimeoutError) as error:
                raise BrokerFailed(f"NATS: {error or type(error).__name__}") from None

        return Pulled(
            body=message.data,
            headers=tuple(
                (name.lower().encode("latin-1", "replace"), _bytes(value))
                for name, value in (message.headers or {}).items()
            ),
            key=f"{meta.stream}:{meta.sequence.stream}",
            acknowledge=acknowledge,
        )

    async def aclose(self) -> None:
        """Leave."""
        await self._client.close()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
