"""NOTIFY: on PostgreSQL, what one process commits wakes the others at once.

A hint, never more: the poll finds all that is due within a second. So nobody waits for
one, an error is a line in the log, and a lost connection loses latency only.

Nothing is notified inside of a transaction that accepts or settles, because a commit
that notifies takes a lock of all databases of the server. A process that committed says
so on a connection of its own, at most once in `NOTIFY_EVERY_SECONDS`: a node by its
`Wakeups`, which listens on the same connection; a process without a node by a `Ringer`,
whose thread copies the way in which its application connects.

A transaction pooler swallows notifications. A listener therefore first sends one to
itself; where it does not arrive the pooler gets its connection back.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sqlalchemy.util import greenlet_spawn

from tenure.clock import SystemClock
from tenure.ids import jitter, token
from tenure.limits import (
    CONNECT_SECONDS,
    HEAR_EVERY_SECONDS,
    LISTEN_BACKOFF_MAX_SECONDS,
    LISTEN_BACKOFF_MIN_SECONDS,
    LISTEN_CHECK_SECONDS,
    LISTEN_CLOSE_SECONDS,
    LISTEN_ECHO_SECONDS,
    NOTIFY_EVERY_SECONDS,
    RINGS_MAX,
)
from tenure.telemetry.events import Event, Events

if TYPE_CHECKING:
    from collections.abc import Callable

    import asyncpg
    from sqlalchemy.engine import URL, Engine
    from sqlalchemy.pool import Pool, PoolProxiedConnection

__all__ = ["CHANNEL", "Ringer", "Wakeups"]

CHANNEL: Final = "tenure_wake"
_ECHO: Final = "echo "
"""Before a listener's own name: a notification that only asks whether it arrives."""


class Wakeups:
    """One node's listener: calls `heard` when another process committed work.

    Use it on one event loop, that of `run`.
    """

    def __init__(self, url: URL, *, heard: Callable[[], None], events: Events) -> None:
        self._url: Final = url
        self._heard: Final = heard
        self._events: Final = events
        self._name: Final = token(12)
        self._due: Final = asyncio.Event()
        self._echoed: Final = asyncio.Event()
        self._lost = False
        self._ended = False
        self._resting = False
        self._missed = False

    @property
    def listens(self) -> bool:
        """Whether notifications arrive just now, as far as is known."""
        return self._echoed.is_set()

    def tell(self) -> None:
        """Let the other processes look for work, soon; from the loop's thread."""
        self._due.set()

    async def run(self) -> None:
        """Listen and tell until cancelled; connect again whenever that ends."""
        pause = LISTEN_BACKOFF_MIN_SECONDS
        while True:
            try:
                connection = await self._connect()
                try:
                    await self._listen(connection)
                    self._found()
                    pause = LISTEN_BACKOFF_MIN_SECONDS
                    await self._serve(connection)
                finally:
                    await self._leave(connection)
            except Exception as error:  # noqa: BLE001 - the poll goes on without hints
                self._lose(str(error) or type(error).__name__)
            await asyncio.sleep(jitter(pause / 2, pause))
            pause = min(2 * pause, LISTEN_BACKOFF_MAX_SECONDS)

    async def _connect(self) -> asyncpg.Connection:
        import asyncpg
        from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

        query = {k: v for k, v in self._url.query.items() if "cache_size" not in k}
        url = self._url.set(query=query)
        _, arguments = PGDialect_asyncpg().create_connect_args(url)
        self._ended = False
        return await asyncpg.connect(
            **arguments,
            timeout=round(CONNECT_SECONDS),
            command_timeout=CONNECT_SECONDS,
            statement_cache_size=0,
        )

    async def _listen(self, connection: asyncpg.Connection) -> None:
        connection.add_termination_listener(self._on_end)
        await connection.add_listener(CHANNEL, self._on_notice)
        self._echoed.clear()
        await connection.execute(f"NOTIFY {CHANNEL}, '{_ECHO}{self._name}'")
        try:
            async with asyncio.timeout(LISTEN_ECHO_SECONDS):
                await self._echoed.wait()
        except TimeoutError:
            await connection.execute(f"UNLISTEN {CHANNEL}")
            raise ConnectionError(
                "a notification to itself did not come back, as behind a transaction"
                " pooler: set TENURE_NOTIFY=off, or go past the pooler"
            ) from None

    async def _serve(self, connection: asyncpg.Connection) -> None:
        while not self._ended:
            try:
                async with asyncio.timeout(LISTEN_CHECK_SECONDS):
                    await self._due.wait()
            except TimeoutError:
                # Silence may be a peer that is gone without a word.
                await connection.execute("SELECT 1")
                continue
            if self._ended:
                break
            self._due.clear()
            await connection.execute(f"NOTIFY {CHANNEL}, '{self._name}'")
            await asyncio.sleep(NOTIFY_EVERY_SECONDS)
        raise ConnectionError("the server ended the connection")

    async def _leave(self, connection: asyncpg.Connection) -> None:
        self._echoed.clear()
        try:
            await connection.close(timeout=LISTEN_CLOSE_SECONDS)
        except Exception:  # noqa: BLE001 - it was lost, or the server hangs
            connection.terminate()

    def _on_notice(self, *notice: object) -> None:
        payload = str(notice[-1])
        if payload == f"{_ECHO}{self._name}":
            self._echoed.set()
        elif payload != self._name and not payload.startswith(_ECHO):
            self._hear()

    def _hear(self) -> None:
        """Say so at once, then at most once in `HEAR_EVERY_SECONDS`, and at its end.

        Whoever may connect may notify, and many nodes together do it often; each word
        passed on costs a claim.
        """
        if self._resting:
            self._missed = True
            return
        self._resting, self._missed = True, False
        asyncio.get_running_loop().call_later(HEAR_EVERY_SECONDS, self._rested)
        self._heard()

    def _rested(self) -> None:
        self._resting = False
        if self._missed:
            self._hear()

    def _on_end(self, _: object) -> None:
        self._ended = True
        self._due.set()

    def _found(self) -> None:
        if self._lost:
            self._lost = False
            self._events.tell(Event.WAKEUPS_BACK)
        self._heard()  # something may have been told while nobody listened

    def _lose(self, why: str) -> None:
        if not self._lost:
            self._lost = True
            self._events.tell(Event.WAKEUPS_LOST, why=why)


