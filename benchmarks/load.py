"""Callers in a process of their own: so many connections, each asks again at once.

Raw asyncio and httptools, prepared bytes: the generator must not be the limit.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import httptools

from benchmarks.figures import percentile
from benchmarks.processes import Actor

STAMP: Final = b"0" * 20
"""Where a body holds the instant of its sending, in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the callers saw; times in seconds."""

    rate: float
    p50: float
    p99: float
    count: int
    refused: int
    cpu_us: float = 0.0
    """Of the server's processor time for each request, where somebody asked it."""


class Callers(Actor):
    """Asks a server over and over."""

    async def drive(
        self, port: int, requests: tuple[bytes, ...], *, callers: int, seconds: float
    ) -> Loaded:
        """Send prepared requests in turn for so long; refused is all that is not 2xx."""
        loop = asyncio.get_running_loop()
        times: list[float] = []
        refused = 0
        until = time.perf_counter() + seconds
        turn = itertools.cycle(requests)

        def ended(connection: Caller, status: int) -> None:
            nonlocal refused
            now = time.perf_counter()
            if status // 100 != 2:
                refused += 1
            times.append(now - connection.began)
            if now < until:
                connection.request = next(turn)
                connection.ask(now)
            else:
                connection.over.set_result(None)

        opened = [
            (
                await loop.create_connection(
                    lambda: Caller(next(turn), ended), "127.0.0.1", port
                )
            )[1]
            for _ in range(callers)
        ]
        began = time.perf_counter()
        until = began + seconds
        for connection in opened:
            connection.ask(time.perf_counter())
        await asyncio.gather(*(connection.over for connection in opened))
        took = time.perf_counter() - began
        for connection in opened:
            connection.transport.close()
        return Loaded(
            rate=len(times) / took,
            p50=percentile(times, 0.5),
            p99=percentile(times, 0.99),
            count=len(times),
            refused=refused,
        )

    async def drive_packed(
        self, port: int, packed: bytes, *, callers: int, seconds: float
    ) -> Loaded:
        """Drive with one request that zlib packed: the way here is narrow."""
        request = zlib.decompress(packed)
        return await self.drive(port, (request,), callers=callers, seconds=seconds)

    async def pace(
        self, port: int, requests: tuple[bytes, ...], *, rate: float, seconds: float
    ) -> tuple[int, float]:
        """Send `rate` requests a second, in turn, whatever the answers take.

        `STAMP` in a request becomes the instant of its sending. Returns how many were
        sent and the longest lag behind the plan, in seconds.
        """
        loop = asyncio.get_running_loop()
        idle: list[Caller] = []

        def ended(connection: Caller, status: int) -> None:
            if status // 100 != 2:
                raise AssertionError(status)
            idle.append(connection)

        began, sent, lag = time.perf_counter(), 0, 0.0
        while (now := time.perf_counter() - began) < seconds:
            while sent < now * rate:
                lag = max(lag, now - sent / rate)
                if not idle:
                    _, made = await loop.create_connection(
                        lambda: Caller(b"", ended), "127.0.0.1", port
                    )
                    idle.append(made)
                connection = idle.pop()
                stamp = b"%020d" % time.monotonic_ns()
                request = requests[sent % len(requests)]
                connection.request = request.replace(STAMP, stamp)
                connection.ask(time.perf_counter())
                sent += 1
                now = time.perf_counter() - began
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.2)
        for connection in idle:
            connection.transport.close()
        return sent, lag


class Caller(asyncio.Protocol):
    """One connection that has one request under way at most."""

    def __init__(self, request: bytes, ended: Callable[[Caller, int], None]) -> None:
        self.request = request
        self.ended = ended
        self.began = 0.0
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.Transport", transport)

    def ask(self, now: float) -> None:
        """Send the request."""
        self.began = now
        self.parser = httptools.HttpResponseParser(self)
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        """Parse."""
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Say what came."""
        self.ended(self, self.parser.get_status_code())

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail whoever waits."""
        if not self.over.done():
            self.over.set_exception(exc or ConnectionError("the server closed"))
            self.over.exception()


def post(port: int, path: str, body: bytes, *headers: str) -> bytes:
    """Return a whole request as bytes."""
    head = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body
