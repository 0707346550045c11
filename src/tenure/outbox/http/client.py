"""The transport: one send from request to outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tenure import limits
from tenure.clock import Clock, SystemClock
from tenure.outbox.http.dial import Dial
from tenure.outbox.http.encode import encode
from tenure.outbox.http.model import (
    Cause,
    Failure,
    Fault,
    Phase,
    Policy,
    Request,
    Response,
    Timings,
    fault,
)
from tenure.outbox.http.parser import ResponseParser
from tenure.outbox.http.pool import Pool, pool_key
from tenure.outbox.http.resolver import CachingResolver, DnsResolver, Resolver
from tenure.outbox.http.tls import TlsContexts

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.outbox.http.connection import Connection


class HttpTransport:
    """Sends requests over HTTP/1.1 within one event loop.

    A request is written once. If a kept-alive connection ends before any byte of the
    response, that is `Failure(cause=reset, reused=True)`: whether to send again is not
    decided here. Make it inside the running loop that uses it; close it with `aclose`.
    """

    __slots__ = (
        "_active",
        "_clock",
        "_closed",
        "_contexts",
        "_dials",
        "_loop",
        "_pool",
        "_resolver",
    )

    def __init__(
        self,
        *,
        resolver: Resolver | None = None,
        clock: Clock | None = None,
        extra_ca_pem: str | None = None,
        idle_per_key_max: int = limits.IDLE_PER_KEY_MAX,
    ) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._clock: Final = clock or SystemClock()
        self._resolver: Final = resolver or CachingResolver(
            DnsResolver(), clock=self._clock
        )
        self._contexts: Final = TlsContexts(extra_ca_pem)
        self._pool: Final = Pool(
            clock=self._clock, loop=self._loop, per_key_max=idle_per_key_max
        )
        self._active: Final[set[Connection]] = set()
        self._dials: Final[set[Dial]] = set()
        self._closed = False

    async def send(
        self,
        request: Request,
        policy: Policy,
        before_write: Callable[[], bool] | None = None,
    ) -> Response | Failure:
        """Send once, within the policy's deadline; raises only `CancelledError`.

        A cancelled send closes its connection. `before_write` is asked as the last act
        before the request head is written; False ends the send as `fenced`, with
        nothing written and the connection kept.
        """
        exchange = _Exchange(self._clock)
        deadline = self._loop.time() + policy.deadline_seconds
        if self._closed:
            return exchange.failure(fault(Cause.CUT, Phase.DNS, "client is closed"))
        try:
            data = encode(request)
        except ValueError as error:
            return exchange.failure(fault(Cause.PROTOCOL, Phase.SEND, str(error)))
        key = pool_key(request, policy)
        connection = self._pool.take(key, policy)
        if connection is None:
            made = await self._dial(request, policy, deadline, exchange)
            if isinstance(made, Fault):
                return exchange.failure(made)
            connection = made
        else:
            exchange.reused = True
        exchange.address = connection.peer
        refusal = _ask(before_write)
        if refusal is not None:
            self._pool.put(key, connection)
            return exchange.failure(refusal)
        parser = ResponseParser(policy)
        ended = await self._exchange(connection, data, parser, deadline, exchange)
        if ended is not None:
            connection.abort()
            return exchange.failure(ended, connection=connection, parser=parser)
        if parser.reusable and connection.usable and not self._closed:
            self._pool.put(key, connection)
        elif parser.truncated:
            connection.abort()
        else:
            connection.close()
        return exchange.response(connection, parser)

    async def aclose(self) -> None:
        """Close every connection; sends in flight end as `cut`."""
        self._closed = True
        for connection in list(self._active):
            connection.cut("client was closed")
        for dial in self._dials:
            dial.give_up()
        self._pool.close()
        await self._resolver.aclose()
        await asyncio.sleep(0)  # transports close in the next turn of the loop

    async def _dial(
        self, request: Request, policy: Policy, deadline: float, exchange: _Exchange
    ) -> Connection | Fault:
        dial = Dial(
            request.url,
            policy,
            resolver=self._resolver,
            contexts=self._contexts,
            clock=self._clock,
        )
        exchange.dial = dial
        self._dials.add(dial)
        try:
            made = await dial.run(deadline)
        finally:
            self._dials.discard(dial)
        exchange.address = dial.address
        if self._closed:
            if not isinstance(made, Fault):
                made.abort()
            return fault(Cause.CUT, dial.phase, "client was closed")
        if isinstance(made, Fault):
            return made
        if not made.usable:
            made.abort()
            return fault(
                Cause.RESET, dial.phase, "connection closed before the request"
            )
        return made

    async def _exchange(
        self,
        connection: Connection,
        data: bytes,
        parser: ResponseParser,
        deadline: float,
        exchange: _Exchange,
    ) -> Fault | None:
        self._active.add(connection)
        exchange.began_at = self._clock.monotonic()
        try:
            return await connection.begin(data, parser, deadline)
        except asyncio.CancelledError:
            connection.abort()
            raise
        finally:
            self._active.discard(connection)


class _Exchange:
    """What is known about one send so far, turned into its outcome at the end."""

    __slots__ = ("_clock", "_started", "address", "began_at", "dial", "reused")

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._started: Final = clock.monotonic()
        self.address: str | None = None
        self.began_at: float | None = None
        self.dial: Dial | None = None
        self.reused = False

    def response(self, connection: Connection, parser: ResponseParser) -> Response:
        return Response(
            status=parser.status,
            headers=parser.headers,
            body=parser.body,
            truncated=parser.truncated,
            http_version=parser.http_version,
            address=connection.peer,
            tls_version=connection.tls_version,
            reused=self.reused,
            timings=self._timings(connection),
        )

    def failure(
        self,
        ended: Fault,
        *,
        connection: Connection | None = None,
        parser: ResponseParser | None = None,
    ) -> Failure:
        return Failure(
            cause=ended.cause,
            phase=ended.phase,
            detail=ended.detail,
            address=self.address,
            reused=self.reused,
            began=self.began_at is not None,
            bytes_received=parser is not None and parser.received > 0,
            timings=self._timings(connection),
        )

    def _timings(self, connection: Connection | None) -> Timings:
        first = connection.first_byte_at if connection is not None else None
        began = self.began_at
        waited = None if first is None or began is None else _us(first - began)
        total = _us(self._clock.monotonic() - self._started)
        dial = self.dial
        if dial is None:
            return Timings(
                dns=None, connect=None, tls=None, first_byte=waited, total=total
            )
        return Timings(
            dns=dial.dns_us,
            connect=dial.connect_us,
            tls=dial.tls_us,
            first_byte=waited,
            total=total,
        )


def _ask(before_write: Callable[[], bool] | None) -> Fault | None:
    """Ask the caller's guard; one that cannot tell refuses."""
    if before_write is None:
        return None
    try:
        allowed = before_write()
    except Exception as error:  # noqa: BLE001  outcomes are values, and no is the safe one
        detail = f"the check before the write failed: {type(error).__name__}"
        return fault(Cause.FENCED, Phase.SEND, detail)
    return (
        None if allowed else fault(Cause.FENCED, Phase.SEND, "refused before the write")
    )


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)
