"""PostgreSQL through asyncpg, on the event loop; threads get a loop of their own.

Each write transaction starts with one statement that sets the plan guard (hot
statements must never be planned with sequential scans: such a plan, cached while a table
is empty, costs ten times for as long as the connection lives), the lock and statement
timeouts, durable commits where the server's default is weaker, and reads the clock.
Everything is set for the transaction only, so a transaction pooler may stand between.
Reads are planned anew each time instead, for the same reason.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from tenure.errors import DatabaseUnavailable, InvariantViolated
from tenure.ids import jitter, token
from tenure.limits import (
    BLOCKING_STATEMENT_SECONDS,
    COMMIT_RETRIES_MAX,
    CONNECT_SECONDS,
    IDLE_IN_TRANSACTION_SECONDS,
    LOCK_TIMEOUT_SECONDS,
    MIGRATION_LOCK_SECONDS,
    MIGRATION_PAUSE_SECONDS,
    MIGRATION_SECONDS,
    MIGRATION_WAIT_SECONDS,
    POSTGRESQL_POOL,
    RETRY_PAUSE_MAX_SECONDS,
    RETRY_PAUSE_MIN_SECONDS,
    STATEMENT_SECONDS,
)
from tenure.store.contract import BackendSettings, CommitUnknown, RowsLocked
from tenure.store.revisions import is_newest, is_served, load_apply
from tenure.store.tx import POSTGRESQL_CLOCK, Tx, postgresql_now

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sqlalchemy.engine import URL, Connection

    from tenure.store.tx import Dialect

__all__ = ["PostgresqlBackend"]

T = TypeVar("T")

# Somebody else was in the way, and nothing was committed.
_RETRYABLE: Final = frozenset(
    {
        "40001",  # serialization_failure
        "40P01",  # deadlock_detected
        "55P03",  # lock_not_available: lock_timeout
    }
)
_UNAVAILABLE: Final = frozenset(
    {
        "25006",  # read_only_sql_transaction: a standby, or a server set read-only
        "57014",  # query_canceled: statement_timeout
        "57P01",  # admin_shutdown
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now
        "57P05",  # idle_session_timeout
        "25P03",  # idle_in_transaction_session_timeout
        "25P04",  # transaction_timeout
    }
)
_UNAVAILABLE_CLASSES: Final = frozenset(
    {
        "53",  # insufficient resources: disk full, out of memory, too many connections
        "58",  # system error: the server's disk fails
    }
)
_FAULTS: Final = (DBAPIError, OSError, TimeoutError)
"""What SQLAlchemy over asyncpg lets through when the server or the way to it fails."""
# The server answered and then closed the connection.
_CLOSED_BY_SERVER: Final = frozenset({"57P01", "57P02", "57P05", "25P03", "25P04"})

_SETTINGS: Final = ", ".join(
    f"set_config('{name}', '{value}', true)"
    for name, value in {
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "lock_timeout": f"{LOCK_TIMEOUT_SECONDS * 1000:.0f}",
        "statement_timeout": f"{STATEMENT_SECONDS * 1000:.0f}",
        "idle_in_transaction_session_timeout": (
            f"{IDLE_IN_TRANSACTION_SECONDS * 1000:.0f}"
        ),
    }.items()
)
# "local" and "off" do not wait for the disk, or not for the standby: raise them only.
_PROLOGUE: Final = (
    f"SELECT {POSTGRESQL_CLOCK}, {_SETTINGS}, CASE WHEN"
    " current_setting('synchronous_commit') IN ('off', 'local')"
    " THEN set_config('synchronous_commit', 'on', true) END"
)
# Planned anew each time, for the tables as they are: what is read ranges from one key to
# all rows, so the guard's answer for hot statements would be the wrong one for lists.
_READ_PROLOGUE: Final = (
    f"SELECT {POSTGRESQL_CLOCK},"
    " set_config('plan_cache_mode', 'force_custom_plan', true),"
    f" set_config('statement_timeout', '{STATEMENT_SECONDS * 1000:.0f}', true)"
)


class PostgresqlBackend:
    """One PostgreSQL database, through at most `CONNECTIONS` connections."""

    def __init__(self, url: URL, settings: BackendSettings) -> None:
        self.clock_offset_us = settings.clock_offset_us
        self._clock: Final = None if settings.server_time else settings.clock
        self._url = url
        self._engine = _engine(url, pool_size=POSTGRESQL_POOL)
        self._thread: _LoopThread | None = None
        self._thread_guard = threading.Lock()
        self._closed = False

    @property
    def dialect(self) -> Dialect:
        """Which SQL it speaks."""
        return "postgresql"

    @property
    def url(self) -> URL:
        """Where it is."""
        return self._url

    async def open(self) -> None:
        """Connect once; raise DatabaseUnavailable when nobody answers."""
        await self.read(lambda tx: tx.scalar("SELECT 1"))

    async def aclose(self) -> None:
        """Close every connection."""
        self._closed = True
        with self._thread_guard:
            thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.stop)
        await self._engine.dispose()

    async def migrate(self, *, post: bool = False) -> list[str]:
        """Bring the schema up to date on a connection of its own."""
        if await self.read(is_newest if post else is_served):
            return []
        apply = await asyncio.to_thread(load_apply, post=post)
        engine = _engine(self._url, pool_size=0, statement_seconds=MIGRATION_SECONDS)
        try:
            return await self._again_for_long(engine, apply)
        finally:
            await engine.dispose()

    async def _again_for_long(self, engine: AsyncEngine, fn: Callable[[Tx], T]) -> T:
        """Run a migration; tables in use are asked for shortly, again and again.

        Who waits for such a lock holds up everybody behind, so no try waits for long.
        """
        waited = 0.0
        while True:
            try:
                return await self._again(engine, fn, retry=False)
            except RowsLocked as locked:
                if waited >= MIGRATION_WAIT_SECONDS:
                    raise RowsLocked(
                        "the schema cannot be changed: its tables stayed in use for"
                        f" {MIGRATION_WAIT_SECONDS:.0f} s; end the long transaction that"
                        " pg_stat_activity shows, and start again"
                    ) from locked
            pause = jitter(MIGRATION_PAUSE_SECONDS / 2, MIGRATION_PAUSE_SECONDS)
            waited += pause + MIGRATION_LOCK_SECONDS
            await asyncio.sleep(pause)

    async def write(self, fn: Callable[[Tx], T], *, retry: bool = True) -> T:
        """Run `fn` in a transaction of its own and commit it."""
        return await self._again(self._engine, fn, retry=retry)

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """Run `fn` over one snapshot that it cannot write to."""
        return await self._read(self._engine, fn)

    def write_blocking(self, fn: Callable[[Tx], T], *, retry: bool = True) -> T:
        """As `write`, from a thread without a loop, on a connection of its own."""
        thread = self._blocking()
        return thread.run(self._again(thread.engine, fn, retry=retry))

    def read_blocking(self, fn: Callable[[Tx], T]) -> T:
        """As `read`, from a thread without a loop, on a connection of its own."""
        thread = self._blocking()
        return thread.run(self._read(thread.engine, fn))

    def _blocking(self) -> _LoopThread:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise InvariantViolated("a blocking transaction would stop the event loop")
        with self._thread_guard:
            self._refuse_closed()
            if self._thread is None:
                self._thread = _LoopThread(
                    partial(
                        _engine,
                        self._url,
                        pool_size=1,
                        statement_seconds=BLOCKING_STATEMENT_SECONDS,
                    )
                )
            return self._thread

    def _refuse_closed(self) -> None:
        if self._closed:
            raise DatabaseUnavailable("the database was closed")

    async def _again(
        self, engine: AsyncEngine, fn: Callable[[Tx], T], *, retry: bool
    ) -> T:
        self._refuse_closed()
        stale = False
        for number in range(1, COMMIT_RETRIES_MAX + 1):
            try:
                return await self._once(engine, fn)
            except DBAPIError as error:
                if not retry or not _may_retry(error):
                    _translate(error)
                if number == COMMIT_RETRIES_MAX:
                    raise RowsLocked(
                        f"rows stayed locked by others through {number} attempts"
                    ) from error
            except _Lost as lost:
                # The pool held a connection that the server had closed long ago;
                # nothing was committed, so a fresh one may try once.
                if stale or (lost.ran and not retry):
                    raise DatabaseUnavailable(lost.message) from lost
                stale = True
            pause = min(
                RETRY_PAUSE_MAX_SECONDS, RETRY_PAUSE_MIN_SECONDS * 2 ** (number - 1)
            )
            await asyncio.sleep(jitter(pause / 2, pause))
        raise InvariantViolated("a bounded retry neither returned nor raised")

    async def _once(self, engine: AsyncEngine, fn: Callable[[Tx], T]) -> T:
        conn = await _connect(engine)
        started = asyncio.Event()
        try:
            try:
                result = await conn.run_sync(self._body, fn, started)
            except _FAULTS as error:
                await _lost_or_raise(conn, error, ran=started.is_set())
            try:
                await conn.commit()
            except _FAULTS as error:
                await _commit_failed(conn, error)
            return result
        finally:
            await _give_back(conn)

    async def _read(self, engine: AsyncEngine, fn: Callable[[Tx], T]) -> T:
        self._refuse_closed()
        snapshot = engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        try:
            return await self._read_once(snapshot, fn)
        except _Lost:
            pass  # a connection that the server had closed long ago: once more
        except DBAPIError as error:
            _translate(error)
        try:
            return await self._read_once(snapshot, fn)
        except _Lost as lost:
            raise DatabaseUnavailable(lost.message) from lost
        except DBAPIError as error:
            _translate(error)

    async def _read_once(self, engine: AsyncEngine, fn: Callable[[Tx], T]) -> T:
        conn = await _connect(engine)
        try:
            return await conn.run_sync(self._read_body, fn)
        except _FAULTS as error:
            await _lost_or_raise(conn, error, ran=True)
        finally:
            await _give_back(conn)

    def _body(
        self, conn: Connection, fn: Callable[[Tx], T], started: asyncio.Event
    ) -> T:
        tx = Tx(conn, dialect="postgresql", read_now=self._read_now)
        prologue = tx.first(_PROLOGUE)
        assert prologue is not None
        tx.set_now(self._told(prologue[0]))
        started.set()
        result = fn(tx)
        tx.refuse_hidden_failure()
        return result

    def _read_body(self, conn: Connection, fn: Callable[[Tx], T]) -> T:
        tx = Tx(conn, dialect="postgresql", read_now=self._read_now)
        prologue = tx.first(_READ_PROLOGUE)
        assert prologue is not None
        tx.set_now(self._told(prologue[0]))
        return fn(tx)

    def _read_now(self, tx: Tx) -> int:
        return self._told(postgresql_now(tx))

    def _told(self, by_server: int) -> int:
        """Return the time of this transaction: the server's, in all but tests."""
        told = by_server if self._clock is None else self._clock.wall_us()
        return told + self.clock_offset_us


