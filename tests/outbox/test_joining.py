from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import PendingRollbackError
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tenure.clock import US
from tenure.errors import (
    Conflict,
    IdempotencyKeyReused,
    NotFound,
    NotJoinable,
    PayloadTooLarge,
    SchemaOutOfRange,
    SchemaTooNew,
    ValidationFailed,
)
from tenure.ids import TenantId
from tenure.outbox.joining import Submitter
from tenure.outbox.model import EventTypeIn, SchemaCheck
from tenure.outbox.outbox import Outbox
from tenure.store.backend import Backend
from tests.databases import PostgresServer
from tests.invariants import faults
from tests.outbox.callers import (
    EVERY_DOOR,
    SOME_DOORS,
    Application,
    Door,
    door,
)
from tests.outbox.world import (
    count,
    make_app,
    make_endpoint,
    rows,
    run,
    wait_until_blocked,
)

DEFAULT = TenantId("default")


@pytest.fixture(params=SOME_DOORS, ids=str)
def entrance(request: pytest.FixtureRequest) -> Door:
    return request.param


@pytest.fixture
def dialect(entrance: Door) -> str:
    """The application and Tenure share one database."""
    return entrance.dialect


class Shop:
    """An application that sells, and tells one endpoint of each order."""

    def __init__(self, app: Application, backend: Backend, hints: list[float]) -> None:
        self.app = app
        self.backend = backend
        self.hints = hints
        self.transaction = app.transaction

    async def counts(self) -> dict[str, int]:
        tables = ("orders", "message", "payload", "delivery", "work", "idempotency")
        return {table: await count(self.backend, table) for table in tables}


@pytest_asyncio.fixture
async def shop(
    entrance: Door, database_url: str, backend: Backend, outbox: Outbox
) -> AsyncIterator[Shop]:
    made = await make_app(outbox, "shop", tenant=DEFAULT)
    await make_endpoint(outbox, made)
    hints: list[float] = []
    submitter = Submitter(hint=lambda _, after: hints.append(after))
    async with AsyncExitStack() as exits:
        app = Application(database_url, entrance, submitter)
        exits.push_async_callback(app.aclose)
        await app.prepare()
        yield Shop(app, backend, hints)
        assert await backend.read(faults) == []
        await run(backend, "DROP TABLE orders")  # so that the database is lent again


@pytest.mark.parametrize("entrance", EVERY_DOOR, ids=str, indirect=True)
async def test_a_message_comes_and_goes_with_the_callers_own_row(shop: Shop) -> None:
    async with shop.transaction() as mine:
        await mine.order(1)
        await mine.submit()
        await mine.rollback()
        assert set((await shop.counts()).values()) == {0}
        assert shop.hints == []
        await mine.order(2)
        accepted = await mine.submit(idempotency_key="order-2")
        assert (accepted.matched, accepted.replayed) == (1, False)
        assert set((await shop.counts()).values()) == {0}
        await mine.commit()
    assert set((await shop.counts()).values()) == {1}
    assert len(shop.hints) == (1 if shop.app.door.session else 2)
    (row,) = await rows(shop.backend, "SELECT state, phase, subject FROM work")
    assert row == {"state": "ready", "phase": "due", "subject": accepted.message.id}


async def test_the_bytes_and_everything_said_of_a_message_are_stored(
    shop: Shop, outbox: Outbox
) -> None:
    later = datetime.now(UTC) + timedelta(days=2)
    async with shop.transaction() as mine:
        raw = await mine.submit(payload=b'{"b": 1,  "a": 1e400}')
        told = await mine.submit(
            payload={"placed": datetime(2026, 1, 2, tzinfo=UTC), "ü": 2**70},
            event_id="evt-1",
            channels=["north"],
            tags=["t"],
            headers={"X-Shop": "7"},
            deliver_at=later,
            expires_at=later + timedelta(hours=1),
        )
        slow = await mine.submit(delay_seconds=3600.0)
        await mine.commit()
    assert raw.message.body == b'{"b": 1,  "a": 1e400}'
    kept = await outbox.get_message(DEFAULT, "shop", "evt-1")
    assert kept == told.message
    assert kept.body == '{"placed":"2026-01-02T00:00:00Z","ü":%d}'.encode() % 2**70
    assert (kept.channels, kept.tags) == (("north",), ("t",))
    assert kept.headers == {"X-Shop": "7"}
    assert kept.deliver_at == round(later.timestamp() * US)
    assert slow.message.deliver_at == slow.message.created_at + 3600 * US
    phases = await rows(shop.backend, "SELECT phase FROM work ORDER BY phase")
    assert [row["phase"] for row in phases] == ["due", "later", "later"]


