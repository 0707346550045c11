"""What the worker's tests share: a kind that runs test code, and nodes in one process."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Any

from tenure.clock import Clock, SystemClock
from tenure.ids import LaneId, NodeId, TenantId, WorkId, new_work_id
from tenure.kernel.commands import Failed, Parked, Succeeded
from tenure.kernel.states import Attempt, Work
from tenure.limits import Durations
from tenure.store import nodes
from tenure.store.backend import Backend
from tenure.store.claims import (
    CERTAIN,
    Claimed,
    Effect,
    NewWork,
    Settled,
    submit,
    sweep,
)
from tenure.store.claims.rows import attempts_of, read
from tenure.store.lanes import add_group, add_lane
from tenure.store.tx import Tx
from tenure.telemetry.events import Event, Events
from tenure.work.drain import Drain, Drained
from tenure.work.kinds import Guard, Prepared, Ran, seal
from tenure.work.loop import WorkerLoop
from tenure.work.node import Node
from tenure.work.pauses import Pauses, Point

PROBE = "probe"
TENANT = TenantId("default")
PATIENCE = 20.0
"""Seconds after which a fact that did not come true fails a test."""

STILL = Durations(0.1)
"""Beats every 50 s: nothing happens but what the test does."""
QUICK = Durations(10)
"""Beats twice a second; fence 2.5 s, dead after 4 s."""

Play = Callable[[Prepared, Guard], Awaitable[Ran]]

SUCCESS = Ran(result=Succeeded())


def failure(retry_at: int | None = None, reason: str = "503") -> Ran:
    return Ran(
        result=Failed(retry_at=retry_at, charged=True, counts_try=True, reason=reason)
    )


async def until(fact: Callable[[], Any], what: str = "the fact") -> Any:
    """Wait until something is true; its value is returned."""
    async with asyncio.timeout(PATIENCE):
        while not (value := fact()):  # noqa: ASYNC110 - any fact, not an event
            await asyncio.sleep(0.005)
        return value


async def until_read(
    backend: Backend, fn: Callable[[Tx], Any], fact: Callable[[Any], bool]
) -> Any:
    """Wait until what the database shows is as it should be; return that."""
    async with asyncio.timeout(PATIENCE):
        while not fact(value := await backend.read(fn)):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        return value


@dataclass(slots=True)
class Gate:
    """Code that waits inside until the test lets it go."""

    entered: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def pass_through(self) -> None:
        self.entered.set()
        await self.opened.wait()

    async def wait_entered(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.entered.wait()


class Probe:
    """A kind whose attempts are what the test wrote; a request is one `begun`."""

    name = PROBE
    needs = PROBE

    def __init__(self, *, late_success: bool = True) -> None:
        self.late_success = late_success
        self.begun: list[tuple[str, int]] = []
        self.running: Counter[LaneId] = Counter()
        self.most: Counter[LaneId] = Counter()
        self.most_at_once = 0
        self.plays: dict[str, Play] = {}
        self.default: Play | None = None
        self.undecodable: set[str] = set()
        self.loads: list[int] = []
        self.evidence_of: Callable[[Settled], Sequence[Effect]] = lambda _: ()
        self.effects_of: Callable[[Settled], Sequence[Effect]] = lambda _: ()

    def requests(self, subject: str) -> int:
        return sum(1 for begun, _ in self.begun if begun == subject)

    def load(self, tx: Tx, claims: Sequence[Claimed]) -> Sequence[Prepared | Parked]:
        self.loads.append(len(claims))
        for claimed in claims:
            if claimed.work.subject in self.undecodable:
                raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        return [
            Prepared(claimed=claimed, job=claimed.work.subject) for claimed in claims
        ]

    async def run(self, prepared: Prepared, guard: Guard) -> Ran:
        work = prepared.claimed.work
        if not guard.may_begin():
            return Ran(result=Succeeded(), released=True)
        self.begun.append((work.subject, work.claim))
        self.running[work.lane] += 1
        self.most[work.lane] = max(self.most[work.lane], self.running[work.lane])
        self.most_at_once = max(self.most_at_once, self.running.total())
        try:
            play = self.plays.get(work.subject, self.default)
            return SUCCESS if play is None else await play(prepared, guard)
        finally:
            self.running[work.lane] -= 1

    def evidence(self, items: Sequence[Settled]) -> Sequence[Effect]:
        return [effect for item in items for effect in self.evidence_of(item)]

    def effects(self, items: Sequence[Settled]) -> Sequence[Effect]:
        return [effect for item in items for effect in self.effects_of(item)]

    def hold(self, subject: str, after: Ran = SUCCESS) -> Gate:
        """Let attempts of a subject wait inside; each ends with `after`."""
        gate = Gate()

        async def play(prepared: Prepared, guard: Guard) -> Ran:
            await gate.pass_through()
            return after

        self.plays[subject] = play
        return gate

    def answer(self, subject: str, *ran: Ran) -> None:
        """Let the attempts of a subject end with these, in turn; the last repeats."""
        left = list(ran)

        async def play(prepared: Prepared, guard: Guard) -> Ran:
            return left.pop(0) if len(left) > 1 else left[0]

        self.plays[subject] = play


class Held(Pauses):
    """Holds the worker at chosen points until the test lets it go."""

    __slots__ = ("gates",)

    def __init__(self) -> None:
        self.gates: dict[Point, Gate] = {}

    def hold(self, point: Point) -> Gate:
        return self.gates.setdefault(point, Gate())

    async def at(self, point: Point, **facts: Any) -> None:
        gate = self.gates.get(point)
        if gate is not None:
            await gate.pass_through()


@dataclass(slots=True, eq=False)
class Member:
    """One node of the test's fleet."""

    backend: Backend
    kind: Probe
    loop: WorkerLoop
    node: Node
    drain: Drain
    events: Events
    running: asyncio.Task[None] | None = None
    drained: Drained | None = None

    @property
    def id(self) -> NodeId:
        assert self.node.id is not None
        return self.node.id

    def count(self, event: Event) -> int:
        return self.events.count(event)

    async def kill(self) -> None:
        """End as a killed process does: nothing settled, nothing said, the lock free."""
        await asyncio.to_thread(self.node.beats.stop, PATIENCE)
        if self.running is not None:
            self.running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.running
        await self.loop.aclose()
        lock = self.node._lock
        assert lock is not None
        assert lock._descriptor is not None
        os.close(lock._descriptor)
        lock._descriptor = None
        self.drained = Drained(
            finished=0,
            released=0,
            cut=0,
            unwritten=0,
            budget_seconds=0,
            settle_seconds=0,
            took_seconds=0,
        )

    async def end(self) -> None:
        """Stop without waiting for what is still held at a gate."""
        self.drain.hurry()
        if self.running is not None and not self.running.done():
            self.loop.close()
            await asyncio.wait([self.running], timeout=1.0)
            self.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.stop()

    async def stop(self) -> Drained:
        if self.drained is None:
            self.drained = await self.drain.run()
            if self.running is not None:
                await self.running
        return self.drained


