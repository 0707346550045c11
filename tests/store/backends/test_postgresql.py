from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import await_only

from tenure.errors import DatabaseUnavailable
from tenure.limits import CONNECTIONS
from tenure.store.backend import CommitUnknown, RowsLocked, open_backend
from tenure.store.backends import postgresql as module
from tenure.store.revisions import FLOOR
from tests.databases import asyncpg_dsn
from tests.proxy import proxied

if TYPE_CHECKING:
    from tenure.store.contract import Backend
    from tenure.store.tx import Tx
    from tests.databases import PostgresServer

DEADLINE_SECONDS = 30.0
OWN = f"setting WHERE name <> '{FLOOR}'"


def add(tx: Tx, name: str = "a") -> None:
    tx.run(
        "INSERT INTO setting (name, value, updated_at) VALUES (:n, '1', 0)",
        {"n": name},
    )


def change(tx: Tx, name: str) -> None:
    tx.run(
        "UPDATE setting SET updated_at = updated_at + 1 WHERE name = :n", {"n": name}
    )


def count(tx: Tx) -> int:
    return tx.scalar(f"SELECT count(*) FROM {OWN}")


def my_pid(tx: Tx) -> int:
    return tx.scalar("SELECT pg_backend_pid()")


def shown(tx: Tx, name: str) -> str:
    return tx.scalar("SELECT current_setting(:n)", {"n": name})


@pytest.mark.parametrize("mode", ["pass", "cut at commit", "cut before commit"])
async def test_a_lost_answer_to_commit_is_told_apart(
    mode: str, postgres_server: PostgresServer, postgres_database: str
) -> None:
    async with proxied(postgres_server) as proxy, asyncio.timeout(DEADLINE_SECONDS):
        url = postgres_server.database_by_port(postgres_database, proxy.port)
        backend = await open_backend(url)
        proxy.mode, proxy.commits = mode, 0
        if mode == "pass":  # the control: the same script without the fault
            await backend.write(add)
        else:
            with pytest.raises(CommitUnknown):
                await backend.write(add)
        assert proxy.commits == 1  # never sent again by the backend itself
        proxy.mode = "pass"
        kept = await backend.read(count)
        await backend.aclose()
    assert kept == (0 if mode == "cut before commit" else 1)


