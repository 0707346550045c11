"""A node whose work does nothing: what claiming, recording and settling cost by itself.

The product's worker loop, node, beats and fence as they are; only the kind of work is
ours. Rows are submitted and settled in transactions of the product's own making.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from benchmarks.processes import Actor
from tenure.clock import SystemClock
from tenure.ids import LaneId, TenantId, new_work_id
from tenure.kernel.commands import Succeeded
from tenure.limits import SLOTS, Durations
from tenure.store.backend import Backend, open_backend
from tenure.store.claims import Claimed, Effect, NewWork, Settled, submit
from tenure.store.lanes import add_group, add_lane
from tenure.store.tx import Tx
from tenure.telemetry.events import Events
from tenure.work.drain import Drain
from tenure.work.kinds import Guard, Loaded, Prepared, Ran, seal
from tenure.work.loop import WorkerLoop
from tenure.work.node import Node
from tenure.work.pauses import Pauses

TENANT: Final = TenantId("default")
NAME: Final = "noop"
LANES: Final = 20
DEADLINE_US: Final = 60_000_000
CHUNK: Final = 1_000  # rows of one submitting transaction
DONE: Final = Ran(result=Succeeded())
STATES: Final = "SELECT count(*) FROM work WHERE state = 'succeeded'"


class Noop:
    """A kind that asks for its guard and is done."""

    name = NAME
    needs = NAME
    late_success = True

    def __init__(self) -> None:
        self.runs = 0

    def load(self, tx: Tx, claims: Sequence[Claimed]) -> Sequence[Loaded]:
        """Nothing to read."""
        del tx
        return [Prepared(claimed=claimed, job=None) for claimed in claims]

    async def run(self, prepared: Prepared, guard: Guard) -> Ran:
        """Do nothing, once it may."""
        del prepared
        if not guard.may_begin():
            return Ran(result=Succeeded(), released=True)
        self.runs += 1
        return DONE

    def evidence(self, items: Sequence[Settled]) -> Sequence[Effect]:
        """Only the attempt row is kept."""
        del items
        return ()

    def effects(self, items: Sequence[Settled]) -> Sequence[Effect]:
        """Nothing else changes."""
        del items
        return ()


class Worker(Actor):
    """One node over one database."""

    backend: Backend
    loop: WorkerLoop

    def __init__(self) -> None:
        self._exits = contextlib.AsyncExitStack()
        self.kind = Noop()
        self.lanes: list[LaneId] = []
        self.submitted = 0

    async def open(self, url: str, *, slots: int = SLOTS) -> None:
        """Open the database, make the lanes, and join with the loop held."""
        self.backend = await open_backend(url)
        self._exits.push_async_callback(self.backend.aclose)
        await self.backend.migrate(post=True)
        shared: dict[str, Any] = {
            "clock": SystemClock(),
            "durations": Durations(),
            "events": Events(),
        }
        kinds = seal([self.kind])
        self.loop = WorkerLoop(
            self.backend, kinds, slots=slots, pauses=Pauses(), **shared
        )
        self.loop.off = "held by the benchmark"
        node = Node(
            self.backend,
            self.loop,
            name="bench",
            version="bench",
            serves=frozenset({NAME}),
            pauses=Pauses(),
            **shared,
        )
        await node.open()
        self._exits.push_async_callback(Drain(self.loop, node, seconds=1, **shared).run)
        self._running = asyncio.create_task(self.loop.run())
        self.lanes = await self.backend.write(_make_lanes)

    async def fill(self, count: int) -> float:
        """Submit rows in batches; return the seconds."""
        began = time.perf_counter()
        for low in range(0, count, CHUNK):
            await self._submit(min(CHUNK, count - low))
        return time.perf_counter() - began

    async def _submit(self, count: int) -> None:
        rows = [
            NewWork(
                id=new_work_id(),
                lane=self.lanes[number % len(self.lanes)],
                kind=NAME,
                tenant=TENANT,
                subject="bench",
            )
            for number in range(count)
        ]
        await self.backend.write(lambda tx: submit(tx, rows))
        self.submitted += count

    async def drain(self, count: int) -> float:
        """Let the loop claim until everything has succeeded; return rows a second."""
        began = time.perf_counter()
        self.loop.off = None
        self.loop.signal.wake()
        while self.kind.runs < self.submitted:
            await asyncio.sleep(0.005)
        while await self.backend.read(lambda tx: tx.scalar(STATES)) < self.submitted:
            await asyncio.sleep(0.005)
        rate = count / (time.perf_counter() - began)
        self.loop.off = "held by the benchmark"
        return rate

    async def flow(self, seconds: float, *, rate: float | None) -> list[int]:
        """Submit at a rate, or as fast as the rows go; return rows done per slice.

        There are ten slices. At full speed two thousand rows wait at any time.
        """
        self.loop.off = None
        began, first = time.perf_counter(), self.kind.runs
        done = [first]
        batch = CHUNK if rate is None else max(1, round(rate / 50))
        while (now := time.perf_counter() - began) < seconds:
            if now >= len(done) * seconds / 10:
                done.append(self.kind.runs)
            ahead = self.submitted - self.kind.runs
            due = (
                ahead < 2 * CHUNK
                if rate is None
                else (self.submitted - first < now * rate)
            )
            if due:
                await self._submit(batch)
                self.loop.signal.wake()
            else:
                await asyncio.sleep(0.002)
        done.append(self.kind.runs)
        self.loop.signal.wake()
        while self.kind.runs < self.submitted:
            await asyncio.sleep(0.01)
        self.loop.off = "held by the benchmark"
        return [later - sooner for sooner, later in pairwise(done)]

    async def aclose(self) -> None:
        """Leave."""
        await self._exits.aclose()


def _make_lanes(tx: Tx) -> list[LaneId]:
    group = add_group(tx, TENANT)
    return [
        add_lane(
            tx,
            group=group,
            kind=NAME,
            tenant=TENANT,
            subject=f"lane {number}",
            needs=NAME,
            deadline_us=DEADLINE_US,
        )
        for number in range(LANES)
    ]
