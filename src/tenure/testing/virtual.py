"""A whole engine whose time is the test's: a week of retries takes seconds.

Everything is real but time: the database, the worker loop, the HTTP client and its
sockets. Time stands still while anything is going on, and jumps from one instant at
which something is due to the next. So each attempt happens exactly when the rules say,
and takes no time by this clock::

    async with VirtualEngine() as engine, Receiver(clock=engine.clock) as receiver:
        ...  # an endpoint that answers 503, one message
        await engine.advance(days=3)  # every retry of these days has been sent
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from datetime import timedelta
from ipaddress import ip_network
from typing import TYPE_CHECKING, Final, Self

from pydantic import SecretStr

from tenure.clock import US, SettableClock, SystemClock
from tenure.config import Settings, Synchronous
from tenure.engine import Engine
from tenure.limits import VIRTUAL_PATIENCE_SECONDS, Durations
from tenure.outbox.keyring import new_key

if TYPE_CHECKING:
    from types import TracebackType

    from tenure.outbox.outbox import Outbox
    from tenure.store.backend import Backend
    from tenure.store.tx import Tx
    from tenure.work.held import Held

__all__ = ["VirtualEngine"]

_LOOK_SECONDS: Final = 0.0005
"""Between two looks at whether something real, such as a request, has ended."""
_SLEEPERS_MIN: Final = 3
"""Who sleeps in an engine at rest: the worker loop, its watch, the housekeeping."""
_MICROSECOND: Final = timedelta(microseconds=1)
_LOOPBACK: Final = (ip_network("127.0.0.0/8"), ip_network("::1/128"))

_NEXT: Final = """
SELECT (SELECT min(w.due_at) FROM work w WHERE w.phase = 'later'),
  (SELECT min(l.breaker_until) FROM lane l WHERE l.breaker_until > :now),
  EXISTS (SELECT 1 FROM work w JOIN lane l ON l.id = w.lane WHERE w.phase = 'due'
    AND l.state = 'open' AND (l.breaker_until IS NULL OR l.breaker_until <= :now))
"""


class _Watched:
    """A clock that knows how many of one engine's tasks sleep on it."""

    __slots__ = ("_clock", "sleeping")

    def __init__(self, clock: SettableClock) -> None:
        self._clock: Final = clock
        self.sleeping = 0

    def wall_us(self) -> int:
        return self._clock.wall_us()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def boottime(self) -> float:
        return self._clock.boottime()

    async def sleep(self, seconds: float) -> None:
        self.sleeping += 1
        try:
            await self._clock.sleep(seconds)
        finally:
            self.sleeping -= 1


