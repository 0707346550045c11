from __future__ import annotations

import asyncio
import re
import shutil
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateTable

from tenure.errors import InvariantViolated, NodesBehind, SchemaTooNew
from tenure.store import migrating, nodes
from tenure.store import revisions as revisions_module
from tenure.store.backend import open_backend
from tenure.store.backends import postgresql as postgresql_backend
from tenure.store.contract import RowsLocked
from tenure.store.identity import write_setting
from tenure.store.revisions import FLOOR, floor_of, is_served
from tenure.store.schema import metadata
from tests.outbox.world import held_transaction, wait_until_blocked
from tests.store.yard import Yard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tenure.store.contract import Backend
    from tenure.store.tx import Tx
    from tests.databases import PostgresServer

DEADLINE_SECONDS = 60.0
REVISIONS = Path(migrating.__file__).parent / "migrations"
SOURCE = Path(migrating.__file__).parents[1]

# Every slice declares its tables on one MetaData when its module is read.
for declares in SOURCE.glob("*/tables.py"):
    import_module(f"tenure.{declares.parent.name}.tables")


@pytest_asyncio.fixture
async def empty_url(
    dialect: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> AsyncIterator[str]:
    """Where a database without any table is."""
    if dialect == "sqlite":
        yield f"sqlite:///{tmp_path}/empty.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    await server.run("DROP DATABASE IF EXISTS empty_for_migrating")
    await server.run("CREATE DATABASE empty_for_migrating TEMPLATE template0")
    yield server.database("empty_for_migrating")
    await server.run("DROP DATABASE empty_for_migrating WITH (FORCE)")


@pytest_asyncio.fixture
async def empty(empty_url: str) -> AsyncIterator[Backend]:
    backend = await open_backend(empty_url)
    yield backend
    await backend.aclose()


async def test_an_empty_database_comes_up_to_date_once(empty: Backend) -> None:
    scripts = await asyncio.to_thread(migrating.load)
    planned = await empty.read(partial(migrating.plan, scripts=scripts))
    assert await empty.read(migrating.current) is None
    applied = await empty.migrate(post=True)
    assert applied == [pending.revision for pending in planned]
    assert applied[0] == "0001_kernel"
    assert await empty.migrate(post=True) == []
    assert await empty.read(migrating.current) == migrating.head(scripts)
    assert await empty.read(partial(migrating.plan, scripts=scripts)) == []
    assert await empty.read(floor_of) == "0001_kernel"


async def test_the_migrated_schema_is_what_the_code_declares(backend: Backend) -> None:
    def included(thing: Any, name: str | None, kind: str, *_: Any) -> bool:
        return kind != "table" or name != migrating.VERSION_TABLE

    def compare(tx: Tx) -> list[Any]:
        context = MigrationContext.configure(
            tx.conn,
            opts={
                "compare_type": True,
                "compare_server_default": False,
                "include_object": included,
            },
        )
        return compare_metadata(context, metadata)

    assert await backend.read(compare) == []


async def test_every_table_is_made_exactly_as_declared(
    sqlite_backend: Backend,
) -> None:
    """SQLite keeps the text of its tables: constraints and defaults show as well."""

    def words(text: str) -> list[str]:
        # A column that was added later stands behind the others in the same line.
        inside = text.replace('"', "").split("(", 1)[1].rpartition(")")[0]
        parts = re.split(r",(?![^(]*\))", inside)
        return sorted(" ".join(part.split()) for part in parts)

    query = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
    rows = await sqlite_backend.read(lambda tx: tx.all(query))
    made = {row.name: words(row.sql) for row in rows}
    for name, table in metadata.tables.items():
        ddl = str(CreateTable(table).compile(dialect=sqlite.dialect()))
        assert made[name] == words(ddl), name


async def test_ids_are_compared_by_bytes_on_postgresql(
    postgres_backend: Backend,
) -> None:
    query = (
        "SELECT table_name, column_name, collation_name FROM"
        " information_schema.columns WHERE table_schema = 'public'"
    )
    rows = await postgres_backend.read(lambda tx: tx.all(query))
    made = {(row[0], row[1]): row[2] for row in rows}
    for name, table in metadata.tables.items():
        for column in table.columns:
            kind = column.type.dialect_impl(postgresql.dialect())
            wanted = "C" if getattr(kind, "collation", None) == "C" else None
            assert made[name, column.name] == wanted, (name, column.name)


async def test_several_nodes_that_start_at_once_apply_once(empty_url: str) -> None:
    nodes = [await open_backend(empty_url) for _ in range(3)]
    async with asyncio.timeout(DEADLINE_SECONDS):
        applied = await asyncio.gather(*(node.migrate() for node in nodes))
    for node in nodes:
        await node.aclose()
    assert sorted(map(len, applied))[:2] == [0, 0]
    assert max(map(len, applied)) >= 1


async def test_a_database_that_a_newer_release_only_added_to_is_served(
    backend: Backend,
) -> None:
    newer = f"UPDATE {migrating.VERSION_TABLE} SET version_num = '9999_newer'"
    await backend.write(lambda tx: tx.run(newer))
    await backend.write(lambda tx: write_setting(tx, FLOOR, b"0001_kernel"))
    assert await backend.migrate() == []
    scripts = await asyncio.to_thread(migrating.load)
    assert await backend.read(partial(migrating.plan, scripts=scripts)) == []


async def test_a_database_that_a_newer_release_took_from_is_refused(
    backend: Backend,
) -> None:
    newer = f"UPDATE {migrating.VERSION_TABLE} SET version_num = '9999_newer'"
    await backend.write(lambda tx: tx.run(newer))
    await backend.write(lambda tx: write_setting(tx, FLOOR, b"9998_post"))
    with pytest.raises(SchemaTooNew, match="9999_newer"):
        await backend.migrate()


async def test_a_newer_database_that_names_no_floor_is_refused(
    backend: Backend,
) -> None:
    newer = f"UPDATE {migrating.VERSION_TABLE} SET version_num = '9999_newer'"
    await backend.write(lambda tx: tx.run(newer))
    await backend.write(lambda tx: tx.run("DELETE FROM setting"))
    with pytest.raises(SchemaTooNew, match="9999_newer"):
        await backend.migrate()


@pytest.fixture
def revisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the revisions to which a test may add its own."""
    copied = tmp_path / "migrations"
    shutil.copytree(REVISIONS, copied)
    monkeypatch.setattr(migrating, "_FOLDER", copied)
    monkeypatch.setattr(revisions_module, "NEWEST", "a test's own")
    monkeypatch.setattr(revisions_module, "KNOWN", ("a test's own",))
    return copied / "versions"


def add_revision(folder: Path, name: str, after: str, phase: str, work: str) -> None:
    (folder / f"{name}.py").write_text(
        f'"""{name}."""\n'
        "from alembic import op\n"
        f'revision = "{name}"\ndown_revision = "{after}"\n{phase}\n'
        f"def upgrade() -> None:\n    {work}\n"
    )


async def test_post_waits_until_it_is_asked_for_and_holds_what_follows(
    revisions: Path, backend: Backend
) -> None:
    scripts = await asyncio.to_thread(migrating.load)
    head = migrating.head(scripts)
    for name, after, phase in (
        ("x1", head, "pre"),
        ("x2", "x1", "post"),
        ("x3", "x2", "pre"),
    ):
        work = f'op.execute("CREATE TABLE {name} (id text)")'
        add_revision(revisions, name, after, f'phase = "{phase}"', work)
    scripts = await asyncio.to_thread(migrating.load)
    planned = await backend.read(partial(migrating.plan, scripts=scripts))
    assert [(p.revision, p.phase) for p in planned] == [
        ("x1", "pre"),
        ("x2", "post"),
        ("x3", "pre"),
    ]
    assert planned[0].summary == "x1."
    assert await backend.migrate() == ["x1"]
    assert await backend.migrate() == []
    assert await backend.read(floor_of) == "0001_kernel"
    assert await backend.migrate(post=True) == ["x2", "x3"]
    assert await backend.read(floor_of) == "x2"
    assert await backend.read(lambda tx: tx.scalar("SELECT count(*) FROM x3")) == 0


async def test_a_release_serves_before_its_post_revision_is_applied(
    revisions: Path, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or who submits in a transaction of its own would be refused until then."""
    scripts = await asyncio.to_thread(migrating.load)
    head = migrating.head(scripts)
    for name, after, phase in (("x1", head, "pre"), ("x2", "x1", "post")):
        add_revision(
            revisions, name, after, f'phase = "{phase}"', 'op.execute("SELECT 1")'
        )
    monkeypatch.setattr(revisions_module, "KNOWN", (head, "x1", "x2"))
    monkeypatch.setattr(revisions_module, "NEWEST", "x2")
    monkeypatch.setattr(revisions_module, "NEEDED", "x1")
    assert not await backend.read(is_served)
    assert await backend.migrate() == ["x1"]
    assert await backend.read(is_served)
    assert await backend.migrate(post=True) == ["x2"]
    assert await backend.read(is_served)


async def test_a_revision_that_fails_leaves_nothing_of_any(
    revisions: Path, backend: Backend
) -> None:
    scripts = await asyncio.to_thread(migrating.load)
    head = migrating.head(scripts)
    good, bad = "CREATE TABLE x1 (id text)", "CREATE TABLE x1 (again text)"
    add_revision(revisions, "x1", head, 'phase = "pre"', f'op.execute("{good}")')
    add_revision(revisions, "x2", "x1", 'phase = "pre"', f'op.execute("{bad}")')
    with pytest.raises(Exception, match="x1"):
        await backend.migrate()
    assert await backend.read(migrating.current) == head
    (revisions / "x2.py").unlink()
    assert await backend.migrate() == ["x1"]


async def test_a_revision_without_a_phase_is_our_own_mistake(
    revisions: Path, backend: Backend
) -> None:
    scripts = await asyncio.to_thread(migrating.load)
    add_revision(revisions, "x1", migrating.head(scripts), "", "pass")
    with pytest.raises(InvariantViolated, match="x1"):
        await backend.migrate()


async def test_post_is_refused_while_an_open_node_does_not_understand_it(
    revisions: Path, backend: Backend
) -> None:
    scripts = await asyncio.to_thread(migrating.load)
    head = migrating.head(scripts)
    add_revision(revisions, "x1", head, 'phase = "post"', 'op.execute("SELECT 1")')
    yard = Yard(backend)
    knows_x1, newer, old, older = [await yard.node(f"host:{n}") for n in range(4)]
    for node, revision in ((knows_x1, "x1"), (newer, "x9"), (old, head), (older, None)):
        await backend.write(
            lambda tx, node=node, revision=revision: tx.run(
                "UPDATE node SET revision = :revision WHERE id = :node",
                {"node": node, "revision": revision},
            )
        )
    for node, name in ((old, "host:2"), (older, "host:3")):
        with pytest.raises(NodesBehind, match=f"node {node} \\({name}.*'x1'"):
            await backend.migrate(post=True)
        await yard.close(node, "drained")
    assert await backend.migrate(post=True) == ["x1"]


@pytest.mark.parametrize("patient", [False, True], ids=["shortly", "for_long"])
async def test_a_migration_that_waits_for_a_table_holds_up_nobody_behind_it(
    revisions: Path,
    postgres_url: str,
    postgres_backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
    patient: bool,
) -> None:
    """Control: one that waits for its lock for long makes others give up theirs."""
    scripts = await asyncio.to_thread(migrating.load)
    ddl = 'op.execute("ALTER TABLE node ADD COLUMN x1 text")'
    add_revision(revisions, "x1", migrating.head(scripts), 'phase = "pre"', ddl)
    monkeypatch.setattr(migrating, "MIGRATION_LOCK_SECONDS", 60.0 if patient else 0.02)
    monkeypatch.setattr(postgresql_backend, "MIGRATION_PAUSE_SECONDS", 0.05)
    node = await Yard(postgres_backend).node()
    beat = partial(nodes.beat, node=node, tick=1)
    async with held_transaction(postgres_url) as held:
        await held.run(lambda tx: tx.all("SELECT id FROM node"))
        running = asyncio.create_task(postgres_backend.migrate())
        await wait_until_blocked(postgres_backend)
        if patient:
            with pytest.raises(RowsLocked):
                await postgres_backend.write(beat, retry=False)
        else:
            for _ in range(20):
                found = await postgres_backend.write(beat, retry=False)
                assert found.beat is not None
        assert not running.done()
        await held.commit()
        assert await running == ["x1"]


async def test_a_migration_that_never_gets_its_table_says_so(
    revisions: Path,
    postgres_url: str,
    postgres_backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripts = await asyncio.to_thread(migrating.load)
    ddl = 'op.execute("ALTER TABLE node ADD COLUMN x1 text")'
    add_revision(revisions, "x1", migrating.head(scripts), 'phase = "pre"', ddl)
    monkeypatch.setattr(postgresql_backend, "MIGRATION_WAIT_SECONDS", 0.0)
    async with held_transaction(postgres_url) as held:
        await held.run(lambda tx: tx.all("SELECT id FROM node"))
        with pytest.raises(RowsLocked, match="pg_stat_activity"):
            await postgres_backend.migrate()
        assert await postgres_backend.read(migrating.current) == migrating.head(scripts)
