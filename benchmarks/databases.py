"""Databases to measure on: a PostgreSQL server with fsync on, SQLite files, copies.

The server is the one of the tests (`TENURE_TEST_POSTGRES`, else a server of our own from
the wheel), but durable. Everything is removed at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import asyncpg
from sqlalchemy.engine import make_url

from tenure.store.backend import Backend, open_backend
from tests.databases import PostgresServer, asyncpg_dsn, running_postgres

Dialect = Literal["postgresql", "sqlite"]
DIALECTS: Final[tuple[Dialect, ...]] = ("postgresql", "sqlite")
SHOWN: Final = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A database as it was once: where it belongs, and under which name it is kept."""

    url: str
    name: str


@dataclass(slots=True, kw_only=True)
class Databases:
    """Where fresh databases come from."""

    server: PostgresServer
    folder: Path
    made: list[str] = field(default_factory=list[str])

    async def fresh(self, dialect: Dialect) -> str:
        """Return the URL of a new database with the newest schema."""
        url = await self.empty(dialect)
        async with opened(url) as backend:
            await backend.migrate(post=True)
        return url

    async def empty(self, dialect: Dialect) -> str:
        """Return the URL of a new database with nothing in it."""
        name = self._name()
        if dialect == "sqlite":
            return f"sqlite:///{self.folder / name}.db"
        await self.server.run(f'CREATE DATABASE "{name}" TEMPLATE template0')
        self.made.append(name)
        return self.server.database(name)

    async def keep(self, url: str) -> Kept:
        """Remember a database, which nobody has open, as it is now."""
        name = self._name()
        if url.startswith("sqlite"):
            path = Path(url.removeprefix("sqlite:///"))
            await asyncio.to_thread(_fold_log, path)
            await asyncio.to_thread(shutil.copyfile, path, path.with_suffix(".kept"))
        else:
            await self._copy(str(make_url(url).database), name)
            self.made.append(name)
        return Kept(url=url, name=name)

    async def restore(self, kept: Kept) -> str:
        """Make a database what it was, under its own name; return its URL.

        Under another name Tenure would take it for a copy, which sends nothing.
        """
        await self.remove(kept.url)
        if kept.url.startswith("sqlite"):
            path = Path(kept.url.removeprefix("sqlite:///"))
            await asyncio.to_thread(shutil.copyfile, path.with_suffix(".kept"), path)
        else:
            name = str(make_url(kept.url).database)
            await self._copy(kept.name, name)
            self.made.append(name)
        return kept.url

    async def _copy(self, source: str, target: str) -> None:
        await self.server.run(f'CREATE DATABASE "{target}" TEMPLATE "{source}"')

    async def remove(self, url: str) -> None:
        """Remove a database that is not needed any more."""
        if url.startswith("sqlite"):
            for end in ("", "-wal", "-shm"):
                Path(url.removeprefix("sqlite:///") + end).unlink(missing_ok=True)
            return
        name = str(make_url(url).database)
        await self.server.run(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self.made.remove(name)

    async def ask(self, text: str, url: str | None = None) -> Any:
        """Return the first value of a query on the server, or on one database."""
        dsn = asyncpg_dsn(self.server.url if url is None else url)
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(text)
        finally:
            await connection.close()

    async def settle(self) -> None:
        """Let the server write what is dirty now, not in the middle of a round."""
        with contextlib.suppress(asyncpg.InsufficientPrivilegeError):
            await self.server.run("CHECKPOINT")

    @staticmethod
    def _name() -> str:
        return f"bench_{uuid.uuid4().hex[:12]}"


def dsn_of(url: str) -> str:
    """Return a database's URL as its driver reads it."""
    return url if url.startswith("sqlite") else asyncpg_dsn(url)


def _fold_log(path: Path) -> None:
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()


@contextlib.contextmanager
def databases() -> Generator[Databases]:
    """Run a durable server, or use the one that is named, with a folder beside it."""
    with contextlib.ExitStack() as exits:
        url = os.environ.get("TENURE_TEST_POSTGRES")
        server = (
            PostgresServer(url=make_url(url), version="as given")
            if url
            else exits.enter_context(running_postgres(fsync=True))
        )
        folder = exits.enter_context(
            tempfile.TemporaryDirectory(prefix="tenure-bench-")
        )
        made = Databases(server=server, folder=Path(folder))
        try:
            yield made
        finally:
            drops = [f'DROP DATABASE IF EXISTS "{n}" WITH (FORCE)' for n in made.made]
            asyncio.run(server.run(*drops))


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncGenerator[Backend]:
    """Open a database as a process would, and close it."""
    backend = await open_backend(url)
    try:
        yield backend
    finally:
        await backend.aclose()
