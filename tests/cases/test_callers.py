"""Callers' own transactions: one commit for the event and its message, or neither."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
import sqlalchemy as sa
from pydantic import SecretStr
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tenure.config import Settings
from tenure.engine import Engine
from tenure.ids import TenantId
from tenure.limits import CONNECTIONS, Durations
from tenure.outbox.http import Failure, Policy, Request, Response
from tenure.outbox.joining import Submitter
from tenure.outbox.keyring import KeyRing, new_key
from tenure.outbox.model import EndpointSettings
from tenure.outbox.outbox import Outbox
from tenure.store.backend import Backend
from tenure.store.wakeups import CHANNEL, Ringer
from tenure.telemetry.events import Event, Events
from tests.databases import PostgresServer, asyncpg_dsn
from tests.invariants import faults
from tests.outbox.callers import ORDERS, Application, Transaction, door
from tests.outbox.scripted import response
from tests.outbox.world import count, make_app, make_endpoint, message, run
from tests.proxy import proxied
from tests.work.rig import until

DEFAULT = TenantId("default")
KEY = new_key()
DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg"}


ON_POSTGRESQL = pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)


@pytest.fixture
def ring() -> KeyRing:
    return KeyRing([KEY])


@pytest.fixture
def engine_url(database_url: str, dialect: str) -> str:
    """The address of the test's database, as an application writes it."""
    url = make_url(database_url).set(drivername=f"{dialect}+{DRIVERS[dialect]}")
    return url.render_as_string(hide_password=False)


def alone(url: str) -> sa.Engine:
    """An engine that leaves no connection open."""
    return sa.create_engine(url, poolclass=NullPool)


@pytest_asyncio.fixture
async def orders(backend: Backend, outbox: Outbox) -> AsyncIterator[Backend]:
    """A database with an application's own table beside Tenure's."""
    app = await make_app(outbox, "shop", tenant=DEFAULT)
    await make_endpoint(outbox, app, settings=EndpointSettings(retry_seconds=(0.0,)))
    await run(backend, ORDERS)
    yield backend
    assert await backend.read(faults) == []
    await run(backend, "DROP TABLE orders")


async def counts(backend: Backend) -> list[int]:
    tables = ("orders", "message", "payload", "delivery", "work", "idempotency")
    return [await count(backend, table) for table in tables]


DYING = """
import json, os, signal, sys
import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool
from tenure.outbox.joining import Submitter

TABLES = ("orders", "message", "payload", "delivery", "work", "idempotency")
engine = sa.create_engine(sys.argv[1], poolclass=NullPool)
submitter = Submitter()

def place(session):
    session.execute(sa.text("INSERT INTO orders VALUES (1)"))
    submitter.submit(session, "shop", "order.placed", {"n": 1}, idempotency_key="o-1")

def caller(last):
    # Dies after its last statement; the commit stands behind all others.
    ran = 0
    def count(*_):
        nonlocal ran
        ran += 1
        if ran == last:
            os.kill(os.getpid(), signal.SIGKILL)
    sa.event.listen(engine, "after_cursor_execute", count)
    sa.event.listen(engine, "commit", count)
    with Session(engine) as session:
        place(session)
        session.commit()
    os._exit(0)

def look():
    with engine.connect() as connection:
        return [connection.scalar(sa.text(f"SELECT count(*) FROM {t}")) for t in TABLES]

with Session(engine) as session:  # so that children need not learn all of it
    place(session)
    session.rollback()
for last in range(1, 100):
    child = os.fork()
    if not child:
        caller(last)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status)
    print(json.dumps([killed, *look()]), flush=True)
    if not killed:
        break
"""


