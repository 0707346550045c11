"""T4: from submit to the request at the sink, on an idle node.

One message at a time with a pause between them. Beside each, in turn: one durable
commit of one small row on the same database, and one bare request to the same sink over
a connection that is open. Their sum is the least that the message could take.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Final

from benchmarks.asking import Asker
from benchmarks.databases import SHOWN, Dialect, dsn_of
from benchmarks.figures import Figure, Result, ms, percentile
from benchmarks.load import STAMP, post
from benchmarks.node import KEY, Node
from benchmarks.processes import Child, child
from benchmarks.runs import Run
from benchmarks.sink import Sink

PATIENCE: Final = 30.0
BODY: Final = b'{"eventType":"order.paid","payload":{"t":"%b"}}' % STAMP
BARE: Final = b'{"t":"%b"}' % STAMP


async def run(given: Run) -> Result:
    """Measure both databases."""
    result = Result()
    for dialect in given.dialects:
        for name, settings in given.variants().items():
            result.figures += await _one(given, dialect, name, settings)
    return result


async def _one(
    given: Run, dialect: Dialect, name: str, settings: dict[str, str]
) -> list[Figure]:
    count = given.pick(tiny=5, quick=120, full=1_000)
    floors: list[float] = []
    asked: list[float] = []
    async with _ready(given, dialect, settings) as (asker, sink, ports, path):
        node_port, sink_port = ports
        bare = post(sink_port, "/bare", BARE)
        message = post(node_port, path, BODY, f"Authorization: Bearer {KEY}")
        for _ in range(5):  # connections and plans; not counted
            await asker.call("send", node_port, message)
        await sink.call("until", 5, PATIENCE)
        await sink.call("reset")
        for done in range(count):
            commit: float = await asker.call("commit")
            await asker.call("send", sink_port, bare)
            asked.append(await asker.call("send", node_port, message))
            arrived = await sink.call("until", 2 * (done + 1), PATIENCE)
            if arrived != 2 * (done + 1):
                raise RuntimeError(f"a message did not arrive in {PATIENCE} s")
            floors.append(commit)
        times: list[float] = await sink.call("taken")
    floors = [one + two for one, two in zip(floors, times[::2], strict=True)]
    return _figures(f"{SHOWN[dialect]}{name}", floors, times[1::2], asked)


@contextlib.asynccontextmanager
async def _ready(
    given: Run, dialect: Dialect, settings: dict[str, str]
) -> AsyncGenerator[tuple[Child, Child, tuple[int, int], str]]:
    async with child(Asker) as asker, child(Sink) as sink, child(Node) as node:
        sink_port = await sink.call("listen")
        url = await given.databases.fresh(dialect)
        await node.call("open", url, settings=settings)
        (app,) = await node.call("make", [f"http://127.0.0.1:{sink_port}/hook"])
        await asker.call("connect", dsn_of(url))
        ports = await node.call("serve"), sink_port
        yield asker, sink, ports, f"/api/v1/app/{app}/msg"


def _figures(
    where: str, floors: list[float], times: list[float], asked: list[float]
) -> list[Figure]:
    figures: list[Figure] = []
    for name, share, at_most in (("p50", 0.5, 3), ("p99", 0.99, 5)):
        floor, time_, answer = (percentile(v, share) for v in (floors, times, asked))
        figures.append(
            Figure(
                mark="T4",
                what=f"submit → request, {name} / (a commit + a request), {where}",
                measured=f"{time_ / floor:.1f}: {ms(time_)} beside {ms(floor)};"
                f" answered after {ms(answer)}",
                ratio=time_ / floor,
                at_most=at_most,
            )
        )
    return figures
