"""T8: receiving webhooks beside the same server's no-op, and beside a commit each.

As T1, at `/in/…`: 200 callers, bodies of 1 KiB and 64 KiB, each request signed (HMAC of
GitHub's preset) and verified, stored with its receipt, message and one delivery row.
Rounds go in turn over the no-op route, the source, and the source of a second node whose
receipts commit one by one. Nothing is sent meanwhile.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import zlib
from dataclasses import replace
from typing import Final

from benchmarks.accept import CALLERS, NOWHERE, Rates
from benchmarks.databases import SHOWN, Dialect
from benchmarks.figures import Figure, Result, median, ms, ratio_of, spread
from benchmarks.load import Callers, Loaded, post
from benchmarks.node import SOURCE_SECRET, Node
from benchmarks.processes import Child, child
from benchmarks.runs import Run

BODIES: Final = {
    "1 KiB": (b'{"action":"opened","text":"%b"}' % (b"x" * 990), 0.6),
    "64 KiB": (b'{"action":"opened","text":"%b"}' % (b"x" * 65_500), 0.5),
}
"""Bodies by name, each with the share of the no-op route that is wanted."""


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
            path = await node.call("receive", app)
            routes[node] = await node.call("serve"), f"/in/{path}"
        for name, (body, wanted) in BODIES.items():
            rates = Rates()
            for number in range(-1, given.rounds):
                warm = number < 0  # caches, plans and connections; not counted
                await _round(given, callers, routes, body, Rates() if warm else rates)
            where = f"{SHOWN[dialect]}, {name}"
            result.figures += _figures(where, rates, wanted)
        if given.profile:
            await group.call("start_profile")
            body, _ = BODIES["1 KiB"]
            await _drive(given, callers, group, *routes[group], body)
            title = f"T8 receive, {SHOWN[dialect]}: the event loop's thread"
            result.tables[title] = await group.call("stop_profile")
    return result


async def _round(
    given: Run,
    callers: Child,
    routes: dict[Child, tuple[int, str]],
    body: bytes,
    rates: Rates,
) -> None:
    group, alone = routes
    port, path = routes[group]
    rates.noop.append(await _drive(given, callers, group, port, "/noop", body))
    await given.databases.settle()
    rates.accept.append(await _drive(given, callers, group, port, path, body))
    await given.databases.settle()
    rates.alone.append(await _drive(given, callers, alone, *routes[alone], body))


async def _drive(
    given: Run, callers: Child, node: Child, port: int, path: str, body: bytes
) -> Loaded:
    before: float = await node.call("cpu")
    mac = hmac.new(SOURCE_SECRET.encode(), body, hashlib.sha256).hexdigest()
    # Without a delivery id each request is an event of its own.
    request = post(
        port, path, body, f"X-Hub-Signature-256: sha256={mac}", "X-GitHub-Event: issues"
    )
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


def _figures(where: str, rates: Rates, wanted: float) -> list[Figure]:
    noop, receive, alone = (
        [each.rate for each in rounds]
        for rounds in (rates.noop, rates.accept, rates.alone)
    )
    share, times = ratio_of(receive, noop), ratio_of(receive, alone)
    cpu = [median(r.cpu_us for r in each) for each in (rates.accept, rates.noop)]
    late = ", ".join(
        f"{name} {ms(median(getattr(each, name) for each in rates.accept))}"
        for name in ("p50", "p99")
    )
    return [
        Figure(
            mark="T8",
            what=f"receive / no-op route, {where}",
            measured=f"{share:.2f}: {spread(receive)}/s of {spread(noop)}/s; {late};"
            f" server's CPU {cpu[0]:.0f} µs of {cpu[1]:.0f} µs",
            ratio=share,
            at_least=wanted,
        ),
        Figure(
            mark="T8",
            what=f"receive / one commit per request, {where}",
            measured=f"{times:.1f}: {spread(receive)}/s beside {spread(alone)}/s",
            ratio=times,
            at_least=None,
        ),
    ]
