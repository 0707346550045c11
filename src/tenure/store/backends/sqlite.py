"""SQLite through the standard library, off the event loop.

One thread writes, two read; a third connection serves the blocking pair. WAL lets
readers see a snapshot while somebody writes. The write lock belongs to one process at a
time: `BEGIN IMMEDIATE` is tried again after a random pause, because SQLite's own busy
handler was measured to starve a process for seconds.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import QueuePool

from tenure.clock import US, Clock, SystemClock
from tenure.errors import ConfigInvalid, DatabaseUnavailable, InvariantViolated
from tenure.ids import jitter
from tenure.limits import (
    SQLITE_READERS,
    SQLITE_RETRY_MAX_SECONDS,
    SQLITE_RETRY_MIN_SECONDS,
    SQLITE_SWITCH_SECONDS,
    SQLITE_WAIT_SECONDS,
)
from tenure.store.revisions import is_newest, is_served, load_apply
from tenure.store.tx import Tx

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sqlalchemy.engine import URL, Connection, Engine
    from sqlalchemy.engine.interfaces import DBAPIConnection

    from tenure.store.contract import BackendSettings
    from tenure.store.tx import Dialect

__all__ = ["SqliteBackend"]

T = TypeVar("T")

_UNAVAILABLE: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOMEM,
    }
)


class SqliteBackend:
    """One SQLite file, shared with other processes on this host."""

    def __init__(self, url: URL, settings: BackendSettings) -> None:
        self.clock_offset_us = settings.clock_offset_us
        self._url = url
        self._time = _ForwardTime(settings.clock)
        self._path = Path(url.database or "").absolute()
        level = settings.synchronous
        self._writers = _engine(self._path, connections=2, synchronous=level)
        self._readers = _engine(
            self._path,
            connections=SQLITE_READERS + 1,
            synchronous=level,
            query_only=True,
        )
        self._write_thread = ThreadPoolExecutor(1, "tenure-sqlite-write")
        self._read_threads = ThreadPoolExecutor(SQLITE_READERS, "tenure-sqlite-read")
        self._blocking = threading.Lock()
        self._closed = False

    @property
    def dialect(self) -> Dialect:
        """Which SQL it speaks."""
        return "sqlite"

    @property
    def url(self) -> URL:
        """Where it is."""
        return self._url

    async def open(self) -> None:
        """Make the file when it is missing, and look once into it.

        From then on threads of this interpreter wait less for one another.
        """
        sys.setswitchinterval(min(sys.getswitchinterval(), SQLITE_SWITCH_SECONDS))
        await self._on(self._write_thread, self._open)

    async def aclose(self) -> None:
        """Let running transactions end, then close every connection."""
        await asyncio.to_thread(self._close)

    async def migrate(self, *, post: bool = False) -> list[str]:
        """Bring the schema up to date in one transaction."""
        if await self.read(is_newest if post else is_served):
            return []
        apply = await asyncio.to_thread(load_apply, post=post)
        return await self.write(apply)

    async def write(self, fn: Callable[[Tx], T], *, retry: bool = True) -> T:
        """Run `fn` under BEGIN IMMEDIATE on the writer's thread and commit it."""
        del retry  # once BEGIN IMMEDIATE has the lock, nothing can be in the way
        return await self._on(self._write_thread, partial(self._write, fn))

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """Run `fn` over one snapshot on a reader's thread."""
        return await self._on(self._read_threads, partial(self._read, fn))

    def write_blocking(self, fn: Callable[[Tx], T], *, retry: bool = True) -> T:
        """As `write`, on the calling thread and a connection of its own."""
        del retry
        _refuse_loop()
        with self._blocking:
            self._refuse_closed()
            return self._write(fn)

    def read_blocking(self, fn: Callable[[Tx], T]) -> T:
        """As `read`, on the calling thread and a connection of its own."""
        _refuse_loop()
        self._refuse_closed()
        return self._read(fn)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise DatabaseUnavailable("the database was closed")

    async def _on(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            running = asyncio.get_running_loop().run_in_executor(threads, work)
        except RuntimeError as error:  # the threads have been shut down
            raise DatabaseUnavailable("the database was closed") from error
        return await running

    def _open(self) -> None:
        try:
            # SQLite gives the -wal and -shm files the mode of the database.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        except IsADirectoryError:
            raise ConfigInvalid(
                f"{self._path} is a folder: name a file in it"
            ) from None
        except OSError as error:
            raise DatabaseUnavailable(
                f"cannot open {self._path}: {error.strerror}"
            ) from error
        self._write(self._look)

    def _look(self, tx: Tx) -> None:
        mode = tx.scalar("PRAGMA journal_mode")
        if mode != "wal":
            raise ConfigInvalid(
                f"{self._path} cannot use a write-ahead log (it says {mode}): "
                "put the file on a local disk"
            )
        if tx.scalar("SELECT 1 FROM sqlite_master WHERE name = 'node'"):
            self._time.at_least(tx.scalar("SELECT max(beat_at) FROM node") or 0)

    def _close(self) -> None:
        self._write_thread.shutdown()
        self._read_threads.shutdown()
        with self._blocking:
            self._closed = True
            self._writers.dispose()
            self._readers.dispose()

    def _write(self, fn: Callable[[Tx], T]) -> T:
        with _connected(self._writers) as conn:
            _when_free(
                lambda: conn.exec_driver_sql("BEGIN IMMEDIATE"), SQLITE_WAIT_SECONDS
            )
            tx = Tx(conn, dialect="sqlite", read_now=self._now)
            try:
                result = fn(tx)
                tx.refuse_hidden_failure()
                _when_free(lambda: conn.exec_driver_sql("COMMIT"), SQLITE_WAIT_SECONDS)
            except BaseException:
                with suppress(DBAPIError):
                    conn.rollback()
                raise
            return result

    def _read(self, fn: Callable[[Tx], T]) -> T:
        with _connected(self._readers) as conn:
            conn.exec_driver_sql("BEGIN")
            _when_free(
                lambda: conn.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1"),
                SQLITE_WAIT_SECONDS,
            )
            return fn(Tx(conn, dialect="sqlite", read_now=self._now))

    def _now(self, _: Tx) -> int:
        return self._time.now() + self.clock_offset_us


class _ForwardTime:
    """A wall clock that never goes back for the threads of this process.

    Where the wall clock does, time goes on at its own pace: standing still would make
    everything that is due later late by the whole step.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0
        self._at = clock.monotonic()
        self._guard = threading.Lock()

    def at_least(self, now: int) -> None:
        with self._guard:
            self._last = max(self._go_on(), now)

    def now(self) -> int:
        with self._guard:
            return self._go_on()

    def _go_on(self) -> int:
        # The wall first, and rounded down: time must not run ahead of it little by
        # little, because it would never come back.
        wall, at = self._clock.wall_us(), self._clock.monotonic()
        self._last = max(self._last + int((at - self._at) * US), wall)
        self._at = at
        return self._last


def _engine(
    path: Path, *, connections: int, synchronous: str, query_only: bool = False
) -> Engine:
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        hide_parameters=True,  # errors are logged: no payloads, no secrets in them
        poolclass=QueuePool,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=SQLITE_WAIT_SECONDS,
        connect_args={
            "isolation_level": None,  # BEGIN is ours
            "timeout": 0.0,  # and so is waiting for the lock
            "check_same_thread": False,
            "cached_statements": 512,
        },
    )

    @event.listens_for(engine, "connect")
    def _set_up(raw: DBAPIConnection, _: object) -> None:  # pyright: ignore[reportUnusedFunction]
        connection = cast("sqlite3.Connection", raw)
        run = connection.execute
        _when_free(lambda: run("PRAGMA journal_mode = WAL"), SQLITE_WAIT_SECONDS)
        run(f"PRAGMA synchronous = {synchronous}")
        run("PRAGMA foreign_keys = ON")
        run("PRAGMA temp_store = MEMORY")
        if query_only:
            run("PRAGMA query_only = ON")

    return engine


@contextmanager
def _connected(engine: Engine) -> Generator[Connection]:
    """Lend a connection; what the database cannot do becomes DatabaseUnavailable."""
    try:
        with engine.connect() as conn:
            yield conn
    except PoolTimeoutError as error:
        raise DatabaseUnavailable("every connection to the file is busy") from error
    except DBAPIError as error:
        _translate(error.orig, error)
    except sqlite3.Error as error:
        _translate(error, error)


def _translate(fault: BaseException | None, error: Exception) -> NoReturn:
    code = _primary_code(fault)
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        raise DatabaseUnavailable(
            "another process held the write lock of the file too long"
        ) from error
    if code in _UNAVAILABLE:
        raise DatabaseUnavailable(f"the database cannot now: {fault}") from error
    if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
        raise ConfigInvalid(
            f"the file is no sound SQLite database ({fault}): restore it from a backup,"
            " or name another with TENURE_DATABASE_URL"
        ) from error
    raise error


def _when_free(work: Callable[[], Any], bound_seconds: float) -> None:
    """Do `work` again while another process holds the lock, at most so long."""
    clock = SystemClock()
    until = clock.monotonic() + bound_seconds
    pause = threading.Event()
    while True:
        try:
            work()
        except (DBAPIError, sqlite3.Error) as error:
            fault = error.orig if isinstance(error, DBAPIError) else error
            if _primary_code(fault) != sqlite3.SQLITE_BUSY:
                raise
            if clock.monotonic() >= until:
                raise
            pause.wait(jitter(SQLITE_RETRY_MIN_SECONDS, SQLITE_RETRY_MAX_SECONDS))
        else:
            return


def _primary_code(fault: BaseException | None) -> int | None:
    code = getattr(fault, "sqlite_errorcode", None)
    return None if code is None else cast("int", code) & 0xFF


def _refuse_loop() -> None:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise InvariantViolated("a blocking transaction would stop the event loop")