REFUSED: list[tuple[str, type[Exception], dict[str, Any]]] = [
    ("an unknown application", NotFound, {"application": "nobody"}),
    ("a bad event type", ValidationFailed, {"event_type": "no spaces"}),
    ("a list", ValidationFailed, {"payload": [1]}),
    ("what is no number", ValidationFailed, {"payload": {"n": float("nan")}}),
    ("what is no JSON", ValidationFailed, {"payload": {"n": object()}}),
    ("half a character", ValidationFailed, {"payload": {"n": "\ud800"}}),
    ("too many bytes", PayloadTooLarge, {"payload": b" " * (1 << 20) + b"{}"}),
    (
        "an instant without a zone",
        ValidationFailed,
        {"deliver_at": datetime(2030, 1, 1)},  # noqa: DTZ001
    ),
    ("an endless delay", ValidationFailed, {"delay_seconds": float("inf")}),
    ("a used event id", Conflict, {"event_id": "used", "idempotency_key": "new"}),
    ("a used key", IdempotencyKeyReused, {"idempotency_key": "used"}),
    ("a long key", ValidationFailed, {"idempotency_key": "k" * 300}),
    ("a payload that misses its schema", ValidationFailed, {"event_type": "strict"}),
]


async def test_after_a_refusal_the_transaction_is_as_before_and_goes_on(
    shop: Shop, outbox: Outbox
) -> None:
    await outbox.create_event_type(
        DEFAULT,
        EventTypeIn(
            name="strict",
            description="",
            schemas={"1": {"required": ["total"]}},
            schema_check=SchemaCheck.ENFORCE,
        ),
    )
    async with shop.transaction() as mine:
        first = await mine.submit(event_id="used", idempotency_key="used")
        await mine.commit()
        await mine.order(1)
        for what, error, given in REFUSED:
            with pytest.raises(error) as refused:
                await mine.submit(**given)
            assert str(refused.value), what
        again = await mine.submit(event_id="used", idempotency_key="used")
        assert (again.replayed, again.message) == (True, first.message)
        await mine.submit(event_type="strict", payload={"total": 1})
        await mine.commit()
    assert await shop.counts() == {
        "orders": 1,
        "message": 2,
        "payload": 2,
        "delivery": 2,
        "work": 2,
        "idempotency": 1,
    }


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError, None])
async def test_an_error_between_two_statements_leaves_no_half_of_a_message(
    shop: Shop, error: type[BaseException] | None
) -> None:
    """Although the caller swallows it and commits; without the error all is there."""

    def fail(_: Any, __: Any, statement: str, *___: Any) -> None:
        if error is not None and 'INTO "delivery"' in statement:
            raise error

    event.listen(shop.app.sync_engine, "before_cursor_execute", fail)
    async with shop.transaction() as mine:
        await mine.order(1)
        if error is None:
            await mine.submit(idempotency_key="k")
        else:
            with pytest.raises(error):
                await mine.submit(idempotency_key="k")
        # After a cancellation SQLAlchemy itself lets nothing be committed.
        with suppress(PendingRollbackError):
            await mine.order(2)
            await mine.commit()
    counts = await shop.counts()
    orders = counts.pop("orders")
    assert orders == (0 if error is asyncio.CancelledError else 2)
    assert set(counts.values()) == {1 if error is None else 0}


async def test_a_savepoint_of_the_caller_takes_its_message_back(shop: Shop) -> None:
    async with shop.transaction() as mine:
        kept = await mine.submit()
        await mine.run("SAVEPOINT mine")
        await mine.submit()
        await mine.run("ROLLBACK TO SAVEPOINT mine")
        await mine.commit()
    found = await rows(shop.backend, "SELECT id FROM message")
    assert [row["id"] for row in found] == [kept.message.id]


