"""Raw receivers, polite and hostile, on real sockets of the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tenure.outbox.http import Answer, Policy, Request, parse_url

if TYPE_CHECKING:
    import ssl

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Peer:
    """The server's side of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    sent: int = 0

    async def request(self) -> bytes:
        """Read one whole request; empty at the client's end."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            return error.partial
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                return head + await self.reader.readexactly(int(value))
        return head

    async def write(self, data: bytes) -> None:
        """Write and wait until the kernel has taken it."""
        self.writer.write(data)
        await self.writer.drain()
        self.sent += len(data)

    def reset(self) -> None:
        """End the connection with RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Return when the client has closed."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Script = Callable[[Peer], Awaitable[None]]


@dataclass
class Server:
    """A listening receiver and what it saw."""

    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list[bytes])
    sent: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


@contextlib.asynccontextmanager
async def serving(
    script: Script, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Server]:
    """Run `script` for each connection; every request it reads is kept."""
    server = Server()
    tasks: set[asyncio.Task[None]] = set()

    async def connected(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        server.connections += 1
        peer = _Recording(reader, writer)
        peer.server = server
        try:
            await script(peer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            server.sent += peer.sent
            server.ended.set()
            tasks.discard(task)
            writer.close()

    listener = await asyncio.start_server(connected, host, 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listener.wait_closed()


class _Recording(Peer):
    server: Server

    async def request(self) -> bytes:
        data = await super().request()
        if data:
            self.server.requests.append(data)
        return data


def answering(*answers: bytes) -> Script:
    """Answer each request with these bytes, one piece after the other."""

    async def script(peer: Peer) -> None:
        while await peer.request():
            for answer in answers:
                await peer.write(answer)

    return script


def answering_then_close(*answers: bytes) -> Script:
    """Answer one request, then end the connection in order."""

    async def script(peer: Peer) -> None:
        await peer.request()
        for answer in answers:
            await peer.write(answer)

    return script


class Names:
    """A resolver that a test scripts; it counts what it was asked."""

    def __init__(self, **names: list[str]) -> None:
        self.names = {name.replace("_", "."): value for name, value in names.items()}
        self.asked: list[str] = []

    async def resolve(self, host: str) -> Answer:
        self.asked.append(host)
        found = self.names.get(host)
        if found is None:
            return Answer(error="Domain name not found")
        addresses = tuple(ipaddress.ip_address(text) for text in found)
        return Answer(addresses=addresses, ttl_seconds=30)

    async def aclose(self) -> None:
        pass


def policy(**changes: object) -> Policy:
    """A policy that lets the loopback be dialled."""
    fields: dict[str, object] = {"deadline_seconds": 5.0, "allow_networks": LOOPBACK}
    return Policy(**(fields | changes))  # type: ignore[arg-type]


def post(
    url: str,
    body: bytes = b"{}",
    headers: tuple[tuple[bytes, bytes], ...] = (
        (b"content-type", b"application/json"),
    ),
) -> Request:
    """A POST to a URL."""
    return Request(method="POST", url=parse_url(url), headers=headers, body=body)


def closed_port() -> int:
    """A port of the loopback that refuses, on both families."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
