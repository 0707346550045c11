"""A cut between one node and the database: the node stops by itself before others go on.

Real processes, every kernel duration divided by ten. The cut is a proxy that ends every
connection, or one that passes nothing on and says nothing, as a dropped route does.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx
import pytest
from sqlalchemy.engine import make_url

from tenure.clock import US, SystemClock
from tenure.outbox.keyring import new_key
from tenure.store.nodes import NodeRow
from tests.crash.fleet import Fleet, fleet
from tests.crash.restarts import attempts_of, wait_settled
from tests.crash.sink import Sink
from tests.crash.stressed import (
    PATIENCE,
    SETTINGS,
    SLOTS,
    endpoints,
    until_holding,
    until_nodes,
)
from tests.databases import PostgresServer
from tests.proxy import Proxy, proxied

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]

LANES = 4
MESSAGES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Two nodes, the first of them behind a proxy, and what was sent to the second."""

    database: str
    proxy: Proxy
    cut: Fleet
    others: Fleet
    sink: Sink
    app: str

    def when(self, fleet: Fleet, text: str) -> float:
        """Return the instant of the first such line of a node's log."""
        log = fleet.nodes[0].log.read_text()
        found = re.search(rf"^(\S+Z) \[\w+ *\] {text}", log, re.MULTILINE)
        assert found, f"no line says {text!r}: {log[-2_000:]}"
        return datetime.fromisoformat(found[1]).timestamp()

    def old_requests(self, since: float) -> int:
        """Return how many first attempts arrived after a wall clock's instant."""
        clock = SystemClock()
        shift = clock.wall_us() / US - clock.monotonic()
        return sum(
            number == 1 and at + shift > since
            for at, _, _, number in self.sink.attempts
        )


@asynccontextmanager
async def scene(
    server: PostgresServer, database: str, folder: Path
) -> AsyncGenerator[Scene]:
    """Start both nodes and let each hold some of the work."""
    name = make_url(database).database
    assert name is not None
    settings = {**SETTINGS, "TENURE_SECRET_KEYS": new_key()}
    first, second = folder / "first", folder / "second"
    first.mkdir()
    second.mkdir()
    async with (
        Sink(delay=0.5) as sink,
        proxied(server) as proxy,
        fleet(
            server.database_by_port(name, proxy.port),
            first,
            nodes=1,
            settings=settings,
        ) as cut,
        fleet(database, second, nodes=1, settings=settings) as others,
    ):
        app = await endpoints(others, sink, LANES)
        yield Scene(
            database=database, proxy=proxy, cut=cut, others=others, sink=sink, app=app
        )


async def sever(scene: Scene, how: str) -> NodeRow:
    """Cut the first node off in mid-traffic; return its row once others closed it."""
    keys = [f"key-{at}" for at in range(MESSAGES)]
    (mine, _) = await until_nodes(scene.database, ["open", "open"])
    async with asyncio.TaskGroup() as group:
        group.create_task(scene.others.submit_all(scene.app, keys))
        await until_holding(scene.database, mine.id, SLOTS // 4)
        scene.proxy.mode = how
        if how == "refuse":
            scene.proxy.close()
    (closed, _) = await until_nodes(scene.database, ["closed", "open"])
    return closed


@pytest.mark.long
@pytest.mark.parametrize("how", ["refuse", "silent"])
async def test_a_node_cut_off_from_its_database_stops_before_others_take_its_work(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path, how: str
) -> None:
    async with scene(postgres_server, postgres_url, tmp_path) as met:
        closed = await sever(met, how)
        assert closed.closed_why == "silent"
        fenced_at = met.when(met.cut, "fenced")
        assert fenced_at < met.when(met.others, "peer closed")
        # What it held goes on elsewhere while it is still away.
        await met.sink.wait_distinct(MESSAGES * LANES, PATIENCE)
        await wait_settled(postgres_url, MESSAGES * LANES)
        lost = await attempts_of(postgres_url, "outcome = 'lost'")
        duplicates = met.sink.total - len(met.sink.seen)
        late = met.old_requests(met.when(met.others, "claims lost")) if lost else 0
        print(
            f"{how}: claims lost {lost}, duplicated {duplicates}, requests under an old"
            f" claim after it was taken {late}"
        )
        assert duplicates <= lost
        assert late == 0
        if how == "silent":
            return  # its connections end by their own deadlines, 16 s from now
        async with httpx.AsyncClient(base_url=met.cut.nodes[0].url) as client:
            asked = await client.get("/api/v1/health")
        assert asked.status_code == httpx.codes.SERVICE_UNAVAILABLE
        assert int(asked.headers["retry-after"]) >= 1
        met.proxy.mode = "pass"
        await until_nodes(postgres_url, ["closed", "open", "open"])
        await met.cut.submit_all(met.app, ["afterwards"])
        await wait_settled(postgres_url, (MESSAGES + 1) * LANES)
        assert met.sink.total - len(met.sink.seen) == duplicates
