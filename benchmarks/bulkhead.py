"""Case 9: one endpoint that takes 30 s for every request, beside 200 quick ones.

Messages come by HTTP at half of what this node was just measured to accept and deliver,
first without and then with the slow endpoint; each round on a node that starts fresh.
The others' time runs from the sending of the submit to the request at the sink.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final

from benchmarks.databases import SHOWN, Dialect, Kept
from benchmarks.figures import Figure, Result, median, ms, percentile, ratio_of
from benchmarks.load import STAMP, Callers, Loaded, post
from benchmarks.node import KEY, Node
from benchmarks.processes import Child, child
from benchmarks.runs import Run
from benchmarks.sink import Sink

QUICK: Final = 200
CALLERS: Final = 50
PATIENCE: Final = 120.0
BODY: Final = b'{"eventType":"order.paid","payload":{"t":"%b"}}' % STAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The processes, and the applications: one for each endpoint, the slow one last."""

    sink: Child
    node: Child
    callers: Child
    kept: Kept
    apps: list[str]


@dataclass(slots=True)
class Times:
    """The others' p99 in seconds, one value for each round."""

    without: list[float] = field(default_factory=list[float])
    beside: list[float] = field(default_factory=list[float])


async def run(given: Run) -> Result:
    """Measure both databases."""
    result = Result()
    for dialect in given.dialects:
        async with child(Sink) as sink, child(Node) as node, child(Callers) as callers:
            port = await sink.call("listen")
            url = await given.databases.fresh(dialect)
            await node.call("open", url, works=False)
            apps = await node.call(
                "make",
                [f"http://127.0.0.1:{port}/quick"],
                apps=given.pick(tiny=10, quick=QUICK, full=QUICK),
            )
            wait = given.pick(tiny=1_000, quick=30_000, full=30_000)
            apps += await node.call(
                "make", [f"http://127.0.0.1:{port}/wait/{wait}"], timeout_seconds=60.0
            )
            await node.call("close")
            parts = Parts(
                sink=sink,
                node=node,
                callers=callers,
                kept=await given.databases.keep(url),
                apps=apps,
            )
            result.figures += await _one(given, dialect, parts)
    return result


async def _one(given: Run, dialect: Dialect, parts: Parts) -> list[Figure]:
    capacity = await _capacity(given, parts)
    times = Times()
    for _ in range(given.pick(tiny=1, quick=2, full=3)):
        times.without.append(await _p99(given, parts, capacity / 2, slow=False))
        times.beside.append(await _p99(given, parts, capacity / 2, slow=True))
    ratio = ratio_of(times.beside, times.without)
    return [
        Figure(
            mark="case 9",
            what=f"others' p99 beside a slow endpoint / without, {SHOWN[dialect]}",
            measured=f"{ratio:.2f}: {ms(median(times.beside))} beside"
            f" {ms(median(times.without))}, at {capacity / 2:,.0f}/s of"
            f" {capacity:,.0f}/s",
            ratio=ratio,
            at_most=1.5,
        )
    ]


@contextlib.asynccontextmanager
async def _open(given: Run, parts: Parts) -> AsyncGenerator[tuple[int, list[bytes]]]:
    """Start the node afresh; give its port and a request for each application."""
    url = await given.databases.restore(parts.kept)
    await given.databases.settle()
    await parts.node.call("open", url, settings=dict(given.settings))
    port = await parts.node.call("serve")
    await parts.sink.call("reset")
    yield (
        port,
        [
            post(port, f"/api/v1/app/{app}/msg", BODY, f"Authorization: Bearer {KEY}")
            for app in parts.apps
        ],
    )
    await parts.node.call("close")


async def _capacity(given: Run, parts: Parts) -> float:
    """Return how many messages a second are accepted and delivered."""
    async with _open(given, parts) as (port, requests):
        began = time.monotonic()
        loaded: Loaded = await parts.callers.call(
            "drive",
            port,
            tuple(requests[:-1]),
            callers=given.pick(tiny=4, quick=CALLERS, full=CALLERS),
            seconds=given.pick(tiny=0.3, quick=3.0, full=10.0),
        )
        await parts.node.call("until_settled", loaded.count)
        return loaded.count / (time.monotonic() - began)


async def _p99(given: Run, parts: Parts, rate: float, *, slow: bool) -> float:
    seconds = given.pick(tiny=1.0, quick=6.0, full=45.0)
    async with _open(given, parts) as (port, requests):
        turn = tuple(requests if slow else requests[:-1])
        sent, _ = await parts.callers.call(
            "pace", port, turn, rate=rate, seconds=seconds
        )
        quick = sent - sent // len(turn) if slow else sent
        found = await parts.sink.call("until", quick, PATIENCE, timed=True)
        if found < quick:
            raise RuntimeError(f"{found} of {quick} requests of the others started")
        return percentile(await parts.sink.call("taken"), 0.99)
