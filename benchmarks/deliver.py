"""T2: delivering a backlog to a real sink, beside bare client loops to the same sink.

The backlog is filled once and copied for each round, so every round begins with the
same rows. A round is timed from the instant at which the node may claim to the instant
at which the last row has succeeded. Two floors go to the same sink in the same round:
a bare asyncio + httptools loop that checks nothing, and Tenure's own client without a
database. A second figure times submit and delivery together: accepted over the outbox
while the same process delivers.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final

from benchmarks.databases import SHOWN, Dialect, Kept
from benchmarks.figures import Figure, Result, median, ratio_of, spread
from benchmarks.http_client import BODY, Clients
from benchmarks.node import Node
from benchmarks.processes import Child, child
from benchmarks.runs import Run
from benchmarks.sink import Sink

PER_APP: Final = 4
ENDPOINTS: Final = 16
"""In all: one lane may hold an eighth of the slots."""
REFERENCE: Final[dict[Dialect, tuple[float, str]]] = {
    "postgresql": (220.0, "170-220"),
    "sqlite": (460.0, "250-460"),
}
"""Deliveries a second of the reference system's dispatcher, as the targets state them:
the highest for the ratio, and the range; not run again."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The processes of this benchmark, and where the sink listens."""

    sink: Child
    clients: Child
    node: Child
    port: int


@dataclass(slots=True)
class Rounds:
    """Per second, one value for each round."""

    bare_cpu: list[float] = field(default_factory=list[float])
    """µs of the loop's processor time for each request."""
    cpu: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """µs of the node's processor time for each delivery."""
    bare: list[float] = field(default_factory=list[float])
    client: list[float] = field(default_factory=list[float])
    deliver: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    through: dict[str, list[float]] = field(default_factory=dict[str, list[float]])


async def run(given: Run) -> Result:
    """Measure both databases."""
    result = Result()
    async with child(Sink) as sink, child(Clients) as clients, child(Node) as node:
        port = await sink.call("listen")
        for dialect in given.dialects:
            result.add(await _one(given, dialect, Parts(sink, clients, node, port)))
    return result


async def _one(given: Run, dialect: Dialect, parts: Parts) -> Result:
    count = given.pick(tiny=60, quick=5_000, full=50_000)
    requests = given.pick(tiny=100, quick=10_000, full=30_000)
    full = await _filled(given, dialect, parts, count)
    empty = await _filled(given, dialect, parts, 0)
    rounds, result = Rounds(), Result()
    for _ in range(given.rounds):
        for name, rates in (("bare", rounds.bare), ("ours", rounds.client)):
            rate, cpu = await parts.clients.call(name, parts.port, requests)
            rates.append(rate)
            if rates is rounds.bare:
                rounds.bare_cpu.append(cpu)
        for name, settings in given.variants().items():
            async with _restored(given, full, parts, settings):
                used: float = await parts.node.call("cpu")
                rate = await _drained(given, parts, count)
                rounds.deliver.setdefault(name, []).append(rate)
                used = await parts.node.call("cpu") - used
                rounds.cpu.setdefault(name, []).append(used * 1e6 / count)
            async with _restored(given, empty, parts, settings) as apps:
                rate = await _through(given, parts, apps, count)
                rounds.through.setdefault(name, []).append(rate)
    if given.profile:
        async with _restored(given, full, parts, dict(given.settings)):
            await parts.node.call("start_profile")
            await _drained(given, parts, count)
            title = f"T2 deliver, {SHOWN[dialect]}: the event loop's thread"
            result.tables[title] = await parts.node.call("stop_profile")
    result.figures += _figures(dialect, rounds)
    return result


async def _filled(given: Run, dialect: Dialect, parts: Parts, count: int) -> Kept:
    """Keep a database with applications, endpoints and a backlog."""
    url = await given.databases.fresh(dialect)
    await parts.node.call("open", url, works=False)
    hooks = [f"http://127.0.0.1:{parts.port}/hook/{n}" for n in range(PER_APP)]
    apps = await parts.node.call("make", hooks, apps=ENDPOINTS // PER_APP)
    # Each message goes to every endpoint of its application.
    await parts.node.call("fill", apps, count // PER_APP, BODY)
    await parts.node.call("close")
    return await given.databases.keep(url)


@contextlib.asynccontextmanager
async def _restored(
    given: Run, kept: Kept, parts: Parts, settings: dict[str, str]
) -> AsyncGenerator[list[str]]:
    url = await given.databases.restore(kept)
    await given.databases.settle()
    await parts.node.call("open", url, settings=settings, sending=False)
    yield await parts.node.call("apps")
    await parts.node.call("close")


async def _drained(given: Run, parts: Parts, count: int) -> float:
    await parts.sink.call("reset")
    began = await parts.node.call("begin")
    return count / (await _all_settled(given, parts, count) - began)


async def _through(given: Run, parts: Parts, apps: list[str], count: int) -> float:
    await parts.sink.call("reset")
    began = await parts.node.call("begin")
    await parts.node.call("fill", apps, count // PER_APP, BODY)
    return count / (await _all_settled(given, parts, count) - began)


async def _all_settled(given: Run, parts: Parts, count: int) -> float:
    seconds = given.pick(tiny=60, quick=400, full=500)
    found = await parts.sink.call("until", count, seconds)
    if found < count:
        raise RuntimeError(f"{found} of {count} requests arrived")
    ended: float = await parts.node.call("until_settled", count)
    if (found := (await parts.sink.call("counted"))[0]) != count:
        raise RuntimeError(f"{found} requests for {count} deliveries")
    return ended


def _figures(dialect: Dialect, rounds: Rounds) -> list[Figure]:
    where, (reference, shown) = SHOWN[dialect], REFERENCE[dialect]
    client = ratio_of(rounds.client, rounds.bare)
    figures = [
        Figure(
            mark="T2",
            what=f"Tenure's client / bare loop, to the same sink ({where} rounds)",
            measured=f"{client:.2f}: {spread(rounds.client)}/s of"
            f" {spread(rounds.bare)}/s",
        )
    ]
    for name, rates in rounds.deliver.items():
        share = ratio_of(rates, rounds.bare)
        figures += [
            Figure(
                mark="T2",
                what=f"deliver / bare loop, {where}{name}",
                measured=f"{share:.2f}: {spread(rates)}/s"
                f" ({ratio_of(rates, rounds.client):.2f} of Tenure's client);"
                f" CPU {median(rounds.cpu[name]):.0f} µs each beside"
                f" {median(rounds.bare_cpu):.0f} µs",
                ratio=share,
                at_least=0.35,
            ),
            Figure(
                mark="T2",
                what=f"deliver / the reference's {shown}/s, {where}{name}",
                measured=f"{median(rates) / reference:.0f} times its highest",
                ratio=median(rates) / reference,
                at_least=20,
            ),
            Figure(
                mark="T2",
                what=f"submit and deliver in one process, {where}{name}",
                measured=f"{spread(rounds.through[name])}/s",
            ),
        ]
    return figures
