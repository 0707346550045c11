"""A PostgreSQL of the lab's own: made, crashed, replicated, promoted and ended.

It listens on a free port of 127.0.0.1 with a password that nobody else knows, and
writes to its disk as it would anywhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import asyncpg
from sqlalchemy.engine import URL

from tenure.clock import Clock, SystemClock
from tenure.errors import DatabaseUnavailable
from tenure.ids import token
from tenure.limits import CONNECT_SECONDS, LAB_LOOK_SECONDS, LAB_POSTGRES_SECONDS
from tenure.testing.lab.nodes import free_port
from tenure.testing.lab.waiting import until_seen

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tenure.testing.lab.programs import Programs

__all__ = ["Postgres", "Stop"]

USER: Final = "postgres"
DATABASE: Final = "tenure"
CONNECTIONS: Final = 100
TAIL: Final = 2_000  # characters of a log that an error shows
IN_STEP: Final = """
SELECT count(*) FROM pg_stat_replication
 WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')
"""
STREAMING: Final = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
OTHERS: Final = """
SELECT pid FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'
   AND pid <> pg_backend_pid() ORDER BY pid
"""


class Stop(Enum):
    """How a server is made to stop; the value is the signal that says so."""

    FAST = signal.SIGINT
    """Its clients are thrown out, what they wrote is flushed."""
    CRASH = signal.SIGQUIT
    """Every process of it ends at once, as at a power cut: it has to recover."""


class Postgres:
    """One server in one folder; `start` after a `stop` uses the same port."""

    def __init__(
        self, programs: Programs, home: Path, *, port: int | None = None, password: str
    ) -> None:
        self._programs: Final = programs
        self._home: Final = home
        self._data: Final = home / "data"
        self._log: Final = home / "log"
        self._password: Final = password
        self._process: subprocess.Popen[bytes] | None = None
        self._clock: Final[Clock] = SystemClock()
        self.port = free_port() if port is None else port

    @classmethod
    async def create(cls, programs: Programs, home: Path) -> Postgres:
        """Make a cluster below `home`, start it, and make a database in it.

        Raises DatabaseUnavailable when a program fails, with what it said.
        """
        await asyncio.to_thread(_own, home, programs)
        reachable = await asyncio.to_thread(programs.reachable, home)
        server = cls(reachable, home, password=token())
        try:
            await asyncio.to_thread(server.initialise)
            await server.start()
            await server.run(f'CREATE DATABASE "{DATABASE}"', database="postgres")
        except BaseException:
            await server.stop()
            raise
        return server

    def initialise(self) -> None:
        """Make the cluster; not from an event loop."""
        secret = self._home / "password"
        secret.write_text(self._password)
        secret.chmod(0o600)
        _give(secret, self._programs)
        self._program(
            "initdb",
            *("-D", str(self._data), "-U", USER, "-A", "scram-sha-256"),
            *("--pwfile", str(secret), "-E", "UTF8", "--locale", "C", "--no-sync"),
        )
        secret.unlink()

    @property
    def url(self) -> str:
        """The URL of the database that nodes use; the password is in it."""
        return URL.create(
            "postgresql",
            username=USER,
            password=self._password,
            host="127.0.0.1",
            port=self.port,
            database=DATABASE,
        ).render_as_string(hide_password=False)

    async def start(self) -> None:
        """Start it, and return when it answers."""
        self._process = await asyncio.to_thread(self._spawn)
        end = self._clock.monotonic() + LAB_POSTGRES_SECONDS
        while self._clock.monotonic() < end and self._process.poll() is None:
            with contextlib.suppress(DatabaseUnavailable):
                await self.run("SELECT 1", database="postgres")
                return
            await asyncio.sleep(LAB_LOOK_SECONDS)
        said = await asyncio.to_thread(self._log.read_text)
        raise DatabaseUnavailable(f"PostgreSQL did not start: {said[-TAIL:]}")

    def _spawn(self) -> subprocess.Popen[bytes]:
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": CONNECTIONS,
            "hot_standby": "on",
            "logging_collector": "off",
        }
        with self._log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - the operator's own PostgreSQL
                [
                    self._programs.path("postgres"),
                    *("-D", str(self._data)),
                    *(f"--{name}={value}" for name, value in settings.items()),
                ],
                user=self._programs.owner,
                cwd=self._home,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def stop(self, how: Stop = Stop.CRASH) -> None:
        """Stop it; returns when it is gone. Nothing when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how.value)
        try:
            await asyncio.to_thread(process.wait, LAB_POSTGRES_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()

    def crash_now(self) -> None:
        """Tell it to end and do not wait: for ends that must not be held up."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(Stop.CRASH.value)

    # --- a standby ---------------------------------------------------------------------

    async def standby(self, home: Path) -> Postgres:
        """Copy this server while it runs; return the copy, following synchronously.

        From then on a commit here waits for the copy's disk.
        """
        await asyncio.to_thread(_own, home, self._programs)
        copy = Postgres(self._programs, home, password=self._password)
        await asyncio.to_thread(
            self._program,
            "pg_basebackup",
            *("-D", str(copy._data), "-h", "127.0.0.1", "-p", str(self.port)),
            *("-U", USER, "-R", "-X", "stream", "-c", "fast", "--no-password"),
        )
        try:
            await copy.start()
            await self._wait(STREAMING)
            await self.run(
                "ALTER SYSTEM SET synchronous_standby_names = '*'", database="postgres"
            )
            await self.run("SELECT pg_reload_conf()", database="postgres")
            await self._wait(IN_STEP)
        except BaseException:
            await copy.stop()
            raise
        return copy

    async def promote(self, port: int) -> None:
        """Make this standby the primary that answers on `port`, once that is free."""
        await self.stop(Stop.FAST)
        self.port = port
        await self.start()
        await self.run(
            f"SELECT pg_promote(true, {LAB_POSTGRES_SECONDS:.0f})", database="postgres"
        )

    async def _wait(self, query: str) -> None:
        async def true() -> bool:
            return bool((await self.run(query, database="postgres"))[0][0])

        if not await until_seen(true, LAB_POSTGRES_SECONDS):
            raise DatabaseUnavailable("the standby does not follow its primary")

    # --- statements --------------------------------------------------------------------

    async def run(self, statement: str, *values: Any, database: str = DATABASE) -> Any:
        """Run a statement as the server's owner; return its rows.

        Raises DatabaseUnavailable when the server does not take it now.
        """
        try:
            connection = await asyncpg.connect(
                host="127.0.0.1",
                port=self.port,
                user=USER,
                password=self._password,
                database=database,
                timeout=round(CONNECT_SECONDS),
            )
        except (OSError, TimeoutError, asyncpg.PostgresError) as error:
            raise DatabaseUnavailable(f"PostgreSQL does not answer: {error}") from None
        try:
            return await connection.fetch(statement, *values)
        finally:
            await connection.close(timeout=CONNECT_SECONDS)

    async def client_backends(self) -> list[int]:
        """Return the process of each connection to the nodes' database."""
        rows = await self.run(OTHERS, DATABASE, database="postgres")
        return [int(row[0]) for row in rows]

    async def terminate(self, backends: list[int]) -> None:
        """End these connections, whatever they are doing."""
        await self.run(
            "SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) AS pid",
            backends,
            database="postgres",
        )

    def _program(self, name: str, *arguments: str) -> None:
        done = subprocess.run(  # noqa: S603 - the operator's own PostgreSQL
            [self._programs.path(name), *arguments],
            user=self._programs.owner,
            cwd=self._home,
            env={**_environment(), "PGPASSWORD": self._password},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LAB_POSTGRES_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            said = (done.stdout + done.stderr)[-TAIL:]
            raise DatabaseUnavailable(f"{name} failed: {said}")


def _environment() -> Mapping[str, str]:
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


def _own(home: Path, programs: Programs) -> None:
    home.mkdir(mode=0o755)
    _give(home, programs)


def _give(path: Path, programs: Programs) -> None:
    if programs.owner is not None:
        shutil.chown(path, programs.owner)
