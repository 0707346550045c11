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
from typing import Final

from benchmarks.accept import NOWHERE, Mark, Rates, drive, figures, measure_round
from benchmarks.databases import SHOWN, Dialect
from benchmarks.figures import Result
from benchmarks.load import Callers, post
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
                to, headers = Rates() if warm else rates, _headers(body)
                await measure_round(given, callers, routes, body, to, headers=headers)
            mark = Mark("T8", "receive", wanted, None)
            result.figures += figures(mark, f"{SHOWN[dialect]}, {name}", rates)
        if given.profile:
            await group.call("start_profile")
            body, _ = BODIES["1 KiB"]
            port, path = routes[group]
            request = post(port, path, body, *_headers(body))
            await drive(given, callers, group, port, path, request)
            title = f"T8 receive, {SHOWN[dialect]}: the event loop's thread"
            result.tables[title] = await group.call("stop_profile")
    return result


def _headers(body: bytes) -> tuple[str, ...]:
    mac = hmac.new(SOURCE_SECRET.encode(), body, hashlib.sha256).hexdigest()
    # Without a delivery id each request is an event of its own.
    return (f"X-Hub-Signature-256: sha256={mac}", "X-GitHub-Event: issues")
