"""Who asks one thing at a time: a commit, a request; light enough to start at once."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from typing import Any, Final

import asyncpg

from benchmarks.load import STAMP, Caller
from benchmarks.processes import Actor

PAUSE_SECONDS: Final = 0.02
TABLE: Final = "CREATE TABLE IF NOT EXISTS bench_commit (at bigint)"


class Asker(Actor):
    """Commits and sends, one at a time, over connections that are open."""

    def __init__(self) -> None:
        self._connections: dict[int, Caller] = {}
        self._commit: Any = None

    async def connect(self, url: str) -> None:
        """Open the database of the bare commits."""
        if url.startswith("sqlite"):
            path = url.removeprefix("sqlite:///")
            raw = sqlite3.connect(path, isolation_level=None)
            raw.execute("PRAGMA synchronous = FULL")
            raw.execute(TABLE)
            self._commit = lambda: raw.execute("INSERT INTO bench_commit VALUES (1)")
            return
        connection = await asyncpg.connect(url)
        await connection.execute(TABLE)
        insert = await connection.prepare("INSERT INTO bench_commit VALUES (1)")
        self._commit = insert.fetch

    async def commit(self) -> float:
        """Commit one row; return the seconds."""
        await asyncio.sleep(PAUSE_SECONDS)
        began = time.perf_counter()
        made = self._commit()
        if asyncio.iscoroutine(made):
            await made
        return time.perf_counter() - began

    async def send(self, port: int, request: bytes) -> float:
        """Send a request and wait for its answer; return the seconds until that."""
        if port not in self._connections:
            loop = asyncio.get_running_loop()
            _, made = await loop.create_connection(
                lambda: Caller(b"", _ended), "127.0.0.1", port
            )
            self._connections[port] = made
        connection = self._connections[port]
        connection.over = asyncio.get_running_loop().create_future()
        await asyncio.sleep(PAUSE_SECONDS)
        connection.request = request.replace(STAMP, b"%020d" % time.monotonic_ns())
        began = time.perf_counter()
        connection.ask(began)
        await connection.over
        return time.perf_counter() - began


def _ended(connection: Caller, status: int) -> None:
    if status // 100 == 2:
        connection.over.set_result(None)
    else:
        connection.over.set_exception(RuntimeError(f"status {status}"))