class VirtualEngine:
    """An engine on a clock that only `advance` moves; ``async with`` starts and ends it.

    Without settings it keeps a SQLite file of its own, removed at the end, and may send
    to the loopback. It must be the only node of its database, and time begins with the
    system's now, because ids carry the instant of their making. What people write into
    it (`outbox`) happens at once; what follows from that has happened when `idle` or
    `advance` returns. A receiver's delays are real seconds and take no time here.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        patience_seconds: float = VIRTUAL_PATIENCE_SECONDS,
    ) -> None:
        self.clock: Final = SettableClock(SystemClock().wall_us())
        """What the engine's time is; give it to receivers, move it by `advance` only."""
        self._watched: Final = _Watched(self.clock)
        self._given: Final = settings
        self._patience: Final = patience_seconds
        self._exits: Final = AsyncExitStack()
        self._engine: Engine | None = None
        self._least: int | None = None  # how many sleep when nothing goes on

    @property
    def engine(self) -> Engine:
        """The engine itself. Raises RuntimeError before it was started."""
        if self._engine is None:
            raise RuntimeError("the engine is not started: use `async with` first")
        return self._engine

    @property
    def outbox(self) -> Outbox:
        """Applications, endpoints and messages."""
        return self.engine.outbox

    @property
    def backend(self) -> Backend:
        """The database, to look into."""
        return self.engine.backend

    @property
    def now(self) -> int:
        """The instant that it is, in microseconds since the epoch."""
        return self.clock.wall_us()

    async def __aenter__(self) -> Self:
        """Open the database and start the node."""
        settings = self._given or await self._own_settings()
        self._engine = Engine(
            settings, clock=self._watched, durations=Durations(), server_time=False
        )
        try:
            await self._exits.enter_async_context(self._engine)
            await self.idle()
        except BaseException:
            await self._exits.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self._exits.aclose()

    async def _own_settings(self) -> Settings:
        folder = await asyncio.to_thread(
            tempfile.TemporaryDirectory, prefix="tenure-virtual-"
        )
        self._exits.push_async_callback(asyncio.to_thread, folder.cleanup)
        return Settings(
            database_url=f"sqlite:///{folder.name}/tenure.db",
            secret_keys=(SecretStr(new_key()),),
            allow_networks=_LOOPBACK,
            sqlite_synchronous=Synchronous.NORMAL,
        )

    # --- time ------------------------------------------------------------------------

    async def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> None:
        """Let time pass, with all that happens in it, each thing at its own instant.

        Raises ValueError for a negative span, TimeoutError as `idle` does.
        """
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        await self.advance_to(self.now + span // _MICROSECOND)

    async def advance_to(self, at: int) -> None:
        """Let time pass until an instant, in microseconds since the epoch."""
        if at < self.now:
            raise ValueError(f"{at} is in the past: it is {self.now}")
        await self.idle()
        while self.now < at:
            await self._move(min(at, await self._next_event() or at))
            await self.idle()

    async def idle(self) -> None:
        """Return when nothing more can happen at this instant.

        Raises TimeoutError when that takes longer than the patience, in real seconds.
        """
        try:
            async with asyncio.timeout(self._patience):
                await self._rest()
        except TimeoutError:
            held = len(self.engine.worker.hand)
            raise TimeoutError(
                f"the engine did not come to rest within {self._patience:g} s:"
                f" {held} attempts are in flight"
            ) from None

    async def _move(self, at: int) -> None:
        """Jump to an instant: the node beats there before anybody wakes.

        Otherwise its tasks would find that it had not been heard for the whole jump.
        """
        self.clock.shift((at - self.now) / US)
        every = self.engine.durations.beat_seconds
        async with asyncio.timeout(self._patience):
            if self._beat_age() >= every:
                self.engine.beat()
            while self._beat_age() >= every:  # noqa: ASYNC110 - a thread beats
                await asyncio.sleep(_LOOK_SECONDS)
        self.clock.ring()

    def _beat_age(self) -> float:
        incarnation = self.engine.worker.incarnation
        return 0.0 if incarnation is None else incarnation.fence.age()

    async def _rest(self) -> None:
        """Wait until whoever was woken sleeps again and whatever is due was taken."""
        worker = self.engine.worker
        while True:
            await self._look()
            waiting = self._waiting()
            if waiting < len(worker.hand):
                while self._waiting() < len(worker.hand):  # noqa: ASYNC110 - sockets
                    await asyncio.sleep(_LOOK_SECONDS)
                continue
            due = await self._next_event()
            if due is not None and due <= self.now:
                continue
            if not waiting:
                asleep = self._watched.sleeping
                self._least = min(asleep, self._least or asleep)
            return

    async def _look(self) -> None:
        """Return after a whole pass of the worker loop, when whoever sleeps does so."""
        worker = self.engine.worker
        before = worker.tick
        self.engine.wake()
        while worker.tick == before or worker.claiming_since is not None:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
        least = self._least or _SLEEPERS_MIN
        while self._watched.sleeping - self._waiting() < least:
            if self._waiting() < len(worker.hand):
                return  # what was claimed runs
            await asyncio.sleep(_LOOK_SECONDS)

    def _waiting(self) -> int:
        """Count the attempts that wait for their start."""
        return sum(map(self._waits, tuple(self.engine.worker.hand.values())))

    def _waits(self, held: Held) -> bool:
        return held.entered and held.running and held.start > self.clock.monotonic()

    async def _next_event(self) -> int | None:
        """Return the next instant at which something may happen; None for never."""
        later, reopens, due = await self.backend.read(_next)
        ahead = [
            self.now + round((held.start - self.clock.monotonic()) * US)
            for held in self.engine.worker.hand.values()
        ]
        wake = self.clock.next_wake()
        if due and wake is not None:  # a rate lets it start within a poll
            ahead.append(self.now + max(1, round(wake * US)))
        return min(
            (at for at in (later, reopens, *ahead) if at is not None), default=None
        )


def _next(tx: Tx) -> tuple[int | None, int | None, bool]:
    found = tx.first(_NEXT, {"now": tx.now})
    assert found is not None
    return found[0], found[1], bool(found[2])
