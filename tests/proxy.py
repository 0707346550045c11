"""A TCP proxy before PostgreSQL that cuts connections where a test says."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.databases import PostgresServer


class Proxy:
    """Stands between a client and the server; can swallow the answer to COMMIT.

    `mode` is "pass", "cut at commit" (the server gets COMMIT, the client only a closed
    connection), "cut before commit" (the server never gets it), "silent" (nothing is
    passed on any more, and nothing is closed), "deaf" (connections made from then on
    get no notifications, as behind a transaction pooler) or "refuse" (they are closed).
    """

    def __init__(self, port: int) -> None:
        self.mode = "pass"
        self.commits = 0
        self.refused = 0
        self.port = 0
        self._to = port
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(
        self, reader: asyncio.StreamReader, back: asyncio.StreamWriter
    ) -> None:
        if self.mode == "refuse":
            self.refused += 1
            back.transport.abort()
            return
        answers, server = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += [back, server]
        with suppress(OSError):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, server, back))
                group.create_task(
                    self._return_but_notices(answers, back)
                    if self.mode == "deaf"
                    else self._return(answers, back)
                )

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
    ) -> None:
        while data := await reader.read(65536):
            if _is_commit(data):
                self.commits += 1
                if self.mode == "cut before commit":
                    back.transport.abort()
                    break
            if self.mode != "silent":
                server.write(data)
        server.close()

    async def _return(
        self, answers: asyncio.StreamReader, back: asyncio.StreamWriter
    ) -> None:
        while data := await answers.read(65536):
            if self.mode == "cut at commit" and b"C\x00\x00\x00\x0bCOMMIT\x00" in data:
                back.transport.abort()
                return
            if self.mode != "silent":
                back.write(data)
        back.close()

    async def _return_but_notices(
        self, answers: asyncio.StreamReader, back: asyncio.StreamWriter
    ) -> None:
        head = await answers.read(1)
        if head == b"N":  # no TLS here: an answer without a length
            back.write(head)
            head = b""
        with suppress(asyncio.IncompleteReadError):
            while True:
                head += await answers.readexactly(5 - len(head))
                length = int.from_bytes(head[1:], "big")
                message = head + await answers.readexactly(length - 4)
                if message[:1] != b"A":
                    back.write(message)
                head = b""
        back.close()

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


def _is_commit(data: bytes) -> bool:
    text = b"COMMIT;\x00"
    return data.startswith(b"Q" + struct.pack("!i", 4 + len(text)) + text)


@asynccontextmanager
async def proxied(server: PostgresServer) -> AsyncGenerator[Proxy]:
    if server.port is None:
        pytest.skip("the server given is not ours, so nothing can stand before it")
    proxy = Proxy(server.port)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        proxy.close()
        listener.close()
