"""What both databases promise alike, with two real connections in each other's way."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import await_only

from tenure.errors import ConfigInvalid, DatabaseUnavailable, InvariantViolated
from tenure.store.backend import open_backend, parse_url
from tenure.store.revisions import FLOOR

if TYPE_CHECKING:
    from tenure.store.contract import Backend
    from tenure.store.tx import Tx
    from tests.databases import MakeBackend

DEADLINE_SECONDS = 20.0


def add(tx: Tx, name: str = "a", value: bytes = b"1") -> None:
    tx.run(
        "INSERT INTO setting (name, value, updated_at) VALUES (:n, :v, 0)",
        {"n": name, "v": value},
    )


def count(tx: Tx) -> int:
    return tx.scalar(f"SELECT count(*) FROM setting WHERE name <> '{FLOOR}'")


class Oops(Exception):
    pass


async def test_what_a_write_returns_is_committed_for_others(
    make_backend: MakeBackend,
) -> None:
    one, other = await make_backend(), await make_backend()

    def work(tx: Tx) -> str:
        add(tx)
        return "done"

    assert await one.write(work) == "done"
    assert await other.read(count) == 1


async def test_an_error_undoes_the_transaction_and_reaches_the_caller(
    backend: Backend,
) -> None:
    def work(tx: Tx) -> None:
        add(tx)
        raise Oops

    with pytest.raises(Oops):
        await backend.write(work)
    assert await backend.read(count) == 0
    await backend.write(add)
    assert await backend.read(count) == 1


async def test_a_read_cannot_write(backend: Backend) -> None:
    with pytest.raises((DBAPIError, DatabaseUnavailable)):
        await backend.read(add)
    assert await backend.read(count) == 0


async def test_a_read_sees_one_snapshot(make_backend: MakeBackend) -> None:
    reader, writer = await make_backend(), await make_backend()
    loop = asyncio.get_running_loop()

    def between() -> None:
        if reader.dialect == "postgresql":  # `fn` runs on the loop, in a greenlet
            await_only(writer.write(add))
        else:
            write = asyncio.run_coroutine_threadsafe(writer.write(add), loop)
            write.result(DEADLINE_SECONDS)

    def look(tx: Tx) -> tuple[int, int]:
        before = count(tx)
        between()
        return before, count(tx)

    assert await reader.read(look) == (0, 0)
    assert await reader.read(count) == 1


async def test_writers_of_two_processes_lose_no_update(
    make_backend: MakeBackend,
) -> None:
    one, other = await make_backend(), await make_backend()
    await one.write(lambda tx: add(tx, value=b"0"))

    def work(tx: Tx) -> None:
        lock = " FOR UPDATE" if tx.dialect == "postgresql" else ""
        was = int(tx.scalar(f"SELECT value FROM setting WHERE name = 'a'{lock}"))
        tx.run("UPDATE setting SET value = :v", {"v": str(was + 1).encode()})

    async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(one.write(work))
            group.create_task(other.write(work))
    value = await one.read(
        lambda tx: tx.scalar("SELECT value FROM setting WHERE name = 'a'")
    )
    assert bytes(value) == b"20"


async def test_a_thread_can_write_and_read_while_the_loop_stands_still(
    backend: Backend,
) -> None:
    seen: list[int] = []

    def beat() -> None:
        backend.write_blocking(add)
        seen.append(backend.read_blocking(count))

    thread = threading.Thread(target=beat)
    thread.start()
    thread.join(DEADLINE_SECONDS)  # this loop runs nothing meanwhile
    assert seen == [1]


async def test_a_blocking_call_on_the_loop_is_refused(backend: Backend) -> None:
    with pytest.raises(InvariantViolated, match="event loop"):
        backend.write_blocking(add)
    with pytest.raises(InvariantViolated, match="event loop"):
        backend.read_blocking(count)


async def test_an_error_in_a_blocking_write_reaches_the_thread(
    backend: Backend,
) -> None:
    def work(tx: Tx) -> None:
        add(tx)
        raise Oops

    with pytest.raises(Oops):
        await asyncio.to_thread(backend.write_blocking, work)
    assert await backend.read(count) == 0


async def test_many_callers_share_few_connections(backend: Backend) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as group:
        for number in range(50):
            name = f"n{number}"
            group.create_task(backend.write(lambda tx, name=name: add(tx, name)))
            group.create_task(backend.read(count))
    assert await backend.read(count) == 50


async def test_a_cancelled_caller_leaves_a_usable_backend(backend: Backend) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        callers = [asyncio.create_task(backend.write(count)) for _ in range(20)]
        await asyncio.sleep(0)
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        assert await backend.write(count) == 0


async def test_closing_twice_is_harmless_and_nothing_opens_it_again(
    make_backend: MakeBackend,
) -> None:
    backend = await make_backend()
    await asyncio.to_thread(backend.write_blocking, count)
    await backend.aclose()
    await backend.aclose()
    for call in (backend.write, backend.read):
        with pytest.raises(DatabaseUnavailable, match="closed"):
            await call(count)
    for blocking in (backend.write_blocking, backend.read_blocking):
        with pytest.raises(DatabaseUnavailable, match="closed"):
            await asyncio.to_thread(blocking, count)


async def test_a_wrong_argument_is_the_callers_error_and_runs_once(
    backend: Backend,
) -> None:
    tries: list[int] = []

    def work(tx: Tx) -> None:
        tries.append(1)
        tx.run(
            "UPDATE setting SET updated_at = :at",
            {"at": object() if tx.dialect == "sqlite" else "no number"},
        )

    with pytest.raises(DBAPIError):
        await backend.write(work)
    assert len(tries) == 1
    with pytest.raises(DBAPIError):
        await backend.read(work)
    assert len(tries) == 2


async def test_migrating_again_finds_nothing_to_do(backend: Backend) -> None:
    assert await backend.migrate(post=True) == []


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("sqlite:///tenure.db", "sqlite"),
        ("sqlite:////var/lib/tenure.db", "sqlite"),
        ("postgresql://user@host/name", "postgresql+asyncpg"),
        ("postgres://user:word@host:5433/name", "postgresql+asyncpg"),
        ("postgresql+asyncpg:///name?host=/run/postgresql", "postgresql+asyncpg"),
    ],
)
def test_every_form_of_url_that_is_documented_is_taken(given: str, driver: str) -> None:
    parsed = parse_url(given)
    assert parsed.drivername == driver
    assert parsed.database == make_url(given).database


@pytest.mark.parametrize(
    "given",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///x.db?mode=memory",
        "mysql://root:hush@host/name",
        "postgresql+psycopg://user:hush@host/name",
        "hush",
        "",
    ],
)
def test_a_url_that_cannot_serve_is_refused_without_its_password(given: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        parse_url(given)
    assert "hush" not in str(refused.value)
    assert "give" in str(refused.value)


async def test_opening_where_nobody_answers_says_so_and_leaves_nothing(
    unused_tcp_port: int,
) -> None:
    url = f"postgresql://user:hush@127.0.0.1:{unused_tcp_port}/name"
    with pytest.raises(DatabaseUnavailable) as failed:
        await open_backend(url)
    assert "hush" not in str(failed.value)
    assert str(unused_tcp_port) in str(failed.value)


async def test_an_error_does_not_show_the_values_of_its_statement(
    make_backend: MakeBackend,
) -> None:
    backend = await make_backend()

    def broken(tx: Tx) -> None:
        tx.run("UPDATE nowhere SET x = :secret", {"secret": "hunter2"})

    with pytest.raises(DBAPIError) as caught:
        await backend.write(broken)
    assert "nowhere" in str(caught.value)
    assert "hunter2" not in str(caught.value)