async def test_a_silent_server_does_not_hang_its_callers(
    postgres_server: PostgresServer,
    postgres_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The driver gives a server one second more than the statement timeout: 0.3 s.
    monkeypatch.setattr(module._engine, "__kwdefaults__", {"statement_seconds": -0.7})
    async with proxied(postgres_server) as proxy, asyncio.timeout(DEADLINE_SECONDS):
        url = postgres_server.database_by_port(postgres_database, proxy.port)
        backend = await open_backend(url)
        await backend.write(count)
        proxy.mode = "silent"
        with pytest.raises(DatabaseUnavailable):
            await backend.write(count)
        with pytest.raises(DatabaseUnavailable):
            await backend.read(count)
        proxy.mode = "pass"
        assert await backend.write(count) == 0
        await backend.aclose()


async def test_a_connection_killed_while_idle_is_replaced_unseen(
    postgres_backend: Backend, postgres_server: PostgresServer
) -> None:
    pid = await postgres_backend.write(my_pid)
    await postgres_server.run(f"SELECT pg_terminate_backend({pid}, 5000)")
    assert await postgres_backend.write(my_pid) != pid
    pid = await postgres_backend.read(my_pid)
    await postgres_server.run(f"SELECT pg_terminate_backend({pid}, 5000)")
    assert await postgres_backend.read(my_pid) != pid


async def test_a_connection_killed_inside_a_transaction_runs_it_again(
    postgres_backend: Backend, postgres_server: PostgresServer
) -> None:
    pids: list[int] = []

    def work(tx: Tx) -> None:
        add(tx)
        pids.append(my_pid(tx))
        if len(pids) == 1:
            kill = f"SELECT pg_terminate_backend({pids[0]}, 5000)"
            await_only(postgres_server.run(kill))
        add(tx, "b")

    await postgres_backend.write(work)
    assert len(set(pids)) == 2
    assert await postgres_backend.read(count) == 2


async def test_a_killed_transaction_that_may_not_run_again_is_unavailable(
    postgres_backend: Backend, postgres_server: PostgresServer
) -> None:
    def work(tx: Tx) -> None:
        kill = f"SELECT pg_terminate_backend({my_pid(tx)}, 5000)"
        await_only(postgres_server.run(kill))
        add(tx)

    with pytest.raises(DatabaseUnavailable) as failed:
        await postgres_backend.write(work, retry=False)
    assert not isinstance(failed.value, CommitUnknown)
    assert await postgres_backend.read(count) == 0


async def test_a_row_locked_by_others_is_waited_for_and_then_changed(
    postgres_backend: Backend, postgres_url: str
) -> None:
    await postgres_backend.write(add)
    other = await asyncpg.connect(asyncpg_dsn(postgres_url))
    holding = other.transaction()
    await holding.start()
    await other.execute("UPDATE setting SET updated_at = 7")
    tries: list[int] = []

    def work(tx: Tx) -> None:
        tries.append(1)
        if len(tries) == 3:
            await_only(holding.commit())
        change(tx, "a")

    async with asyncio.timeout(DEADLINE_SECONDS):
        await postgres_backend.write(work)
    assert len(tries) == 3
    query = f"SELECT updated_at FROM {OWN}"
    assert await postgres_backend.read(lambda tx: tx.scalar(query)) == 8
    await other.close()


async def test_a_row_that_stays_locked_fails_at_once_when_told_so(
    postgres_backend: Backend, postgres_url: str
) -> None:
    await postgres_backend.write(add)
    other = await asyncpg.connect(asyncpg_dsn(postgres_url))
    await other.execute("BEGIN; UPDATE setting SET updated_at = 7")
    tries: list[int] = []

    def work(tx: Tx) -> None:
        tries.append(1)
        change(tx, "a")

    with pytest.raises(RowsLocked):
        await postgres_backend.write(work, retry=False)
    assert len(tries) == 1
    with pytest.raises(RowsLocked):
        await postgres_backend.write(work)
    assert len(tries) == 1 + module.COMMIT_RETRIES_MAX
    await other.close()


async def test_the_loser_of_a_deadlock_runs_again(postgres_backend: Backend) -> None:
    await postgres_backend.write(lambda tx: (add(tx, "a"), add(tx, "b")))
    # Longer than deadlock_timeout, so that the deadlock is found and not timed out.
    patient = "SELECT set_config('lock_timeout', '10000', true)"
    both = asyncio.Barrier(2)
    tries: list[str] = []

    def crossing(first: str, second: str, tx: Tx) -> None:
        tries.append(first)
        tx.first(patient)
        change(tx, first)
        if tries.count(first) == 1:
            await_only(both.wait())
        change(tx, second)

    async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(postgres_backend.write(lambda tx: crossing("a", "b", tx)))
        group.create_task(postgres_backend.write(lambda tx: crossing("b", "a", tx)))
    assert len(tries) == 3
    query = f"SELECT sum(updated_at) FROM {OWN}"
    assert await postgres_backend.read(lambda tx: tx.scalar(query)) == 4


async def test_a_serialization_failure_runs_again(
    postgres_backend: Backend,
) -> None:
    tries: list[int] = []

    def work(tx: Tx) -> None:
        tries.append(1)
        add(tx)
        if len(tries) < 3:
            tx.run(
                "DO $$ BEGIN RAISE EXCEPTION 'again'"
                " USING ERRCODE = 'serialization_failure'; END $$"
            )

    await postgres_backend.write(work)
    assert len(tries) == 3
    assert await postgres_backend.read(count) == 1


async def test_a_table_changed_under_a_prepared_statement_is_no_error(
    postgres_backend: Backend, postgres_server: PostgresServer, postgres_url: str
) -> None:
    query = f"SELECT * FROM {OWN}"
    for _ in range(2):
        await postgres_backend.write(lambda tx: tx.all(query))
    other = await asyncpg.connect(asyncpg_dsn(postgres_url))
    await other.execute("ALTER TABLE setting ADD COLUMN more text")
    await other.close()
    assert await postgres_backend.write(lambda tx: tx.all(query)) == []


async def test_writes_are_guarded_and_reads_plan_freely(
    postgres_backend: Backend,
) -> None:
    guarded = {
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "lock_timeout": "200ms",
        "statement_timeout": "15s",
        "idle_in_transaction_session_timeout": "30s",
        "transaction_isolation": "read committed",
        "transaction_read_only": "off",
        "synchronous_commit": "on",
    }
    free = {
        "enable_seqscan": "on",
        "lock_timeout": "0",
        "plan_cache_mode": "force_custom_plan",
        "statement_timeout": "15s",
        "transaction_isolation": "repeatable read",
        "transaction_read_only": "on",
    }

    def look(names: dict[str, str], tx: Tx) -> dict[str, str]:
        return {name: shown(tx, name) for name in names}

    assert await postgres_backend.write(lambda tx: look(guarded, tx)) == guarded
    assert await postgres_backend.read(lambda tx: look(free, tx)) == free
    blocking = await asyncio.to_thread(
        postgres_backend.write_blocking, lambda tx: look(guarded, tx)
    )
    assert blocking == guarded


@pytest.mark.parametrize(
    ("weaker", "used"),
    [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")],
)
async def test_durability_is_raised_where_it_is_weaker_and_never_lowered(
    weaker: str,
    used: str,
    postgres_server: PostgresServer,
    postgres_database: str,
    postgres_url: str,
) -> None:
    await postgres_server.run(
        f'ALTER DATABASE "{postgres_database}" SET synchronous_commit = {weaker}'
    )
    backend = await open_backend(postgres_url)
    assert await backend.write(lambda tx: shown(tx, "synchronous_commit")) == used
    await backend.aclose()


async def test_isolation_does_not_depend_on_the_database_default(
    postgres_server: PostgresServer, postgres_database: str, postgres_url: str
) -> None:
    await postgres_server.run(
        f'ALTER DATABASE "{postgres_database}"'
        " SET default_transaction_isolation = 'serializable'"
    )
    backend = await open_backend(postgres_url)
    isolation = await backend.write(lambda tx: shown(tx, "transaction_isolation"))
    await backend.aclose()
    assert isolation == "read committed"


async def test_nothing_is_left_in_the_session_for_the_next_client(
    postgres_backend: Backend,
) -> None:
    changed = (
        "SELECT name FROM pg_settings"
        " WHERE source = 'session' AND name NOT LIKE 'transaction%'"
        " ORDER BY name"
    )
    await postgres_backend.write(add)
    # The read's own two, which end with it.
    own = ["plan_cache_mode", "statement_timeout"]
    for _ in range(2):
        found = await postgres_backend.read(lambda tx: [r[0] for r in tx.all(changed)])
        assert found == own


async def test_a_read_only_server_is_unavailable(
    postgres_server: PostgresServer, postgres_database: str, postgres_url: str
) -> None:
    await postgres_server.run(
        f'ALTER DATABASE "{postgres_database}" SET default_transaction_read_only = on'
    )
    backend = await open_backend(postgres_url)
    with pytest.raises(DatabaseUnavailable, match="read-only"):
        await backend.write(add)
    await backend.aclose()


async def test_a_database_that_does_not_exist_is_unavailable_by_name(
    postgres_server: PostgresServer,
) -> None:
    with pytest.raises(DatabaseUnavailable, match="nowhere"):
        await open_backend(postgres_server.database("nowhere"))


async def test_a_server_without_room_is_unavailable(
    postgres_server: PostgresServer, postgres_database: str, postgres_url: str
) -> None:
    role = f"{postgres_database}_narrow"
    await postgres_server.run(f'CREATE ROLE "{role}" LOGIN CONNECTION LIMIT 0')
    url = asyncpg_dsn(postgres_url).replace("//postgres@", f"//{role}@")
    with pytest.raises(DatabaseUnavailable, match="too many connections"):
        await open_backend(url)
    await postgres_server.run(f'DROP ROLE "{role}"')


async def test_one_process_uses_few_connections(
    postgres_backend: Backend, postgres_database: str
) -> None:
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = :name"
    params = {"name": postgres_database}
    async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as group:
        for _ in range(40):
            group.create_task(postgres_backend.write(my_pid))
            group.create_task(postgres_backend.read(my_pid))
        group.create_task(asyncio.to_thread(postgres_backend.write_blocking, my_pid))
        group.create_task(asyncio.to_thread(postgres_backend.read_blocking, my_pid))
    used = await postgres_backend.read(lambda tx: tx.scalar(query, params))
    assert used <= CONNECTIONS - 1  # the wake-ups' own connection comes on top


async def test_a_busy_pool_does_not_delay_the_beat(postgres_backend: Backend) -> None:
    release = asyncio.Event()
    begun = asyncio.Semaphore(0)

    def hold(_: Tx) -> None:
        begun.release()
        await_only(release.wait())

    async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as group:
        for _ in range(module.POSTGRESQL_POOL):
            group.create_task(postgres_backend.write(hold))
        for _ in range(module.POSTGRESQL_POOL):
            await begun.acquire()
        waiting = group.create_task(postgres_backend.read(my_pid))
        assert await asyncio.to_thread(postgres_backend.write_blocking, my_pid)
        assert not waiting.done()
        release.set()


@pytest.mark.parametrize(
    "options",
    [
        "prepared_statement_cache_size=0&statement_cache_size=0",
        "statement_cache_size=0",
    ],
)
async def test_statement_caches_can_be_turned_off_for_a_pooler(
    options: str, postgres_url: str
) -> None:
    joint = "&" if "?" in postgres_url else "?"
    backend = await open_backend(f"{postgres_url}{joint}{options}")
    for number in range(3):
        await backend.write(lambda tx, number=number: add(tx, f"n{number}"))
    left = "SELECT name FROM pg_prepared_statements WHERE name LIKE 'tenure%'"
    names = await backend.read(lambda tx: [row.name for row in tx.all(left)])
    assert await backend.read(count) == 3
    await backend.aclose()
    assert bool(names) is not options.startswith("prepared_statement_cache_size=0")


async def test_two_connections_never_prepare_under_one_name(
    postgres_backend: Backend,
) -> None:
    both = asyncio.Barrier(2)

    def look(tx: Tx) -> set[str]:
        await_only(both.wait())
        tx.scalar("SELECT 1")
        names = "SELECT name FROM pg_prepared_statements WHERE name LIKE 'tenure%'"
        return {row.name for row in tx.all(names)}

    async with asyncio.timeout(DEADLINE_SECONDS):
        one, other = await asyncio.gather(
            postgres_backend.write(look), postgres_backend.write(look)
        )
    assert one
    assert other
    assert not one & other


async def test_the_clock_is_the_servers(postgres_backend: Backend) -> None:
    def look(tx: Tx) -> tuple[int, int]:
        later = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
        return tx.now, tx.scalar(later)

    for run in (postgres_backend.write, postgres_backend.read):
        now, later = await run(look)
        assert now <= later < now + 60 * 10**6


async def test_a_wrong_statement_is_no_unavailability(
    postgres_backend: Backend,
) -> None:
    with pytest.raises(DBAPIError, match="nothing_here"):
        await postgres_backend.write(lambda tx: tx.run("DELETE FROM nothing_here"))


@pytest.mark.parametrize(
    "state",
    [*sorted(module._UNAVAILABLE - {"25006"}), "53000", "53100", "53400", "58030"],
)
async def test_what_the_server_cannot_do_now_is_unavailable(
    state: str, postgres_backend: Backend
) -> None:
    fail = f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$"
    with pytest.raises(DatabaseUnavailable):
        await postgres_backend.write(lambda tx: tx.run(fail))
    assert await postgres_backend.write(count) == 0


async def test_a_read_is_planned_for_the_tables_as_they_are_now(
    postgres_backend: Backend,
) -> None:
    # A generic plan made while a table is empty reads it from end to end for ever.
    for _ in range(12):
        await postgres_backend.read(
            lambda tx: tx.all("SELECT value FROM setting WHERE name = :n", {"n": "x"})
        )
    plans = await postgres_backend.read(
        lambda tx: tx.first(
            "SELECT sum(custom_plans), sum(generic_plans) FROM pg_prepared_statements"
            " WHERE statement LIKE 'SELECT value FROM setting%'"
        )
    )
    assert plans is not None
    assert tuple(plans) == (12, 0)
