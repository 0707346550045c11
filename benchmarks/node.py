"""One node in a process of its own: the whole engine, its server, and what is asked of it.

Beside the product's routes its server answers `/noop` with a constant: the same granian,
the same loop, the body read, nothing done. That is the floor of what it could accept.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from typing import Any, Final

from benchmarks.loading import DAY_US, load_lanes, load_messages, load_work
from benchmarks.processes import Actor
from tenure.config import load
from tenure.engine import Engine
from tenure.ids import TenantId
from tenure.inbox.model import SourceIn, Verification
from tenure.outbox.ledger.endpoints import KIND
from tenure.outbox.model import (
    ApplicationIn,
    EndpointIn,
    EndpointSettings,
    NewMessage,
    PageIn,
)
from tenure.server import serving
from tenure.server.app import asgi
from tenure.store.batching import Batcher
from tenure.store.lanes import add_group
from tenure.store.tx import Tx
from tenure.telemetry.logs import configure

KEY: Final = "tnr_bootstrap-key-of-a-benchmark-0123456789"
TENANT: Final = TenantId("default")
EVENT: Final = "order.paid"
RING: Final = base64.urlsafe_b64encode(bytes(32)).decode()
NOOP_BODY: Final = b'{"id":"msg_01h455vb4pex5vsknk084sn02q","eventType":"order.paid"}'
STATES: Final = "SELECT state, count(*) FROM work GROUP BY state"
LOADED: Final = 100_000  # rows of one loading transaction
FILLERS: Final = 400  # callers that fill a backlog


def connection_each() -> None:
    """Have every accept be a commit of its own, four at once: no group commit."""
    defaults = Batcher.__init__.__kwdefaults__
    assert defaults is not None
    assert {"rows_max", "wait_seconds", "concurrency"} <= defaults.keys()
    defaults.update(rows_max=1, wait_seconds=0.0, concurrency=4)


SOURCE_SECRET: Final = "a secret of the benchmark"


class Node(Actor):
    """An engine, opened and asked by its parent."""

    def __init__(self) -> None:
        self._exits = contextlib.AsyncExitStack()
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        """The open engine."""
        assert self._engine is not None
        return self._engine

    async def open(
        self,
        url: str,
        *,
        settings: dict[str, str] | None = None,
        works: bool = True,
        sending: bool = True,
        alone: bool = False,
    ) -> None:
        """Open the database and join it; with `alone` each accept commits alone."""
        if alone:
            connection_each()
        environ = {
            "TENURE_DATABASE_URL": url,
            "TENURE_BOOTSTRAP_KEY": KEY,
            "TENURE_SECRET_KEYS": RING,
            "TENURE_ALLOW_NETWORKS": "127.0.0.0/8",
            **(settings or {}),
        }
        chosen = load(environ=environ)
        configure(level="error")
        self._engine = await self._exits.enter_async_context(
            Engine(chosen, works=works)
        )
        if not sending:
            await self._hold()

    async def _hold(self) -> None:
        """Let nothing be claimed, and wait until no pass from before is under way."""
        self._loop.off = "held by the benchmark"
        held = self._loop.tick + 2
        while self._loop.tick < held:
            self.engine.wake()
            await asyncio.sleep(0.01)

    @property
    def _loop(self) -> Any:
        loop = self.engine._loop
        assert loop is not None
        return loop

    async def serve(self) -> int:
        """Begin to serve; return the port."""
        running = await serving.start(_with_noop(asgi(self.engine)))
        self._exits.push_async_callback(running.stop)
        return running.listening.port

    async def make(
        self,
        urls: list[str],
        *,
        apps: int = 1,
        timeout_seconds: float | None = None,
    ) -> list[str]:
        """Make applications, each with these endpoints; return their ids."""
        made: list[str] = []
        for number in range(apps):
            app = await self.engine.outbox.create_application(
                TENANT, ApplicationIn(name=f"app {number}")
            )
            made.append(app.value.id)
            for url in urls:
                given = EndpointIn(
                    url=url, settings=EndpointSettings(timeout_seconds=timeout_seconds)
                )
                await self.engine.outbox.create_endpoint(TENANT, made[-1], given)
        return made

    async def receive(self, app: str) -> str:
        """Make a source of GitHub's preset for an application; return its path."""
        given = SourceIn(
            name="bench",
            app=app,
            verification=Verification(preset="github"),
            secrets=(SOURCE_SECRET,),
        )
        return (await self.engine.inbox.create_source(TENANT, given)).value.path

    async def apps(self) -> list[str]:
        """Return the ids of all applications."""
        found = await self.engine.outbox.list_applications(TENANT, PageIn(limit=250))
        return [app.id for app in found.data]

    async def fill(self, apps: list[str], count: int, body: bytes) -> float:
        """Accept so many messages in turn for these applications; return the seconds."""
        left = iter(range(count))
        message = NewMessage(event_type=EVENT, body=body)

        async def caller() -> None:
            for number in left:
                await self.engine.outbox.accept(
                    TENANT, apps[number % len(apps)], message
                )

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(FILLERS):
                group.create_task(caller())
        return time.perf_counter() - began

    async def load(self, app: str, count: int) -> float:
        """Load a backlog by SQL, spread over an application's endpoints; the seconds."""
        page = await self.engine.outbox.list_endpoints(TENANT, app, PageIn(limit=250))
        lanes = await self.engine.backend.read(
            lambda tx: tx.all("SELECT id, lane FROM endpoint ORDER BY id")
        )
        wanted = {each.id for each in page.data}
        places = [(row[0], row[1]) for row in lanes if row[0] in wanted]
        endpoint, lane = _cases(
            [f"'{e}'" for e, _ in places], [str(n) for _, n in places]
        )
        began = time.perf_counter()
        for number in range(-(-count // LOADED)):
            size = min(LOADED, count - number * LOADED)

            def load_chunk(tx: Tx, name: str = f"b{number}_", size: int = size) -> None:
                if tx.dialect == "postgresql":
                    tx.run("SET LOCAL statement_timeout = 0")
                load_messages(
                    tx, name, size, app=app, endpoint=endpoint, lane=lane, kind=KIND
                )

            await self.engine.backend.write(load_chunk)
        return time.perf_counter() - began

    async def load_lanes(self, count: int) -> None:
        """Make lanes by SQL, each with one row that is due tomorrow."""

        def load_all(tx: Tx) -> None:
            group = add_group(tx, TENANT)
            load_lanes(tx, group, 1, count, state="open")
            place = f"{group << 24} + i"
            load_work(tx, "idle", count, lane=place, phase="later", due_in=DAY_US)

        await self.engine.backend.write(load_all)

    async def begin(self) -> float:
        """Let the node claim from now on; return the monotonic instant."""
        self._loop.off = None
        self.engine.wake()
        return time.monotonic()

    async def until_settled(self, count: int) -> float:
        """Wait until so many rows have succeeded; return the monotonic instant."""
        while (await self.states()).get("succeeded", 0) < count:
            await asyncio.sleep(0.02)
        return time.monotonic()

    async def states(self) -> dict[str, int]:
        """Count work by state."""
        found = await self.engine.backend.read(lambda tx: tx.all(STATES))
        return {row[0]: row[1] for row in found}

    async def batches(self) -> tuple[int, int]:
        """Return (deliveries, transactions that accepted them)."""
        text = "SELECT count(*), count(DISTINCT created_at) FROM delivery"
        found = await self.engine.backend.read(lambda tx: tx.all(text))
        return found[0][0], found[0][1]

    async def held(self) -> int:
        """Return how many attempts are in flight."""
        return len(self._loop.hand)

    async def tick(self) -> int:
        """Return how many passes the worker loop has made."""
        tick: int = self._loop.tick
        return tick

    async def close(self) -> None:
        """Stop serving, then the engine; another database may be opened then."""
        if self._engine is not None:
            self._engine.hurry()
        await self._exits.aclose()
        self._engine = None

    async def aclose(self) -> None:
        """End."""
        await self.close()


def _cases(*columns: list[str]) -> list[str]:
    """Return SQL that spreads rows i over these values, one expression per column."""
    size = len(columns[0])
    return [
        f"CASE i % {size} "
        + " ".join(f"WHEN {at} THEN {value}" for at, value in enumerate(values))
        + " END"
        for values in columns
    ]


def _with_noop(app: Any) -> Any:
    async def front(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != "/noop":
            await app(scope, receive, send)
            return
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": NOOP_BODY})

    return front