ON_POSTGRESQL = pytest.mark.parametrize(
    "entrance",
    [door("psycopg-session"), door("asyncpg-connection")],
    ids=str,
    indirect=True,
)


@ON_POSTGRESQL
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_nothing_of_the_callers_session_changes_and_no_lane_is_locked(
    shop: Shop, entrance: Door, database_url: str, level: str
) -> None:
    app = Application(database_url, entrance, shop.app.submitter, isolation_level=level)
    settings = "SELECT md5(string_agg(name || '=' || setting, ',' ORDER BY name)) FROM pg_settings"
    locks = (
        "SELECT string_agg(DISTINCT mode, ',') FROM pg_locks"
        " WHERE pid = pg_backend_pid() AND relation = 'lane'::regclass"
    )
    async with app.transaction() as mine:
        before = await mine.run(settings)
        await mine.submit()
        assert await mine.run(settings) == before
        assert await mine.run(locks) in {None, "AccessShareLock"}
        await mine.commit()
    await app.aclose()
    assert await count(shop.backend, "work") == 1


@ON_POSTGRESQL
async def test_two_callers_with_one_key_meet_on_it_and_get_one_message(
    shop: Shop,
) -> None:
    async with shop.transaction() as one, shop.transaction() as other:
        first = await one.submit(idempotency_key="k")
        second = asyncio.ensure_future(other.submit(idempotency_key="k"))
        await wait_until_blocked(shop.backend)
        await one.commit()
        again = await second
        assert (again.replayed, again.message) == (True, first.message)
        await other.commit()
    assert await count(shop.backend, "message") == 1


async def test_a_connection_that_commits_each_statement_is_refused(
    shop: Shop, entrance: Door, database_url: str
) -> None:
    app = Application(
        database_url, entrance, shop.app.submitter, isolation_level="AUTOCOMMIT"
    )
    async with app.transaction() as mine:
        with pytest.raises(NotJoinable, match="AUTOCOMMIT"):
            await mine.submit()
    await app.aclose()
    assert await count(shop.backend, "message") == 0


@pytest.mark.parametrize(
    "entrance",
    [door("pysqlite-session"), door("pysqlite-connection")],
    ids=str,
    indirect=True,
)
async def test_an_engine_that_begins_by_itself_on_sqlite_is_joined(
    shop: Shop, entrance: Door, database_url: str
) -> None:
    """As SQLAlchemy's notes on its SQLite driver tell people to write it."""
    app = Application(database_url, entrance, shop.app.submitter)

    def mine_alone(raw: Any, _: object) -> None:
        raw.isolation_level = None

    event.listen(app.sync_engine, "connect", mine_alone)
    event.listen(app.sync_engine, "begin", lambda c: c.exec_driver_sql("BEGIN"))
    async with app.transaction() as mine:
        await mine.submit()
        await mine.rollback()
        await mine.submit()
        await mine.commit()
    await app.aclose()
    assert await count(shop.backend, "message") == 1


@ON_POSTGRESQL
async def test_tables_of_another_schema_may_not_stand_before_tenures(
    shop: Shop,
) -> None:
    async with shop.transaction() as mine:
        await mine.run("CREATE SCHEMA theirs")
        await mine.run("CREATE TABLE theirs.message (id integer)")
        await mine.run("SET LOCAL search_path = theirs, public")
        with pytest.raises(NotJoinable, match=r"hide Tenure's at .*: message;"):
            await mine.submit()
        await mine.run("SET LOCAL search_path = public, theirs")
        await mine.submit()
        assert await mine.run("SELECT count(*) FROM public.message") == 1


@ON_POSTGRESQL
async def test_tenures_tables_may_live_in_a_schema_of_their_own(
    shop: Shop, postgres_server: PostgresServer, database_url: str
) -> None:
    async with shop.transaction() as mine:
        await mine.run("ALTER SCHEMA public RENAME TO tenure")
        await mine.run("CREATE SCHEMA public")
        await mine.run("ALTER TABLE tenure.orders SET SCHEMA public")
        await mine.run("SET LOCAL search_path = public, tenure")
        await mine.order(1)
        await mine.submit()
        assert await mine.run("SELECT count(*) FROM tenure.work") == 1
        await mine.rollback()