class Ringer:
    """Wakes the nodes from a process that is none, on a thread of its own.

    `ring` only notes what is to be done: it waits for no database and never raises. The
    connection is made as the given engine makes its own, but outside of its pool; it is
    closed, and the thread ends, when nothing was rung for `LISTEN_CHECK_SECONDS`.
    """

    def __init__(self, events: Events | None = None) -> None:
        self._events: Final = events or Events()
        self._clock: Final = SystemClock()
        self._changed: Final = threading.Condition()
        self._rings: list[tuple[float, Engine]] = []
        self._closing = False
        self._thread: threading.Thread | None = None
        self._lost = False

    def ring(self, engine: Engine, after: float) -> None:
        """Notify the nodes on this engine's database, `after` seconds from now."""
        if engine.dialect.name != "postgresql":
            return
        at = self._clock.monotonic() + after
        with self._changed:
            if self._closing or len(self._rings) >= RINGS_MAX:
                return
            self._rings.append((at, engine))
            self._changed.notify()
            if self._thread is not None and self._thread.is_alive():
                return  # it is not in the child of a fork
            self._thread = thread = threading.Thread(
                target=self._run, name="tenure-ringer", daemon=True
            )
        atexit.register(self.close)
        thread.start()

    def close(self) -> None:
        """Ring what waits and end the thread, in `CONNECT_SECONDS` at most."""
        with self._changed:
            self._closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join(CONNECT_SECONDS)

    def _run(self) -> None:
        line = _Line()
        rest = NOTIFY_EVERY_SECONDS
        try:
            while engines := self._wait():
                try:
                    for engine in engines:
                        line.notify(engine)
                except Exception as error:  # noqa: BLE001 - the poll finds the work
                    line.close()
                    self._lose(str(error) or type(error).__name__)
                    rest = min(
                        max(2 * rest, LISTEN_BACKOFF_MIN_SECONDS),
                        LISTEN_BACKOFF_MAX_SECONDS,
                    )
                else:
                    self._lost, rest = False, NOTIFY_EVERY_SECONDS
                self._rest(rest)
        finally:
            line.close()
            atexit.unregister(self.close)

    def _wait(self) -> set[Engine]:
        """Return whose nodes are to be notified now; nothing when it is over."""
        idle_at = self._clock.monotonic() + LISTEN_CHECK_SECONDS
        with self._changed:
            while True:
                now = self._clock.monotonic()
                due = {e for at, e in self._rings if at <= now or self._closing}
                if due:
                    self._rings = [
                        (at, e) for at, e in self._rings if at > now and e not in due
                    ]
                    return due
                if self._closing or (not self._rings and now >= idle_at):
                    self._thread = None
                    return due
                until = min((at for at, _ in self._rings), default=idle_at)
                self._changed.wait(max(0.0, until - now))

    def _rest(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing, seconds)

    def _lose(self, why: str) -> None:
        if not self._lost:
            self._lost = True
            self._events.tell(Event.WAKEUPS_LOST, why=why)


class _Line:
    """A connection like those of an engine, on the thread that uses it."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._pool: Pool | None = None
        self._connection: PoolProxiedConnection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def notify(self, engine: Engine) -> None:
        """Notify on this engine's database; connects when it is not yet."""
        if self._engine is not engine:
            self.close()
            self._engine = engine
        self._run(self._notify)

    def close(self) -> None:
        """Close the connection, if there is one."""
        with suppress(Exception):
            if self._connection is not None:
                self._run(self._close)
        if self._loop is not None:
            self._loop.close()
        self._engine = self._pool = self._connection = self._loop = None

    def _notify(self) -> None:
        assert self._engine is not None
        if self._connection is None:
            # A pool of one, with the same way to connect: credentials, TLS, events.
            self._pool = self._engine.pool.recreate()
            self._connection = self._pool.connect()
        cursor = self._connection.cursor()
        cursor.execute(f"SELECT pg_notify('{CHANNEL}', '')")
        cursor.close()
        self._connection.commit()

    def _close(self) -> None:
        assert self._connection is not None
        self._connection.invalidate()

    def _run(self, work: Callable[[], None]) -> None:
        if self._engine is None or not self._engine.dialect.is_async:
            work()
            return
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(greenlet_spawn(work))
