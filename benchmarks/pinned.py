"""Case 22: a long transaction pins the oldest snapshot while work goes through.

Vacuum can remove nothing then, so each lane grows a prefix of dead entries. At 500
messages a second every one must still go out; at full speed, with work that does
nothing, the loss is measured. Each with a run without the long transaction beside it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Final

import asyncpg

from benchmarks.databases import dsn_of
from benchmarks.figures import Figure, Result, ms, percentile
from benchmarks.load import STAMP, Callers, post
from benchmarks.node import KEY, Node
from benchmarks.processes import child
from benchmarks.runs import Run
from benchmarks.sink import Sink
from benchmarks.worker import Worker

ENDPOINTS: Final = 16
PATIENCE: Final = 120.0
BODY: Final = b'{"eventType":"order.paid","payload":{"t":"%b"}}' % STAMP


async def run(given: Run) -> Result:
    """Measure PostgreSQL; SQLite has one writer and no such thing."""
    seconds = given.pick(tiny=1.5, quick=15.0, full=180.0)
    result = Result()
    result.figures.append(await _paced(given, seconds))
    result.figures += await _at_full_speed(given, seconds)
    return result


@contextlib.asynccontextmanager
async def _pinning(url: str, *, pinned: bool) -> AsyncGenerator[None]:
    if not pinned:
        yield
        return
    connection = await asyncpg.connect(dsn_of(url))
    try:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.fetchval("SELECT pg_current_xact_id()")
        yield
        await connection.execute("ROLLBACK")
    finally:
        await connection.close()


async def _paced(given: Run, seconds: float) -> Figure:
    rate = given.pick(tiny=30.0, quick=500.0, full=500.0)
    (free, _), (pinned, p99) = [
        await _delivered(given, seconds, rate, pinned=each) for each in (False, True)
    ]
    return Figure(
        mark="case 22",
        what=f"delivered at {rate:.0f}/s under a pinned snapshot / without",
        measured=f"{pinned / free:.2f}: {pinned:,.0f}/s beside {free:,.0f}/s over"
        f" {seconds:g} s, all of them; p99 {ms(p99)}",
        ratio=pinned / free,
        at_least=0.8,
    )


async def _delivered(
    given: Run, seconds: float, rate: float, *, pinned: bool
) -> tuple[float, float]:
    """Return deliveries a second until the last one, and the p99 of their delays."""
    url = await given.databases.fresh("postgresql")
    async with child(Sink) as sink, child(Node) as node, child(Callers) as callers:
        port = await sink.call("listen")
        await node.call("open", url, settings=dict(given.settings))
        apps = await node.call("make", [f"http://127.0.0.1:{port}/h"], apps=ENDPOINTS)
        there = await node.call("serve")
        requests = tuple(
            post(there, f"/api/v1/app/{app}/msg", BODY, f"Authorization: Bearer {KEY}")
            for app in apps
        )
        async with _pinning(url, pinned=pinned):
            began = time.monotonic()
            sent, _ = await callers.call(
                "pace", there, requests, rate=rate, seconds=seconds
            )
            found = await sink.call("until", sent, PATIENCE, timed=True)
            took = time.monotonic() - began
        if found != sent:
            raise RuntimeError(f"{found} requests for {sent} messages")
        return sent / took, percentile(await sink.call("taken"), 0.99)


async def _at_full_speed(given: Run, seconds: float) -> list[Figure]:
    slices: dict[bool, list[int]] = {}
    for pinned in (False, True):
        url = await given.databases.empty("postgresql")
        async with child(Worker) as worker:
            await worker.call("open", url)
            async with _pinning(url, pinned=pinned):
                slices[pinned] = await worker.call("flow", seconds, rate=None)
    free, held = (sum(slices[each]) / seconds for each in (False, True))
    each = seconds / 10
    first, last = slices[True][0] / each, slices[True][-1] / each
    return [
        Figure(
            mark="case 22",
            what="no-op work at full speed under a pinned snapshot / without",
            measured=f"{held / free:.2f}: {held:,.0f}/s beside {free:,.0f}/s over"
            f" {seconds:g} s; {first:,.0f}/s in the first tenth, {last:,.0f}/s in the"
            " last",
        )
    ]