async def test_a_database_without_tenures_tables_is_refused_by_name(
    shop: Shop, tmp_path: Any
) -> None:
    elsewhere = Application(
        f"sqlite:///{tmp_path}/other.db", door("pysqlite-session"), Submitter()
    )
    async with elsewhere.transaction() as mine:
        with pytest.raises(NotJoinable, match=r"other\.db has no Tenure tables"):
            await mine.submit()
    await elsewhere.aclose()


@pytest.mark.parametrize(
    "entrance",
    [door("pysqlite-connection"), door("asyncpg-session")],
    ids=str,
    indirect=True,
)
@pytest.mark.parametrize(
    ("revision", "error"),
    [("0001_kernel", SchemaOutOfRange), ("9999_later", SchemaTooNew)],
)
async def test_a_database_at_another_revision_is_refused(
    shop: Shop, revision: str, error: type[Exception]
) -> None:
    await run(shop.backend, f"UPDATE tenure_revision SET version_num = '{revision}'")
    await run(shop.backend, "DELETE FROM setting WHERE name = 'schema_floor'")
    async with shop.transaction() as mine:
        with pytest.raises(error, match=revision):
            await mine.submit()
        await mine.order(1)
        await mine.commit()
    assert (await shop.counts())["orders"] == 1


async def test_what_is_no_transaction_of_sqlalchemy_is_refused(shop: Shop) -> None:
    submitter = shop.app.submitter
    refused = "is no transaction that can be joined"
    wrong: Any
    async with shop.transaction() as mine:
        wrong = mine.into
        if shop.app.door.is_async:
            with pytest.raises(NotJoinable, match=refused):
                submitter.submit(wrong, "shop", "a.b", {})
        else:
            with pytest.raises(NotJoinable, match=refused):
                await submitter.submit_async(wrong, "shop", "a.b", {})


async def test_scoped_sessions_are_their_sessions(shop: Shop) -> None:
    submitter, engine = shop.app.submitter, shop.app.engine
    if isinstance(engine, sa.Engine):
        scoped = scoped_session(sessionmaker(engine))

        def work() -> None:
            submitter.submit(scoped, "shop", "a.b", {})
            scoped.commit()
            scoped.remove()

        await asyncio.to_thread(work)
    else:
        registry: async_scoped_session[AsyncSession] = async_scoped_session(
            async_sessionmaker(engine), scopefunc=asyncio.current_task
        )
        await submitter.submit_async(registry, "shop", "a.b", {})
        await registry.commit()
        await registry.remove()
    assert await count(shop.backend, "work") == 1
    assert shop.hints == [0.0]


@pytest.mark.parametrize(
    "entrance",
    [door("pysqlite-session"), door("psycopg-session")],
    ids=str,
    indirect=True,
)
async def test_a_hint_waits_for_the_commit_that_counts(shop: Shop) -> None:
    """Not for the release of a savepoint; and a commit without a message gives none."""
    submitter, engine = shop.app.submitter, shop.app.sync_engine

    def work() -> None:
        with Session(engine) as session:
            session.execute(sa.text("INSERT INTO orders VALUES (1)"))
            with session.begin_nested():
                submitter.submit(session, "shop", "a.b", {})
            assert shop.hints == []
            session.commit()
            assert shop.hints == [0.0]
            session.execute(sa.text("INSERT INTO orders VALUES (2)"))
            session.commit()
            submitter.submit(session, "shop", "a.b", {}, idempotency_key="k")
            session.commit()
            submitter.submit(session, "shop", "a.b", {}, idempotency_key="k")
            session.commit()
            assert shop.hints == [0.0, 0.0]

    await asyncio.to_thread(work)


async def test_a_hint_that_fails_does_not_fail_the_commit(shop: Shop) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    async with shop.transaction() as mine:
        mine.submitter = Submitter(hint=broken)
        await mine.submit()
        await mine.commit()
    assert await count(shop.backend, "work") == 1
