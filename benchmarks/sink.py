"""A receiver in its own process: fast, and it knows when each request arrived.

A request to `/wait/MS` is answered after so many milliseconds, any other one at once. A
body that holds `"t":"N"` (nanoseconds of the monotonic clock, which all processes of a
machine share) is timed from that instant to its arrival.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Final, cast

import httptools

from benchmarks.processes import Actor

ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
)
_SENT: Final = re.compile(rb'"t":"(\d+)"')
_WAIT: Final = re.compile(rb"/wait/(\d+)")


class Sink(Actor):
    """Answers 200 and counts."""

    def __init__(self) -> None:
        self.count = 0
        self.live = 0
        self.live_max = 0
        self.waited = 0
        self.delays: list[float] = []
        self.arrived = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def listen(self) -> int:
        """Begin to listen on loopback; return the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", 0, backlog=4096
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def reset(self) -> None:
        """Forget what was counted."""
        self.count = self.live_max = self.waited = 0
        self.delays = []

    async def counted(self) -> tuple[int, int, int]:
        """Return (requests, those of `/wait`, the most that were open at once)."""
        return self.count, self.waited, self.live_max

    async def until(self, count: int, seconds: float, *, timed: bool = False) -> int:
        """Wait for so many requests, `seconds` at most; return how many there were.

        With `timed` only those count that hold the instant of their sending.
        """
        until = time.monotonic() + seconds

        def found() -> int:
            return len(self.delays) if timed else self.count

        while found() < count and (left := until - time.monotonic()) > 0:
            self.arrived.clear()
            try:
                async with asyncio.timeout(left):
                    await self.arrived.wait()
            except TimeoutError:
                break
        return found()

    async def taken(self) -> list[float]:
        """Return the seconds from sent to arrived of each timed request."""
        return self.delays

    async def aclose(self) -> None:
        """Stop to listen."""
        if self._server is not None:
            self._server.close()


class _Connection(asyncio.Protocol):
    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.timed = False
        self.wait = 0.0
        self.sent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        found = _WAIT.search(url)
        self.wait = int(found[1]) / 1000 if found else 0.0
        self.sent = 0

    def on_body(self, body: bytes) -> None:
        if found := _SENT.search(body):
            self.sent = int(found[1])

    def on_message_complete(self) -> None:
        sink = self.sink
        sink.count += 1
        sink.live += 1
        sink.live_max = max(sink.live_max, sink.live)
        sink.arrived.set()
        if self.wait:
            sink.waited += 1
            asyncio.get_running_loop().call_later(self.wait, self.answer)
            return
        if self.sent:
            sink.delays.append((time.monotonic_ns() - self.sent) / 1e9)
        self.answer()

    def answer(self) -> None:
        self.sink.live -= 1
        if not self.transport.is_closing():
            self.transport.write(ANSWER)