async def test_case_12_a_caller_killed_after_any_statement_leaves_both_or_neither(
    orders: Backend, engine_url: str
) -> None:
    """The process dies after each statement in turn; at last it is let live."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", DYING, engine_url],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    *killed, lived = [json.loads(line) for line in done.stdout.splitlines()]
    assert lived == [False, 1, 1, 1, 1, 1, 1]
    assert len(killed) > 10
    assert [line for line in killed if line != [True, 0, 0, 0, 0, 0, 0]] == []


@pytest.mark.parametrize("kept", [False, True], ids=["rolled back", "committed"])
async def test_case_13_a_caller_that_rolls_back_sends_nothing(
    orders: Backend, database_url: str, engine_url: str, kept: bool
) -> None:
    """Beside one that commits, through a node that works meanwhile."""
    sink = Sink()
    async with node(database_url, sink) as engine:

        def work() -> None:
            with Session(alone(engine_url)) as session:
                session.execute(sa.text("INSERT INTO orders VALUES (1)"))
                engine.submitter.submit(session, "shop", "order.placed", {"n": 1})
                session.commit() if kept else session.rollback()
                engine.submitter.submit(session, "shop", "order.other", {"n": 2})
                session.commit()

        await asyncio.to_thread(work)
        await until(lambda: b'{"n":2}' in sink.bodies, "the later message")
        if kept:
            await until(lambda: b'{"n":1}' in sink.bodies, "the message")
    assert (b'{"n":1}' in sink.bodies) is kept
    assert await counts(orders) == [int(kept), *[1 + kept] * 4, 0]


async def test_case_14_a_caller_that_repeats_its_transaction_gets_the_same_message(
    orders: Backend, engine_url: str, dialect: str
) -> None:
    """The answer to its COMMIT was lost; it does all of it again, as is right."""
    submitter = Submitter()
    levels = ["REPEATABLE READ", "SERIALIZABLE"] if dialect == "postgresql" else []

    def once(level: str | None) -> tuple[str, bool]:
        engine = alone(engine_url)
        if level is not None:
            engine = engine.execution_options(isolation_level=level)
        with Session(engine) as session:
            session.execute(
                sa.text("INSERT INTO orders VALUES (1) ON CONFLICT DO NOTHING")
            )
            accepted = submitter.submit(
                session, "shop", "order.placed", {"n": 1}, idempotency_key="order-1"
            )
            session.commit()
        return accepted.message.id, accepted.replayed

    first = await asyncio.to_thread(once, None)
    again = [await asyncio.to_thread(once, level) for level in [None, *levels]]
    assert first[1] is False
    assert set(again) == {(first[0], True)}
    assert await counts(orders) == [1] * 6


@ON_POSTGRESQL
async def test_case_14_under_one_snapshot_the_second_of_two_callers_repeats(
    orders: Backend, database_url: str
) -> None:
    """Its snapshot is older than the first one's key: the database says so, by 40001."""
    app = Application(
        database_url,
        door("psycopg-session"),
        Submitter(),
        isolation_level="REPEATABLE READ",
    )
    async with app.transaction() as one, app.transaction() as other:
        assert await other.run("SELECT count(*) FROM message") == 0
        first = await one.submit(idempotency_key="k")
        await one.commit()
        with pytest.raises(OperationalError, match="could not serialize"):
            await other.submit(idempotency_key="k")
        await other.rollback()
        again = await other.submit(idempotency_key="k")
        assert (again.replayed, again.message) == (True, first.message)
        await other.commit()
    await app.aclose()
    assert await count(orders, "message") == 1


@pytest.mark.parametrize("how", [Session, sa.Connection], ids=["session", "connection"])
async def test_a_commit_in_a_nodes_own_process_wakes_it(
    orders: Backend,
    database_url: str,
    engine_url: str,
    how: type[Session | sa.Connection],
) -> None:
    """The poll comes after 100 s here, and nothing is notified."""
    sink = Sink()
    slow = Durations(0.01)
    async with node(database_url, sink, durations=slow, notify=False) as engine:

        def work() -> None:
            with how(alone(engine_url)) as mine:
                engine.submitter.submit(mine, "shop", "order.placed", {"n": 1})
                mine.commit()

        await asyncio.to_thread(work)
        await until(lambda: sink.bodies == [b'{"n":1}'], "the message")


@ON_POSTGRESQL
async def test_case_21_where_notifications_arrive_nobody_waits_for_the_poll(
    orders: Backend, database_url: str
) -> None:
    """The poll comes after 100 s here: what starts was woken, by a client and a node."""
    sink = Sink()
    async with (
        node(database_url, sink, durations=Durations(0.01)) as sending,
        node(database_url, Sink(), durations=Durations(0.01), sending=False) as silent,
    ):
        await until(lambda: listens(sending) and listens(silent), "the listeners")
        async with client(database_url) as mine:
            await mine.submit(payload={"by": "client"})
            await mine.commit()
        await until(lambda: b'{"by":"client"}' in sink.bodies, "the client's message")
        given = message(body=b'{"by":"node"}')
        await silent.outbox.accept(DEFAULT, "shop", given)
        await until(lambda: b'{"by":"node"}' in sink.bodies, "the node's message")