@dataclass(slots=True, eq=False)
class Rig:
    """A database, its lanes, and as many nodes as a test wants."""

    backend: Backend
    exits: contextlib.AsyncExitStack
    members: list[Member] = field(default_factory=list[Member])
    group: int | None = None

    async def lane(
        self,
        deadline_seconds: float = 60.0,
        *,
        group: int | None = None,
        **settings: Any,
    ) -> LaneId:
        def make(tx: Tx) -> LaneId:
            mine = group or self.group or add_group(tx, TENANT)
            self.group = self.group or mine
            return add_lane(
                tx,
                group=mine,
                kind=PROBE,
                tenant=TENANT,
                subject="lane",
                needs=PROBE,
                deadline_us=round(deadline_seconds * 1_000_000),
                settings=settings,
            )

        return await self.backend.write(make)

    async def submit(self, lane: LaneId, *subjects: str, **more: Any) -> list[WorkId]:
        rows = [
            NewWork(
                id=new_work_id(),
                lane=lane,
                kind=PROBE,
                tenant=TENANT,
                subject=subject,
                **more,
            )
            for subject in subjects
        ]
        await self.backend.write(lambda tx: submit(tx, rows))
        self.wake()
        return [row.id for row in rows]

    def wake(self) -> None:
        for member in self.members:
            member.loop.signal.wake()

    async def member(
        self,
        kind: Probe | None = None,
        *,
        slots: int = 8,
        durations: Durations = STILL,
        pauses: Pauses | None = None,
        backend: Backend | None = None,
        clock: Clock | None = None,
        drain_seconds: float = 30.0,
        claims: bool = True,
    ) -> Member:
        """Open a node and, unless it `claims` nothing, run its loop."""
        kind = kind or Probe()
        events, clock = Events(), clock or SystemClock()
        shared: dict[str, Any] = {
            "clock": clock,
            "durations": durations,
            "events": events,
        }
        backend = backend or self.backend
        loop = WorkerLoop(
            backend, seal([kind]), slots=slots, pauses=pauses or Pauses(), **shared
        )
        node = Node(
            backend,
            loop,
            name=f"node-{len(self.members)}",
            version="test",
            serves=frozenset({PROBE}),
            pauses=pauses or Pauses(),
            **shared,
        )
        drain = Drain(loop, node, seconds=drain_seconds, **shared)
        member = Member(backend, kind, loop, node, drain, events)
        await node.open()
        await until(
            lambda: node.beats.ended > 0 or node.beats.failing,
            "a first beat, to its end",
        )
        self.members.append(member)
        if claims:
            self.run(member)
        self.exits.push_async_callback(member.end)
        return member

    def run(self, member: Member) -> None:
        member.running = asyncio.create_task(member.loop.run())

    async def row(self, work: WorkId) -> Work:
        found = await self.backend.read(lambda tx: read(tx, [work]))
        return found[work]

    async def attempt(self, work: WorkId, claim: int) -> Attempt | None:
        found = await self.backend.read(lambda tx: attempts_of(tx, [(work, claim)]))
        return found.get((work, claim))

    async def until_row(self, work: WorkId, fact: Callable[[Work], bool]) -> Work:
        rows = await until_read(
            self.backend, lambda tx: read(tx, [work]), lambda rows: fact(rows[work])
        )
        return rows[work]

    async def until_state(self, work: WorkId, state: str) -> Work:
        return await self.until_row(work, lambda row: row.state == state)

    async def bury(self, member: Member, why: str = CERTAIN) -> None:
        """Close a node's row, as others would, and lose what it holds."""
        node = member.id

        def close(tx: Tx) -> None:
            assert nodes.close_node(tx, node, why)

        await self.backend.write(close)
        await self.backend.write(sweep)

    async def lose_alone(self, work: WorkId) -> None:
        """Lose one claim of an open node, as the sweep does when its loop stalls."""

        def stall(tx: Tx) -> None:
            tx.run("UPDATE work SET deadline_at = 1 WHERE id = :id", {"id": work})
            tx.run("UPDATE node SET tick_at = 1")
            lost = sweep(tx)
            assert [row.work for row in lost] == [work]
            tx.run("UPDATE node SET tick_at = :now", {"now": tx.now})

        await self.backend.write(stall)

    async def counts(self) -> Mapping[str, int]:
        found = await self.backend.read(
            lambda tx: tx.all("SELECT state, count(*) FROM work GROUP BY state")
        )
        return {row[0]: row[1] for row in found}


@contextlib.asynccontextmanager
async def rigged(backend: Backend) -> AsyncGenerator[Rig]:
    async with contextlib.AsyncExitStack() as exits:
        yield Rig(backend, exits)
