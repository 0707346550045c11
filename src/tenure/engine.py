"""The composition root: opens a database, joins the fleet, starts and stops; no logic.

Start, in this order, each step refusing what it cannot vouch for::

    database opened ─ schema checked and migrated (pre phase) ─ identity ─ key ring
    ─ registry of kinds sealed ─ outbox accepts ─ node row ─ worker loop claims

Nothing in it depends on how much work is waiting: recovery happens beside traffic.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from functools import partial
from typing import TYPE_CHECKING, Final, Self, TypeVar, cast

from tenure import __version__
from tenure.clock import Clock, SystemClock
from tenure.config import Settings, load
from tenure.errors import InvariantViolated, Unavailable
from tenure.inbox.inbox import Inbox
from tenure.inbox.ledger import retaining
from tenure.limits import (
    ADOPTION_LOOK_SECONDS,
    HOUSEKEEPING_SECONDS,
    Durations,
)
from tenure.outbox.acceptor import Sender
from tenure.outbox.carriers.offered import Carriers
from tenure.outbox.delivery import Delivery
from tenure.outbox.http import HttpTransport
from tenure.outbox.joining import Submitter
from tenure.outbox.measuring import MeasuredKind
from tenure.outbox.opening import key_ring, outbox_settings
from tenure.outbox.outbox import Outbox
from tenure.outbox.retention import Retention
from tenure.outbox.waiting import SENDING_OFF, Standing
from tenure.schedules.builtin import builtin
from tenure.schedules.declaring import registry
from tenure.schedules.discovering import discover
from tenure.schedules.ledger import retaining as kept
from tenure.schedules.running import JobKind
from tenure.schedules.schedules import Schedules
from tenure.schedules.ticker import Ticker
from tenure.spawn import Tasks
from tenure.store.adopting import untold
from tenure.store.backend import Backend, BackendSettings, open_backend
from tenure.store.identity import (
    Matches,
    Mismatch,
    check_identity,
    compare_identity,
)
from tenure.store.timing import TimedBackend
from tenure.store.wakeups import Wakeups
from tenure.telemetry.events import Event, Events
from tenure.work.drain import Drain
from tenure.work.health import Health
from tenure.work.kinds import seal
from tenure.work.lag import Lag
from tenure.work.loop import WorkerLoop
from tenure.work.node import Node
from tenure.work.pauses import Pauses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from tenure.ids import NodeId
    from tenure.naming.coordinates import Coordinate
    from tenure.outbox.carriers.functions import Functions
    from tenure.outbox.http import Transport
    from tenure.outbox.joining import Hint
    from tenure.outbox.keyring import KeyRing
    from tenure.schedules.declaring import Declared, Packages
    from tenure.schedules.ledger.catalogue import Enrolled
    from tenure.store.identity import Verdict
    from tenure.telemetry.metrics import Metrics
    from tenure.work.drain import Drained, Draining
    from tenure.work.kinds import Kind

__all__ = ["SENDING_OFF", "Engine", "Health", "key_ring"]

T = TypeVar("T")
USER_AGENT: Final = f"Tenure/{__version__}"
LASTING: Final = frozenset(
    {
        "engine.housekeeping",
        "engine.loop",
        "engine.retention",
        "engine.ticker",
        "engine.wakeups",
        "work.watch",
    }
)
"""Tasks that run for as long as the engine does."""


class Engine:
    """Everything of one process: database, outbox, node and worker loop.

    Use it as ``async with Engine(settings) as engine`` or by `start` and `stop`, on one
    event loop. ``works=False`` opens the database and the outbox alone, as a command
    that only asks does: no node, nothing is sent. ``server_time=False`` lets ``clock``
    tell the time on PostgreSQL too, which only tests on a clock they set may want.
    ``functions`` are functions that endpoints may name, by default those of `tenure.on`;
    ``packages`` hold the jobs, by default those of `tenure.package` and `tenure.job`.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        works: bool = True,
        clock: Clock | None = None,
        durations: Durations | None = None,
        transport: Transport | None = None,
        events: Events | None = None,
        pauses: Pauses | None = None,
        server_time: bool = True,
        functions: Functions | None = None,
        packages: Packages | None = None,
    ) -> None:
        self.settings: Final = load() if settings is None else settings
        self.clock: Final = clock or SystemClock()
        self.durations: Final = durations or Durations.from_environment()
        self.events: Final = events or Events()
        self._works: Final = works
        self._server_time: Final = server_time
        self._given_transport: Final = transport
        self._functions: Final = functions
        self._packages: Final = packages
        self._schedules: Schedules | None = None
        self._ticker: Ticker | None = None
        self._declared: Mapping[Coordinate, Declared] = {}
        self._pauses: Final = pauses or Pauses()
        self._tasks: Final = Tasks(self._task_failed)
        self._exits: Final = contextlib.AsyncExitStack()
        self._backend: Backend | None = None
        self._outbox: Outbox | None = None
        self._inbox: Inbox | None = None
        self._submitter: Submitter | None = None
        self._wakeups: Wakeups | None = None
        self._loop: WorkerLoop | None = None
        self._node: Node | None = None
        self._drain: Drain | None = None
        self._stopping = False
        self._metrics: Metrics | None = None
        self._lag: Lag | None = None
        self._died: Final[list[str]] = []
        self.events.listen(self._heard)

    # --- what it offers --------------------------------------------------------------

    @property
    def outbox(self) -> Outbox:
        """The outbox. Raises InvariantViolated before `start`."""
        return _started(self._outbox)

    @property
    def inbox(self) -> Inbox:
        """The inbox. Raises InvariantViolated before `start`."""
        return _started(self._inbox)

    @property
    def schedules(self) -> Schedules:
        """Jobs, their windows and runs. Raises InvariantViolated before `start`."""
        return _started(self._schedules)

    @property
    def submitter(self) -> Submitter:
        """Accepts in transactions of this process's own sessions.

        What it accepted is looked for as soon as the transaction has committed. Raises
        InvariantViolated before `start`.
        """
        return _started(self._submitter)

    @property
    def backend(self) -> Backend:
        """The database. Raises InvariantViolated before `start`."""
        return _started(self._backend)

    @property
    def node(self) -> NodeId | None:
        """This process's current node id; None when it is no node."""
        return None if self._node is None else self._node.id

    @property
    def worker(self) -> WorkerLoop:
        """This node's worker loop. Raises InvariantViolated when it is no node."""
        return _started(self._loop)

    def beat(self) -> None:
        """Let the node beat now instead of when it is due."""
        if self._node is not None:
            self._node.beats.nudge()

    def wake(self) -> None:
        """Let the worker loop look for work now; from the event loop's thread."""
        if self._loop is not None:
            self._loop.signal.wake()

    def health(self) -> Health:
        """Return what a health page says."""
        return Health(
            node=None if self._node is None else self._node.health(),
            off=None if self._loop is None else self._loop.off,
            draining=self._stopping,
            died=tuple(self._died),
            settling=0
            if self._loop is None
            else sum(held.settling for held in self._loop.hand.values()),
            lag_seconds=0.0 if self._lag is None else self._lag.seconds,
        )

    @property
    def metrics(self) -> Metrics | None:
        """What this node counts; None when it is no node."""
        return self._metrics

    # --- start and stop --------------------------------------------------------------

    async def start(self) -> None:
        """Open everything; when a step fails, what was opened before is closed.

        Raises ConfigInvalid, WrongKeyRing, SchemaTooNew or DatabaseUnavailable.
        """
        try:
            await self._start()
        except BaseException:
            await self._exits.aclose()
            raise

    async def _start(self) -> None:
        settings = self.settings
        synchronous = "full" if settings.sqlite_synchronous == "FULL" else "normal"
        backend = await open_backend(
            settings.database_url,
            BackendSettings(
                clock=self.clock,
                server_time=self._server_time,
                synchronous=synchronous,
            ),
        )
        if self._works:
            backend = await self._measured(backend)
        self._backend = backend
        self._exits.push_async_callback(backend.aclose)
        await backend.migrate()
        copied = await self._copy_of(backend)
        ring = await key_ring(settings, backend)
        self._outbox = outbox = Outbox(
            backend,
            outbox_settings(settings, self.durations),
            ring,
            self.clock,
            bootstrap_key=_secret(settings),
            sending=settings.sending,
            accepted=self._committed,
        )
        outbox.standing = Standing(
            off=copied if settings.sending else SENDING_OFF, slots=settings.slots
        )
        self._submitter = Submitter(
            outbox_settings(settings, self.durations),
            hint=self._joined(asyncio.get_running_loop()),
            clock=None if self._server_time else self.clock,
        )
        outbox.start()
        self._exits.push_async_callback(outbox.aclose)
        self._inbox = inbox = Inbox(
            backend,
            outbox,
            ring,
            self.clock,
            self.events,
            body_bytes_max=settings.receipt_max_bytes,
            keep_seconds=outbox_settings(settings, self.durations).idempotency_seconds,
            wake=self._committed,
            pulls=self._pulls,
        )
        inbox.start(pulls=self._works)
        self._exits.push_async_callback(inbox.aclose)
        await self._plan(backend)
        if self._works:
            await self._join(backend, ring, off=copied)

    async def _plan(self, backend: Backend) -> None:
        """Seal what code declares, and offer it."""
        packages = registry() if self._packages is None else self._packages
        if self._works:  # a command that only asks needs nobody's code
            if self._packages is None:
                await asyncio.to_thread(discover, self.settings.packages)
            packages.seal()
        self._declared = {**builtin(self.outbox), **packages.found}
        self._schedules = schedules = Schedules(
            backend,
            self._declared,
            submitter=self._submitter,
            committed=self._committed,
            standing=lambda: self.outbox.standing,
        )
        packages.bind(schedules)
        self._exits.callback(packages.bind, None)

    async def _copy_of(self, backend: Backend) -> str | None:
        """Return why this database looks like a copy, which must send nothing."""
        verdict = await backend.write(
            partial(check_identity, deployment=self.settings.deployment)
        )
        if not isinstance(verdict, Mismatch):
            if self._works and (done := await backend.read(untold)) is not None:
                self.events.tell(
                    Event.ADOPTED,
                    deployment=done.deployment,
                    held=done.held,
                    at=done.at,
                )
            return None
        self.events.tell(Event.COPY, why=verdict.reason)
        return f"this database looks like a copy ({verdict.reason}): adopt it first"

    async def _join(self, backend: Backend, ring: KeyRing, *, off: str | None) -> None:
        transport = self._given_transport or HttpTransport(clock=self.clock)
        self._exits.push_async_callback(transport.aclose)
        carriers = Carriers(self._functions, self.clock, self.events)
        self._exits.callback(carriers.close)
        delivery = Delivery(
            transport=transport,
            ring=ring,
            settings=outbox_settings(self.settings, self.durations),
            clock=self.clock,
            user_agent=USER_AGENT,
            evaluator=self.outbox.acceptor.evaluator,
            carriers=carriers.by_kind,
        )
        # Its names are constants of its class.
        jobs = JobKind(backend, self.clock)
        self._exits.callback(jobs.close)
        kinds = seal(self._counted(cast("Kind", each)) for each in (delivery, jobs))
        serves = frozenset(kind.needs for kind in kinds.values()) | carriers.needs
        self._loop = loop = WorkerLoop(
            backend,
            kinds,
            slots=self.settings.slots,
            clock=self.clock,
            durations=self.durations,
            events=self.events,
            pauses=self._pauses,
        )
        if self.settings.born_claimed:
            sender = Sender(births=loop.births, remember=delivery.remember)
            self.outbox.acceptor.sender = sender
        if self._metrics is not None:
            loop.walked = self._metrics.claimed
        loop.off = SENDING_OFF if not self.settings.sending else off
        self._node = node = Node(
            backend,
            loop,
            name=f"{os.uname().nodename}:{os.getpid()}",
            version=__version__,
            serves=serves,
            clock=self.clock,
            durations=self.durations,
            events=self.events,
            pauses=self._pauses,
        )
        self._drain = Drain(
            loop,
            node,
            seconds=self.durations.scaled(self.settings.drain_seconds),
            clock=self.clock,
            durations=self.durations,
            events=self.events,
        )
        await node.open()
        await self._tick(backend, node, jobs, serves)
        self._go_on(backend, loop, copied=off is not None)

    def _go_on(self, backend: Backend, loop: WorkerLoop, *, copied: bool) -> None:
        """Start what runs beside traffic from now on."""
        self._tasks.start(loop.run(), name="engine.loop")
        self._tasks.start(self._keep_house(), name="engine.housekeeping")
        if copied:
            self._tasks.start(self._await_adoption(), name="engine.adoption")
        self._retain(backend)
        self._listen(backend, loop)

    async def _tick(
        self, backend: Backend, node: Node, jobs: JobKind, serves: frozenset[str]
    ) -> None:
        """Say which jobs this node has, and fire what is due from then on."""
        declared, loop = self._declared, self.worker

        async def enrolled(found: Enrolled) -> None:
            jobs.known = {id_: declared[c] for c, id_ in found.ids.items()}
            await node.serve(serves | found.serves)

        self._ticker = ticker = Ticker(
            backend,
            declared,
            node=lambda: node.id,
            enrolled=enrolled,
            fired=self._committed,
            clock=self.clock,
            durations=self.durations,
            events=self.events,
            fires=lambda: self.settings.schedules and loop.off in {None, SENDING_OFF},
        )
        self.schedules.changed = ticker.signal.wake
        await ticker.enrol()
        self._tasks.start(ticker.run(), name="engine.ticker")

    def _retain(self, backend: Backend) -> None:
        """Remove beside the loop what is over and old."""
        retention = Retention(
            backend,
            outbox_settings(self.settings, self.durations),
            self.clock,
            self.events,
            lambda: self.node,
            more={**retaining.STEPS, **kept.STEPS},
        )
        self._tasks.start(retention.run(), name="engine.retention")

    async def _measured(self, backend: Backend) -> Backend:
        """Begin to count: what a command that only asks has no use for."""
        self._metrics = metrics = await asyncio.to_thread(_new_metrics)
        self.events.listen(metrics.told)
        self._lag = Lag(metrics.lagged)
        self._tasks.start(self._lag.run(), name="engine.lag")
        return cast("Backend", TimedBackend(backend, self.clock, metrics.committed))

    def _counted(self, kind: Kind) -> Kind:
        if self._metrics is None:
            return kind
        return MeasuredKind(kind, self._metrics, self.clock)

    async def stop(
        self, *, told: Callable[[Draining], None] | None = None
    ) -> Drained | None:
        """Stop: what was accepted is committed, what is in flight finishes.

        ``told`` is called once with both budgets before the wait begins. Returns how it
        went, None when this engine was no node. Repeating it changes nothing.
        """
        if self._stopping:
            return None
        self._stopping = True
        drained: Drained | None = None
        try:
            if self._ticker is not None:
                self._ticker.close()
            if self._drain is not None:
                drained = await self._drain.run(told=told)
            await self._tasks.cancel()
        finally:
            await self._exits.aclose()
        return drained

    def hurry(self) -> None:
        """Cut what is in flight instead of waiting for it: the second signal."""
        if self._drain is not None:
            self._drain.hurry()

    async def __aenter__(self) -> Self:
        """Start, and return the engine."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()

    # --- wake-ups --------------------------------------------------------------------

    def _listen(self, backend: Backend, loop: WorkerLoop) -> None:
        """Hear of what other processes commit, where the database can tell."""
        if self.settings.notify and backend.dialect == "postgresql":
            self._wakeups = Wakeups(
                backend.url, heard=loop.signal.wake, events=self.events
            )
            self._tasks.start(self._wakeups.run(), name="engine.wakeups")

    def _pulls(self) -> bool:
        """Tell whether this is no copy, which must take nothing from any broker."""
        return self._loop is not None and self._loop.off in {None, SENDING_OFF}

    def _committed(self) -> None:
        """Look for what a commit of this process made due, and let others look."""
        self.wake()
        if self._wakeups is not None:
            self._wakeups.tell()

    def _joined(self, loop: asyncio.AbstractEventLoop) -> Hint:
        """Return what a caller's commit calls, from whichever thread it is on."""

        def hint(_: object, after: float) -> None:
            loop.call_soon_threadsafe(loop.call_later, after, self._committed)

        return hint

    # --- beside the loop -------------------------------------------------------------

    async def _await_adoption(self) -> None:
        """Begin to send once an operator has adopted the copy, without a restart."""
        every = self.durations.scaled(ADOPTION_LOOK_SECONDS)
        deployment = self.settings.deployment
        look = partial(compare_identity, deployment=deployment)
        verdict: Verdict | None = None
        while not isinstance(verdict, Matches):
            await self.clock.sleep(every)
            with contextlib.suppress(Unavailable):  # the next look tells
                verdict = await self.backend.read(look)
        self.worker.off = off = None if self.settings.sending else SENDING_OFF
        self.outbox.standing = Standing(off=off, slots=self.settings.slots)
        self.events.tell(Event.ADOPTED, deployment=deployment)
        self.wake()

    async def _keep_house(self) -> None:
        """Run the outbox's periodic pass, on at once while it finds something."""
        every, away = self.durations.scaled(HOUSEKEEPING_SECONDS), False
        while True:
            await self.clock.sleep(every)
            try:
                while await self.outbox.sweep():  # noqa: ASYNC110 - a batch each
                    await asyncio.sleep(0)
                away = False
            except Unavailable as error:
                if not away:  # a line for each outage, not one for each pass
                    self.events.tell(Event.HOUSEKEEPING_FAILED, why=str(error))
                away = True
            except Exception as error:  # noqa: BLE001 - tried again, never the end
                self.events.tell(Event.HOUSEKEEPING_FAILED, error=error)

    def _task_failed(self, name: str, error: BaseException) -> None:
        self.events.tell(Event.LOOP_FAILED, error=error, task=name)

    def _heard(self, event: Event, fields: Mapping[str, object]) -> None:
        """Remember what ended that must not: health says so until a restart."""
        name = str(fields.get("task", ""))
        if event is Event.LOOP_FAILED and name in LASTING:
            self._died.append(name)


def _new_metrics() -> Metrics:
    from tenure.telemetry.metrics import Metrics  # reads from disk: not on a loop

    return Metrics()


def _secret(settings: Settings) -> str | None:
    key = settings.bootstrap_key
    return None if key is None else key.get_secret_value()


def _started(part: T | None) -> T:
    if part is None:
        msg = "the engine is not started: use `async with` or `await start()` first"
        raise InvariantViolated(msg)
    return part
