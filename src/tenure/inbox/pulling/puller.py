"""The loop that pulls: every node pulls from every broker; nobody leads.

Brokers hand a message to one consumer at a time and hand it on when that goes away
without a word. So a message is acknowledged after its receipt is committed, and what
comes again by then is recognised by the name that the broker gave it. A message that can
never be received (too large, not verified) is kept as a refusal and acknowledged: it must
not hold up those behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, assert_never

from tenure.errors import Draining, Unavailable
from tenure.ids import jitter
from tenure.inbox.arrivals import Arrival
from tenure.inbox.ledger.sources import opened_source, pulling_sources
from tenure.inbox.model import PullKind
from tenure.inbox.pulling.contract import BrokerFailed, Pulled, Session
from tenure.limits import (
    PULL_LOOK_SECONDS,
    PULL_REST_MAX_SECONDS,
    PULL_REST_SECONDS,
)
from tenure.spawn import Tasks
from tenure.telemetry.events import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.clock import Clock
    from tenure.ids import SourceId
    from tenure.inbox.model import Pull
    from tenure.inbox.opened import Opened
    from tenure.inbox.receiver import Receiver
    from tenure.outbox.keyring import KeyRing
    from tenure.store.backend import Backend
    from tenure.telemetry.events import Events

__all__ = ["Puller", "connect"]

_EXTRAS: Final = {
    PullKind.NATS: "nats",
    PullKind.REDIS: "redis",
    PullKind.AMQP: "amqp",
}


async def connect(pull: Pull) -> Session:
    """Connect to a source's broker; raises BrokerFailed."""
    broker = await asyncio.to_thread(_module, pull.kind)  # it may read many files
    session: Session = await broker.connect(pull)
    return session


def _module(kind: PullKind) -> Any:
    try:
        match kind:
            case PullKind.NATS:
                from tenure.inbox.pulling import jetstream as broker
            case PullKind.REDIS:
                from tenure.inbox.pulling import streams as broker
            case PullKind.AMQP:
                from tenure.inbox.pulling import queues as broker
            case _:
                assert_never(kind)
    except ModuleNotFoundError as error:
        raise BrokerFailed(
            f"{error.name} is not installed: install tenure[{_EXTRAS[kind]}]"
        ) from None
    return broker


class Puller:
    """Pulls for every source that says so, while `allowed`, until cancelled.

    A copy of a database must not take away what is meant for the original.
    """

    def __init__(
        self,
        backend: Backend,
        receiver: Receiver,
        ring: KeyRing,
        clock: Clock,
        events: Events,
        allowed: Callable[[], bool],
    ) -> None:
        self._backend: Final = backend
        self._receiver: Final = receiver
        self._ring: Final = ring
        self._clock: Final = clock
        self._events: Final = events
        self._allowed: Final = allowed
        self._tasks: Final = Tasks(self._ended)
        self._running: Final[dict[SourceId, tuple[int, asyncio.Task[None]]]] = {}
        # A client library may swallow a cancellation: what runs looks here too.
        self._wanted: dict[SourceId, int] = {}

    async def run(self) -> None:
        """Look for sources that pull now and then, until cancelled."""
        try:
            while True:
                # While the database is away, what runs waits by itself.
                with contextlib.suppress(Unavailable):
                    await self.look()
                await self._clock.sleep(PULL_LOOK_SECONDS)
        finally:
            self._wanted = {}
            await self._tasks.cancel()

    async def look(self) -> None:
        """Begin to pull for new sources, end it for those that changed or are gone."""
        found = await self._backend.read(pulling_sources) if self._allowed() else ()
        self._wanted = wanted = dict(found)
        for source, (version, task) in list(self._running.items()):
            if wanted.get(source) != version or task.done():
                task.cancel()
                await asyncio.wait((task,))
                del self._running[source]
        for source in sorted(wanted.keys() - self._running.keys()):
            pull = self._pull(source, wanted[source])
            task = self._tasks.start(pull, name="inbox.pulling")
            self._running[source] = (wanted[source], task)

    def _ended(self, name: str, error: BaseException) -> None:
        self._events.tell(Event.PULLING_FAILED, why=f"{name} ended", error=error)

    async def _pull(self, source: SourceId, version: int) -> None:
        """Pull for one version of a source, through every failure of its broker."""
        rest = PULL_REST_SECONDS
        while self._wanted.get(source) == version:
            try:
                opened = await self._backend.read(
                    lambda tx: opened_source(tx, source, ring=self._ring)
                )
                if opened is None or opened.pull is None:
                    return
                session = await connect(opened.pull)
            except Unavailable:
                await self._clock.sleep(rest)
                continue
            except BrokerFailed as error:
                self._events.tell(Event.PULLING_FAILED, source=source, why=str(error))
                await self._clock.sleep(rest * jitter(0.5, 1.0))
                rest = min(2 * rest, PULL_REST_MAX_SECONDS)
                continue
            rest = PULL_REST_SECONDS
            try:
                await self._through(opened, session, version)
            except BrokerFailed as error:
                self._events.tell(Event.PULLING_FAILED, source=source, why=str(error))
                await self._clock.sleep(rest)
            finally:
                await session.aclose()

    async def _through(self, opened: Opened, session: Session, version: int) -> None:
        while self._wanted.get(opened.id) == version:
            found = await session.fetch()
            # Together they share a commit; each is acknowledged by itself.
            ends = await asyncio.gather(
                *(self._take(opened, each) for each in found), return_exceptions=True
            )
            for end in ends:
                if isinstance(end, BaseException):
                    raise end

    async def _take(self, opened: Opened, pulled: Pulled) -> None:
        arrival = Arrival(
            method="POST",
            url=f"{opened.pull.kind}:{opened.pull.name}" if opened.pull else "",
            query=b"",
            headers=pulled.headers,
            body=pulled.body,
            address=None,
        )
        while True:
            try:
                done = await self._receiver.take(opened.path, arrival, pulled.key)
            except Draining:
                return  # unacknowledged: another node gets it
            except Unavailable as error:
                await self._clock.sleep(error.retry_after)
                continue
            break
        if done:
            await pulled.acknowledge()
