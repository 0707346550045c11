"""The transport: one send from request to outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tenure import limits
from tenure.clock import Clock, SystemClock
from tenure.outbox.http.dial import Dial
from tenure.outbox.http.encode import Encoder
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
from tenure.outbox.http.pool import Pool, pool_key
from tenure.outbox.http.resolver import CachingResolver, DnsResolver, Resolver
from tenure.outbox.http.tls import TlsContexts

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.outbox.http.connection import Connection
    from tenure.outbox.http.parser import ResponseParser


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
        "_encoder",
        "_loop",
        "_monotonic",
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
        self._monotonic: Final = self._clock.monotonic
        self._resolver: Final = resolver or CachingResolver(
            DnsResolver(), clock=self._clock
        )
        self._encoder: Final = Encoder()
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
        monotonic = self._monotonic
        started = monotonic()
        exchange = _Exchange(self._clock, started)
        deadline = self._loop.time() + policy.deadline_seconds
        if self._closed:
            return exchange.failure(fault(Cause.CUT, Phase.DNS, "client is closed"))
        try:
            data = self._encoder.encode(request)
        except ValueError as error:
            return exchange.failure(fault(Cause.PROTOCOL, Phase.SEND, str(error)))
        key = pool_key(request, policy)
        connection = self._pool.take(key, policy, started)
        if connection is None:
            made = await self._dial(request, policy, deadline, exchange)
            if isinstance(made, Fault):
                return exchange.failure(made)
            connection = made
        else:
            exchange.reused = True
        exchange.address = connection.peer
        if before_write is not None:
            refusal = _ask(before_write)
            if refusal is not None:
                self._pool.put(key, connection, monotonic())
                return exchange.failure(refusal)
        active = self._active
        active.add(connection)
        exchange.began_at = monotonic()
        try:
            ended = await connection.begin(data, policy, deadline)
        except asyncio.CancelledError:
            connection.abort()
            raise
        finally:
            active.discard(connection)
        if ended is not None:
            connection.abort()
            return exchange.failure(ended, connection)
        parser = connection.parser
        now = monotonic()
        response = exchange.response(connection, parser, now)
        if parser.reusable and not self._closed:
            self._pool.put(key, connection, now)
        elif parser.truncated:
            connection.abort()
        else:
            connection.close()
        return response

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
        if not made.is_open:
            made.abort()
            return fault(
                Cause.RESET, dial.phase, "connection closed before the request"
            )
        return made


class _Exchange:
    """What is known about one send so far, turned into its outcome at the end."""

    __slots__ = (
        "_clock",
        "address",
        "began_at",
        "dial",
        "reused",
        "started",
    )

    def __init__(self, clock: Clock, started: float) -> None:
        self._clock: Final = clock
        self.started: Final = started
        self.address: str | None = None
        self.began_at = 0.0  # 0 until the write of the request began
        self.dial: Dial | None = None
        self.reused = False

    def response(
        self, connection: Connection, parser: ResponseParser, now: float
    ) -> Response:
        """Turn the complete response that came over a connection into the outcome."""
        return Response(
            status=parser.status,
            headers=tuple(parser.headers_list),
            body=parser.body,
            truncated=parser.truncated,
            http_version=parser.http_version,
            address=connection.peer,
            tls_version=connection.tls_version,
            reused=self.reused,
            timings=self._timings(connection.first_byte_at, now),
        )

    def failure(self, ended: Fault, connection: Connection | None = None) -> Failure:
        """Turn a fault into the outcome; `connection` is given once it was written to."""
        return Failure(
            cause=ended.cause,
            phase=ended.phase,
            detail=ended.detail,
            address=self.address,
            reused=self.reused,
            began=connection is not None,
            bytes_received=connection is not None and connection.parser.received > 0,
            timings=self._timings(
                connection.first_byte_at if connection else None,
                self._clock.monotonic(),
            ),
        )

    def _timings(self, first_byte_at: float | None, now: float) -> Timings:
        waited = None if first_byte_at is None else _us(first_byte_at - self.began_at)
        total = _us(now - self.started)
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


def _ask(before_write: Callable[[], bool]) -> Fault | None:
    """Ask the caller's guard; one that cannot tell refuses."""
    try:
        allowed = before_write()
    except Exception as error:  # noqa: BLE001  outcomes are values, and no is the safe one
        detail = f"the check before the write failed: {type(error).__name__}"
        return fault(Cause.FENCED, Phase.SEND, detail)
    return (
        None if allowed else fault(Cause.FENCED, Phase.SEND, "refused before the write")
    )


def _us(seconds: float) -> int:
    return int(seconds * 1_000_000)
