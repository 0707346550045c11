"""T1: accepting over HTTP beside the same server's no-op, and beside a commit each.

200 callers, message and one delivery row, durable. Rounds go in turn over: the no-op
route, the accept route, and the accept route of a second node whose accepts commit one
by one (the same code with batches of one, four at once as its pool allows). Nothing is
sent meanwhile: what is measured is the acceptance.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from benchmarks.databases import SHOWN, Dialect
from benchmarks.figures import Figure, Result, median, ms, ratio_of, spread
from benchmarks.load import Callers, Loaded, post
from benchmarks.node import KEY, Node
from benchmarks.processes import Child, child
from benchmarks.runs import Run

CALLERS: Final = 200
BODIES: Final = {
    "small": b'{"eventType":"order.paid","payload":{"n":1}}',
    "1 KiB": b'{"eventType":"order.paid","payload":{"text":"%b"}}' % (b"x" * 1000),
}
_HEADERS: Final = (f"Authorization: Bearer {KEY}",)
NOWHERE: Final = "http://127.0.0.1:9/hook"


@dataclass(slots=True)
class Rates:
    """The rounds of one body: requests per second."""

    noop: list[Loaded] = field(default_factory=list[Loaded])
    accept: list[Loaded] = field(default_factory=list[Loaded])
    alone: list[Loaded] = field(default_factory=list[Loaded])


@dataclass(frozen=True, slots=True)
class Mark:
    """What is measured: its name in figures, and what is wanted of each ratio."""

    mark: str
    verb: str
    of_noop: float
    of_alone: float | None


_T1: Final = Mark("T1", "accept", 0.5, 10)


async def run(given: Run) -> Result:
    """Measure both databases."""
    result = Result()
    for dialect in given.dialects:
        result.add(await _one(given, dialect))
    return result


async def _one(given: Run, dialect: Dialect) -> Result:
    result, base = Result(), given.databases
    async with contextlib.AsyncExitStack() as exits:
        callers = await exits.enter_async_context(child(Callers))
        group = await exits.enter_async_context(child(Node))
        alone = await exits.enter_async_context(child(Node))
        routes: dict[Child, tuple[int, str]] = {}
        for node in (group, alone):
            await node.call(
                "open",
                await base.fresh(dialect),
                settings=dict(given.settings),
                sending=False,
                alone=node is alone,
            )
            (app,) = await node.call("make", [NOWHERE])
            routes[node] = await node.call("serve"), f"/api/v1/app/{app}/msg"
        for name, body in BODIES.items():
            rates = Rates()
            for number in range(-1, given.rounds):
                warm = number < 0  # caches, plans and connections; not counted
                to = Rates() if warm else rates
                await measure_round(given, callers, routes, body, to, headers=_HEADERS)
            result.figures += figures(_T1, f"{SHOWN[dialect]}, {name}", rates)
        result.figures.append(await _shared(dialect, group, alone))
        if given.profile:
            await group.call("start_profile")
            port, path = routes[group]
            request = post(port, path, BODIES["small"], *_HEADERS)
            await drive(given, callers, group, port, path, request)
            title = f"T1 accept, {SHOWN[dialect]}: the event loop's thread"
            result.tables[title] = await group.call("stop_profile")
    return result


async def measure_round(
    given: Run,
    callers: Child,
    routes: dict[Child, tuple[int, str]],
    body: bytes,
    rates: Rates,
    *,
    headers: Sequence[str],
) -> None:
    """Measure the no-op route, the route, and that of the node of single commits."""
    group, alone = routes
    port, path = routes[group]
    for node, at, measured in (
        (group, (port, "/noop"), rates.noop),
        (group, (port, path), rates.accept),
        (alone, routes[alone], rates.alone),
    ):
        await given.databases.settle()
        request = post(*at, body, *headers)
        measured.append(await drive(given, callers, node, *at, request))


async def drive(
    given: Run, callers: Child, node: Child, port: int, path: str, request: bytes
) -> Loaded:
    """Send one request over and over from many callers; every answer must be 2xx."""
    before: float = await node.call("cpu")
    loaded: Loaded = await callers.call(
        "drive_packed",
        port,
        zlib.compress(request),
        callers=given.pick(tiny=8, quick=CALLERS, full=CALLERS),
        seconds=given.pick(tiny=0.1, quick=1.5, full=8.0),
    )
    if loaded.refused:
        raise RuntimeError(f"{loaded.refused} of {loaded.count} were refused at {path}")
    used: float = await node.call("cpu") - before
    return replace(loaded, cpu_us=used * 1e6 / loaded.count)


def figures(mark: Mark, where: str, rates: Rates) -> list[Figure]:
    """Return the ratios to the no-op route and to a commit for each request."""
    noop, accept, alone = (
        [each.rate for each in rounds]
        for rounds in (rates.noop, rates.accept, rates.alone)
    )
    share, times = ratio_of(accept, noop), ratio_of(accept, alone)
    cpu = [median(r.cpu_us for r in each) for each in (rates.accept, rates.noop)]
    late = ", ".join(
        f"{name} {ms(median(getattr(each, name) for each in rates.accept))}"
        for name in ("p50", "p99")
    )
    return [
        Figure(
            mark=mark.mark,
            what=f"{mark.verb} / no-op route, {where}",
            measured=f"{share:.2f}: {spread(accept)}/s of {spread(noop)}/s; {late};"
            f" server's CPU {cpu[0]:.0f} µs of {cpu[1]:.0f} µs",
            ratio=share,
            at_least=mark.of_noop,
        ),
        Figure(
            mark=mark.mark,
            what=f"{mark.verb} / one commit per request, {where}",
            measured=f"{times:.1f}: {spread(accept)}/s beside {spread(alone)}/s",
            ratio=times,
            at_least=mark.of_alone,
        ),
    ]


async def _shared(dialect: Dialect, group: Child, alone: Child) -> Figure:
    """Say how many messages shared a commit, and that the other node's did not."""
    messages, commits = await group.call("batches")
    singles, single_commits = await alone.call("batches")
    if singles > 1.02 * single_commits:  # two transactions in one microsecond
        raise RuntimeError("the node of single commits shared some of them")
    return Figure(
        mark="T1",
        what=f"messages per commit, {SHOWN[dialect]}",
        measured=f"{messages / commits:.0f} of at most 100; alone 1",
    )