@ON_POSTGRESQL
async def test_case_21_a_lost_listener_loses_no_message_and_says_one_line(
    orders: Backend, database_url: str, postgres_server: PostgresServer
) -> None:
    sink = Sink()
    async with node(database_url, sink) as engine:
        await until(lambda: listens(engine), "the listener")
        await postgres_server.run(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            f" WHERE query LIKE '%{CHANNEL}%' AND pid <> pg_backend_pid()"
        )
        async with client(database_url) as mine:
            await mine.submit(payload={"n": 1})
            await mine.commit()
        await until(lambda: sink.bodies == [b'{"n":1}'], "the message")
        await until(lambda: engine.events.count(Event.WAKEUPS_BACK), "the way back")
        assert engine.events.count(Event.WAKEUPS_LOST) == 1


@ON_POSTGRESQL
@pytest.mark.parametrize("notify", [True, False], ids=["on", "off"])
async def test_case_21_behind_a_transaction_pooler_everything_is_sent(
    orders: Backend, database_url: str, postgres_server: PostgresServer, notify: bool
) -> None:
    sink = Sink()
    async with proxied(postgres_server) as proxy:
        proxy.mode = "deaf"
        name = str(make_url(database_url).database)
        url = postgres_server.database_by_port(name, proxy.port)
        async with node(url, sink, notify=notify) as engine:
            async with client(url) as mine:
                await mine.submit(payload={"n": 1})
                await mine.commit()
            await until(lambda: sink.bodies == [b'{"n":1}'], "the message")
            if notify:
                lost = Event.WAKEUPS_LOST
                await until(lambda: engine.events.count(lost), "the line")
                assert not listens(engine)
            assert engine.events.count(Event.WAKEUPS_LOST) == int(notify)


@ON_POSTGRESQL
async def test_a_node_under_load_holds_no_more_connections_than_it_may(
    orders: Backend, database_url: str
) -> None:
    sink = Sink()
    eyes = await asyncpg.connect(asyncpg_dsn(database_url))
    look = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    before: int = await eyes.fetchval(look)
    most = 0
    async with node(database_url, sink) as engine:
        await until(lambda: listens(engine), "the listener")
        for _ in range(10):
            accepts = [
                engine.outbox.accept(DEFAULT, "shop", message()) for _ in range(50)
            ]
            reads = [engine.outbox.list_messages(DEFAULT, "shop") for _ in range(10)]
            await asyncio.gather(
                *accepts,
                *reads,
                asyncio.to_thread(
                    engine.backend.read_blocking, lambda tx: tx.scalar("SELECT 1")
                ),
            )
            most = max(most, await eyes.fetchval(look) - before)
        await until(lambda: len(sink.bodies) == 500, "all messages")
    await eyes.close()
    assert 3 <= most <= CONNECTIONS


class Sink:
    """Takes every request and answers 204."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def send(
        self,
        request: Request,
        policy: Policy,
        before_write: Callable[[], bool] | None = None,
    ) -> Response | Failure:
        assert before_write is not None
        assert before_write()
        self.bodies.append(request.body)
        return response(204)

    async def aclose(self) -> None:
        return None


def node(
    url: str, sink: Sink, *, durations: Durations | None = None, **settings: Any
) -> Engine:
    """A node on the test's database that sends into the sink."""
    given = Settings(database_url=url, secret_keys=(SecretStr(KEY),), **settings)
    return Engine(given, transport=sink, durations=durations, events=Events())


def listens(engine: Engine) -> bool:
    return engine._wakeups is not None and engine._wakeups.listens


@asynccontextmanager
async def client(url: str) -> AsyncGenerator[Transaction]:
    """A process that runs no node, in a transaction of its own."""
    ringer = Ringer(Events())
    app = Application(url, door("psycopg-session"), Submitter(hint=ringer.ring))
    async with app.transaction() as mine:
        yield mine
    await asyncio.to_thread(ringer.close)
    await app.aclose()