class _Lost(Exception):
    """The connection died before COMMIT was sent."""

    def __init__(self, message: str, *, ran: bool) -> None:
        super().__init__(message)
        self.message: Final = message
        self.ran: Final = ran


class _LoopThread:
    """A thread with an event loop and one connection, for callers without a loop."""

    def __init__(self, make_engine: Callable[[], AsyncEngine]) -> None:
        self.engine: Final = make_engine()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="tenure-postgresql", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            # Every step inside has its own timeout; this one only keeps a fault of
            # the loop itself from stopping the caller for ever.
            return future.result(
                timeout=(STATEMENT_SECONDS + CONNECT_SECONDS) * COMMIT_RETRIES_MAX
            )
        except FutureTimeoutError:
            future.cancel()
            raise DatabaseUnavailable("the database did not answer in time") from None

    def stop(self) -> None:
        with suppress(Exception):
            self.run(self.engine.dispose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=CONNECT_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


def _engine(
    url: URL, *, pool_size: int, statement_seconds: float = STATEMENT_SECONDS
) -> AsyncEngine:
    arguments: dict[str, Any] = {
        "timeout": CONNECT_SECONDS,
        # The server's statement_timeout should fire first; this one is for a server
        # that is gone, and for a thread, which cannot wait so long.
        "command_timeout": statement_seconds + 1.0,
    }
    query = dict(url.query)
    if "statement_cache_size" in query:
        arguments["statement_cache_size"] = int(str(query.pop("statement_cache_size")))
    cache_size = int(str(query.get("prepared_statement_cache_size", "1")))
    # Names must differ between all clients of one pooled server connection. Without a
    # cache the unnamed statement does, and leaves nothing behind.
    prefix = token()
    numbers = iter(range(1, 2**63))
    arguments["prepared_statement_name_func"] = (
        (lambda: f"tenure_{prefix}_{next(numbers)}") if cache_size else (lambda: "")
    )
    pool: dict[str, Any] = (
        {
            "pool_size": pool_size,
            "max_overflow": 0,
            "pool_timeout": CONNECT_SECONDS + STATEMENT_SECONDS,
        }
        if pool_size
        else {"poolclass": NullPool}
    )
    return create_async_engine(
        url.set(query=query),
        hide_parameters=True,  # errors are logged: no payloads, no secrets in them
        isolation_level="READ COMMITTED",
        connect_args=arguments,
        **pool,
    )


async def _connect(engine: AsyncEngine) -> AsyncConnection:
    try:
        return await engine.connect()
    except PoolTimeoutError as error:
        raise DatabaseUnavailable(
            "every database connection of this process is busy"
        ) from error
    except DBAPIError as error:
        if _sqlstate(error) in {"3D000", "28000", "28P01"}:
            raise DatabaseUnavailable(
                f"the database refuses the connection: {error.orig}"
            ) from error
        _translate(error, connecting=True)
    except (OSError, TimeoutError) as error:
        raise DatabaseUnavailable(
            f"the database at {engine.url.render_as_string()} cannot be reached: "
            f"{str(error) or type(error).__name__}"
        ) from error


async def _give_back(conn: AsyncConnection) -> None:
    with suppress(DBAPIError, OSError, TimeoutError):
        # Shielded: a caller who goes away must not leave the connection half returned.
        await asyncio.shield(conn.close())


async def _lost_or_raise(
    conn: AsyncConnection, error: Exception, *, ran: bool
) -> NoReturn:
    """Raise `_Lost` for a connection that died, else the error itself."""
    if _is_lost(error):
        with suppress(DBAPIError, OSError, TimeoutError, InvalidRequestError):
            await conn.invalidate()
        if isinstance(error, TimeoutError):
            raise DatabaseUnavailable("a statement got no answer in time") from error
        message = f"the connection to the database was lost: {error}"
        raise _Lost(message, ran=ran) from error
    raise error


async def _commit_failed(conn: AsyncConnection, error: Exception) -> NoReturn:
    """Raise CommitUnknown unless the server itself said that COMMIT failed."""
    if _is_lost(error):
        with suppress(DBAPIError, OSError, TimeoutError, InvalidRequestError):
            await conn.invalidate()
        raise CommitUnknown(
            "the connection was lost while the database was committing: "
            "it may have happened; ask again with the same ids"
        ) from error
    raise error


def _sqlstate(error: DBAPIError) -> str | None:
    return cast("str | None", getattr(error.orig, "sqlstate", None))


def _is_lost(error: Exception) -> bool:
    if isinstance(error, DBAPIError):
        state = _sqlstate(error)
        if state is not None and not state.startswith("08"):
            return state in _CLOSED_BY_SERVER
        # A client-side InterfaceError is a wrong argument, unless it found the
        # connection closed.
        return error.connection_invalidated or state is not None
    return isinstance(error, OSError | TimeoutError)


def _may_retry(error: DBAPIError) -> bool:
    # A statement prepared before somebody changed a table is prepared again.
    stale_plan = type(error.orig).__name__ == "InvalidCachedStatementError"
    return stale_plan or _sqlstate(error) in _RETRYABLE


def _translate(error: DBAPIError, *, connecting: bool = False) -> NoReturn:
    state = _sqlstate(error)
    if state in _RETRYABLE:
        raise RowsLocked("a row is locked by somebody else") from error
    unavailable = state in _UNAVAILABLE or (state or "")[:2] in _UNAVAILABLE_CLASSES
    if connecting or unavailable or error.connection_invalidated:
        raise DatabaseUnavailable(f"the database cannot now: {error.orig}") from error
    raise error
