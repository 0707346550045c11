"""Names to addresses: our own DNS client, with a bounded cache in front.

`getaddrinfo` of the system blocks a thread for as long as it likes; aiodns (c-ares)
does not, reads /etc/hosts too, and gives the TTL. The cache asks each name once at a
time however many sends wait for it. Answers are values: a name that does not resolve
is an answer as well.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import aiodns
from aiodns.error import DNSError

from tenure import limits
from tenure.spawn import Tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.clock import Clock
    from tenure.outbox.http.model import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a name stands for: addresses, or why there are none.

    `ttl_seconds` is what the zone allows; the cache keeps it within its own bounds.
    """

    addresses: tuple[Address, ...] = ()
    ttl_seconds: float = 0.0
    error: str = ""


class Resolver(Protocol):
    """Answers what a host name stands for now. Raises only `CancelledError`."""

    async def resolve(self, host: str) -> Answer:
        """Return the addresses of a name, in the order they are to be tried."""
        ...

    async def aclose(self) -> None:
        """Give up what is in progress."""
        ...


class DnsResolver:
    """Asks the name servers of this machine, and its hosts file, without a cache."""

    __slots__ = ("_channel", "_nameservers")

    def __init__(self, nameservers: Sequence[str] | None = None) -> None:
        self._nameservers: Final = nameservers
        self._channel: aiodns.DNSResolver | None = None

    async def resolve(self, host: str) -> Answer:
        """Ask for IPv6 and IPv4 addresses at once."""
        if self._channel is None:
            self._channel = aiodns.DNSResolver(
                self._nameservers, asyncio.get_running_loop(), timeout=2.0, tries=3
            )
        try:
            found = await self._channel.getaddrinfo(host, type=socket.SOCK_STREAM)
        except DNSError as error:
            return Answer(error=str(error.args[-1]) if error.args else "lookup failed")
        addresses: list[Address] = []
        for node in found.nodes:
            raw = node.addr[0]
            text = raw.decode("ascii") if isinstance(raw, bytes) else str(raw)
            addresses.append(ipaddress.ip_address(text))
        ttl = min((node.ttl for node in found.nodes), default=0)
        if not addresses:
            return Answer(error="name has no address")
        return Answer(addresses=tuple(dict.fromkeys(addresses)), ttl_seconds=ttl)

    async def aclose(self) -> None:
        """Cancel lookups and close the channel."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None


class CachingResolver:
    """A bounded cache before a resolver; one lookup per name at a time.

    Bounds: names kept, time kept (1-60 s, 2 s for failures), lookups at once and the
    time of one lookup, all from limits.py.
    """

    __slots__ = ("_cache", "_clock", "_flights", "_inner", "_room", "_tasks")

    def __init__(self, inner: Resolver, *, clock: Clock) -> None:
        self._inner: Final = inner
        self._clock: Final = clock
        self._cache: Final[dict[str, tuple[float, Answer]]] = {}
        self._flights: Final[dict[str, asyncio.Task[Answer]]] = {}
        self._room: Final = asyncio.Semaphore(limits.DNS_LOOKUPS_MAX)
        self._tasks: Final = Tasks()

    async def resolve(self, host: str) -> Answer:
        """Answer from the cache, or join the lookup of that name."""
        cached = self._cache.get(host)
        if cached is not None and self._clock.monotonic() < cached[0]:
            return cached[1]
        flight = self._flights.get(host)
        if flight is None:
            flight = self._tasks.start(self._fly(host), name=f"dns {host}")
            self._flights[host] = flight
        # A caller that gives up must not take the lookup away from the others.
        await asyncio.wait((flight,))
        if flight.cancelled():
            return Answer(error="lookup was given up")
        return flight.result()

    async def aclose(self) -> None:
        """Cancel lookups and close the resolver behind."""
        await self._tasks.cancel()
        await self._inner.aclose()

    async def _fly(self, host: str) -> Answer:
        try:
            async with self._room:
                answer = await self._ask(host)
            self._keep(host, answer)
            return answer
        finally:
            del self._flights[host]

    async def _ask(self, host: str) -> Answer:
        try:
            async with asyncio.timeout(limits.DNS_LOOKUP_SECONDS):
                return await self._inner.resolve(host)
        except TimeoutError:
            return Answer(error="lookup timed out")
        except Exception as error:  # noqa: BLE001  a resolver's fault is an answer too
            return Answer(error=f"lookup failed: {type(error).__name__}")

    def _keep(self, host: str, answer: Answer) -> None:
        if answer.error:
            seconds = limits.DNS_NEGATIVE_SECONDS
        else:
            seconds = min(answer.ttl_seconds, limits.DNS_TTL_MAX_SECONDS)
            seconds = max(seconds, limits.DNS_TTL_MIN_SECONDS)
        self._cache.pop(host, None)
        while len(self._cache) >= limits.DNS_CACHE_MAX:
            del self._cache[next(iter(self._cache))]
        self._cache[host] = (self._clock.monotonic() + seconds, answer)
