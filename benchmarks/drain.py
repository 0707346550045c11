"""T3: work that does nothing, drained by one process, beside other queues.

All on one PostgreSQL server, durable, in turn round by round. Tenure keeps its whole
history (a work row and an attempt each) and fences every attempt.
"""

from __future__ import annotations

import contextlib
from typing import Final

from benchmarks.databases import dsn_of
from benchmarks.facts import installed
from benchmarks.figures import Figure, Result, median, ratio_of, spread
from benchmarks.peers import Dbos, Pgqueuer, Procrastinate
from benchmarks.processes import Actor, child
from benchmarks.runs import Run
from benchmarks.worker import LANES, Worker
from tenure.limits import SLOTS

PEERS: Final[dict[str, type[Actor]]] = {
    "pgqueuer": Pgqueuer,
    "procrastinate": Procrastinate,
    "dbos": Dbos,
}
SLOW: Final = frozenset({"procrastinate", "dbos"})
"""Those that get a tenth of the jobs, so that a round ends in time."""


async def run(given: Run) -> Result:
    """Measure Tenure and every peer that is installed."""
    count = given.pick(tiny=40, quick=10_000, full=50_000)
    rates: dict[str, list[float]] = {}
    result = Result()
    async with contextlib.AsyncExitStack() as exits:
        actors: dict[str, type[Actor]] = {"tenure": Worker}
        actors |= {name: made for name, made in PEERS.items() if installed(name)}
        missing = sorted(PEERS.keys() - actors.keys())
        if missing:
            result.notes.append(f"T3 without {', '.join(missing)}: not installed")
        children = {}
        for name, actor in actors.items():
            children[name] = await exits.enter_async_context(child(actor))
            url = await given.databases.empty("postgresql")
            await children[name].call("open", dsn_of(url))
        for _ in range(given.rounds):
            for name, process in children.items():
                jobs = max(20, count // 10) if name in SLOW else count
                await process.call("fill", jobs)
                await given.databases.settle()
                rates.setdefault(name, []).append(await process.call("drain", jobs))
        if given.profile:
            worker = children["tenure"]
            await worker.call("fill", count)
            await worker.call("start_profile")
            await worker.call("drain", count)
            title = "T3 drain, PostgreSQL: the event loop's thread"
            result.tables[title] = await worker.call("stop_profile")
    result.figures += _figures(rates)
    return result


def _figures(rates: dict[str, list[float]]) -> list[Figure]:
    tenure = rates["tenure"]
    figures = [
        Figure(
            mark="T3",
            what=f"no-op work drained, {SLOTS} slots, {LANES} lanes",
            measured=f"{spread(tenure)}/s",
        )
    ]
    for name, actor in PEERS.items():
        if name not in rates:
            continue
        times = ratio_of(tenure, rates[name])
        figures.append(
            Figure(
                mark="T3",
                what=f"drain / {name} ({getattr(actor, 'SAYS', '')})",
                measured=f"{times:.2f}: beside {median(rates[name]):,.0f}/s",
                ratio=times,
                at_least=1 if name == "pgqueuer" else None,
            )
        )
    return figures
