"""Redis: a consumer group of a stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import redis
from redis.asyncio import Redis
from redis.driver_info import DriverInfo
from redis.exceptions import RedisError, ResponseError

from tenure.ids import token
from tenure.inbox.pulling.contract import BrokerFailed, Pulled
from tenure.limits import (
    PULL_BATCH,
    PULL_CONNECT_SECONDS,
    PULL_IDLE_SECONDS,
    PULL_WAIT_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.inbox.model import Pull

__all__ = ["Stream", "connect"]

_DRIVER: Final = DriverInfo(name="redis-py", lib_version=redis.__version__)
"""Named here: a connection would read the version from a file, on the loop."""
_BODIES: Final = (b"body", b"payload", b"data")


async def connect(pull: Pull) -> Stream:
    """Connect, and make or find the consumer group."""
    client: Any = Redis.from_url(
        pull.url,
        driver_info=_DRIVER,
        socket_connect_timeout=PULL_CONNECT_SECONDS,
        socket_timeout=PULL_CONNECT_SECONDS + PULL_WAIT_SECONDS,
    )
    try:
        await client.xgroup_create(pull.name, pull.group, id="0", mkstream=True)
    except ResponseError as error:
        if "BUSYGROUP" not in str(error):
            await client.aclose()
            raise BrokerFailed(f"Redis: {error}") from None
    except (RedisError, OSError) as error:
        await client.aclose()
        raise BrokerFailed(f"Redis: {error or type(error).__name__}") from None
    return Stream(client, pull)


class Stream:
    """A session of one consumer. Entries of consumers that are gone are taken over."""

    def __init__(self, client: Any, pull: Pull) -> None:
        self._client: Final = client
        self._name: Final = pull.name
        self._group: Final = pull.group
        self._consumer: Final = f"tenure-{token(9)}"

    async def fetch(self) -> Sequence[Pulled]:
        """Return entries that nobody has, or that somebody has had for too long."""
        try:
            claimed: Any = await self._client.xautoclaim(
                self._name,
                self._group,
                self._consumer,
                min_idle_time=round(PULL_IDLE_SECONDS * 1000),
                count=PULL_BATCH,
            )
            entries: list[Any] = [each for each in claimed[1] if each[1] is not None]
            if not entries:
                read: Any = await self._client.xreadgroup(
                    self._group,
                    self._consumer,
                    {self._name: ">"},
                    count=PULL_BATCH,
                    block=round(PULL_WAIT_SECONDS * 1000),
                )
                entries = _entries(read)
        except (RedisError, OSError) as error:
            raise BrokerFailed(f"Redis: {error or type(error).__name__}") from None
        return [self._pulled(id_, fields) for id_, fields in entries]

    def _pulled(self, id_: bytes, fields: dict[bytes, bytes]) -> Pulled:
        async def acknowledge() -> None:
            try:
                await self._client.xack(self._name, self._group, id_)
            except (RedisError, OSError) as error:
                raise BrokerFailed(f"Redis: {error or type(error).__name__}") from None

        named = next((name for name in _BODIES if name in fields), None)
        rest = {name: value for name, value in fields.items() if name != named}
        return Pulled(
            body=_object(fields) if named is None else fields[named],
            headers=()
            if named is None
            else tuple((name.lower(), value) for name, value in rest.items()),
            key=id_.decode(),
            acknowledge=acknowledge,
        )

    async def aclose(self) -> None:
        """Leave. The consumer stays as long as it has entries, else it is removed."""
        try:
            pending: Any = await self._client.xpending_range(
                self._name, self._group, "-", "+", 1, consumername=self._consumer
            )
            if not pending:
                await self._client.xgroup_delconsumer(
                    self._name, self._group, self._consumer
                )
        except (RedisError, OSError):
            pass
        await self._client.aclose()


def _entries(read: Any) -> list[Any]:
    """Return the entries of a reply, in either protocol's shape."""
    if not read:
        return []
    if isinstance(read, dict):
        return [each for groups in read.values() for group in groups for each in group]  # pyright: ignore[reportUnknownVariableType]
    return [each for _, entries in read for each in entries]


def _object(fields: dict[bytes, bytes]) -> bytes:
    """Return an entry without a body of its own as the JSON object that it is."""
    return json.dumps(
        {
            name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for name, value in fields.items()
        }
    ).encode()
