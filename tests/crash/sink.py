"""A receiver that counts what reaches it, and knows what it is answering just now."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tenure.clock import Clock, SystemClock


@dataclass(slots=True, kw_only=True)
class Sink:
    """An HTTP server on loopback that answers 204 after `delay` seconds.

    `seen` counts requests by (message id, path): one that was read to its end counts,
    whether or not its answer could still be delivered.
    """

    delay: float = 0.0
    refusing: frozenset[str] = frozenset()
    """Paths where the first request of each message is answered 503."""
    seen: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    attempts: list[tuple[float, str, str, int]] = field(
        default_factory=list[tuple[float, str, str, int]]
    )
    running: int = 0
    clock: Clock = field(default_factory=SystemClock)
    _server: asyncio.Server | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    @property
    def total(self) -> int:
        return sum(self.seen.values())

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.close()
        await self._server.wait_closed()

    async def wait_distinct(self, count: int, seconds: float) -> None:
        """Wait until `count` different (message, path) pairs have arrived."""
        async with asyncio.timeout(seconds):
            while len(self.seen) < count:
                self._changed.clear()
                await self._changed.wait()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._open.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await self._answer(reader, writer)
        self._open.discard(writer)
        writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        headers = {
            name.lower(): value.strip()
            for line in lines
            if line
            for name, _, value in (line.partition(":"),)
        }
        await reader.readexactly(int(headers.get("content-length", "0")))
        path = first.split(" ")[1]
        message = headers["webhook-id"]
        self.seen[message, path] += 1
        number = int(headers["tenure-attempt"])
        self.attempts.append((self.clock.monotonic(), message, path, number))
        self._changed.set()
        self.running += 1
        try:
            if self.delay:
                await self.clock.sleep(self.delay)
            first = self.seen[message, path] == 1
            status = b"503 No" if path in self.refusing and first else b"204 Yes"
            writer.write(
                b"HTTP/1.1 %b\r\n%b\r\n"
                % (status, b"" if status[:1] == b"2" else b"content-length: 0\r\n")
            )
            await writer.drain()
        finally:
            self.running -= 1
