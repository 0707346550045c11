"""Idle connections, kept for reuse under exactly the conditions they were made for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from tenure import limits

if TYPE_CHECKING:
    import asyncio

    from tenure.clock import Clock
    from tenure.outbox.http.connection import Connection
    from tenure.outbox.http.model import Policy, Request

# scheme, host, port, and what the policy says about addresses and TLS.
Key: TypeAlias = tuple[str, str, int, str]


def pool_key(request: Request, policy: Policy) -> Key:
    """Return what two sends must agree on to share a connection."""
    url = request.url
    return (url.scheme, url.host, url.port, policy.reuse_key)


class Pool:
    """Bounded store of idle connections: newest first out, oldest first dropped."""

    __slots__ = (
        "_clock",
        "_idle",
        "_loop",
        "_per_key_max",
        "_places",
        "_timer",
        "_total_max",
    )

    def __init__(
        self,
        *,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        per_key_max: int = limits.IDLE_PER_KEY_MAX,
        total_max: int = limits.IDLE_TOTAL_MAX,
    ) -> None:
        self._clock: Final = clock
        self._loop: Final = loop
        self._per_key_max: Final = per_key_max
        self._total_max: Final = total_max
        self._idle: Final[dict[Key, list[Connection]]] = {}
        # Insertion order is the order of becoming idle, so the first is the oldest.
        self._places: Final[dict[Connection, Key]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._places)

    def take(self, key: Key, policy: Policy, now: float) -> Connection | None:
        """Return an idle connection that may be used now, or None.

        `now` is a reading of the pool's clock in monotonic seconds, as in `put`.

        Those that are too old, have received bytes or an end, or whose address the
        present policy refuses are closed on the way.
        """
        kept = self._idle.get(key)
        if not kept:
            return None
        while kept:
            connection = kept.pop()
            if not kept:
                del self._idle[key]
            del self._places[connection]
            connection.on_closed = None
            if (
                now - connection.idle_since <= limits.IDLE_SECONDS
                and now - connection.made_at <= limits.CONNECTION_AGE_SECONDS
                and connection.is_quiet()
                and connection.is_allowed(policy.allow_networks)
            ):
                return connection
            connection.abort()
        return None

    def put(self, key: Key, connection: Connection, now: float) -> None:
        """Keep a connection for reuse, or close it when there is no room."""
        if not connection.usable:
            connection.close()
            return
        kept = self._idle.setdefault(key, [])
        if len(kept) >= self._per_key_max:
            connection.close()
            return
        if len(self._places) >= self._total_max:
            oldest = next(iter(self._places))
            self._forget(oldest)
            oldest.close()
            kept = self._idle.setdefault(key, [])
        connection.idle_since = now
        connection.on_closed = self._forget
        kept.append(connection)
        self._places[connection] = key
        if self._timer is None:
            self._timer = self._loop.call_later(limits.IDLE_SECONDS, self._expire)

    def close(self) -> None:
        """Close all of them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in list(self._places):
            self._forget(connection)
            connection.abort()

    def _forget(self, connection: Connection) -> None:
        key = self._places.pop(connection, None)
        connection.on_closed = None
        if key is None:
            return
        kept = self._idle[key]
        kept.remove(connection)
        if not kept:
            del self._idle[key]

    def _expire(self) -> None:
        """Close what has been idle for too long; stand by while any is left."""
        self._timer = None
        now = self._clock.monotonic()
        for connection in list(self._places):
            if now - connection.idle_since < limits.IDLE_SECONDS:
                break
            self._forget(connection)
            connection.close()
        if self._places:
            oldest = next(iter(self._places))
            left = limits.IDLE_SECONDS - (now - oldest.idle_since)
            self._timer = self._loop.call_later(max(left, 0.1), self._expire)
