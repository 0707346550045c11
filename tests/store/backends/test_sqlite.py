from __future__ import annotations

import asyncio
import sqlite3
import stat
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import DBAPIError

from tenure.clock import SettableClock
from tenure.errors import ConfigInvalid, DatabaseUnavailable
from tenure.limits import SQLITE_SWITCH_SECONDS
from tenure.store.backend import BackendSettings, open_backend
from tenure.store.backends import sqlite as module

if TYPE_CHECKING:
    from tenure.store.contract import Backend
    from tenure.store.tx import Tx

DEADLINE_SECONDS = 20.0
ADD_NODE = (
    "INSERT INTO node (name, host, pid, version, serves, beat_at, started_at)"
    " VALUES ('n', 'h', 1, '0', '', :at, :at)"
)


def path_of(backend: Backend) -> Path:
    return Path(backend.url.database or "")


def pragma(tx: Tx, name: str) -> object:
    return tx.scalar(f"PRAGMA {name}")


async def test_threads_take_shorter_turns_once_a_file_is_open(tmp_path: Path) -> None:
    before = sys.getswitchinterval()
    try:
        for given, kept in ((0.005, SQLITE_SWITCH_SECONDS), (0.000_1, 0.000_1)):
            sys.setswitchinterval(given)
            url = f"sqlite:///{tmp_path}/turns.db"
            backend = await open_backend(url, BackendSettings())
            await backend.aclose()
            assert sys.getswitchinterval() == pytest.approx(kept, abs=5e-6)
    finally:
        sys.setswitchinterval(before)


async def test_every_connection_is_set_up_for_safety(sqlite_backend: Backend) -> None:
    names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")

    def look(tx: Tx) -> list[object]:
        return [pragma(tx, name) for name in names]

    safe = ["wal", 2, 1, 0]
    assert await sqlite_backend.write(look) == safe
    assert await sqlite_backend.read(look) == safe
    assert await asyncio.to_thread(sqlite_backend.write_blocking, look) == safe


async def test_durability_can_be_lowered_by_name(tmp_path: Path) -> None:
    chosen = BackendSettings(synchronous="normal")
    backend = await open_backend(f"sqlite:///{tmp_path}/x.db", chosen)
    assert await backend.write(lambda tx: pragma(tx, "synchronous")) == 1
    await backend.aclose()


async def test_a_new_file_is_the_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    backend = await open_backend(f"sqlite:///{path}")
    await backend.write(lambda tx: tx.run("CREATE TABLE t (x)"))
    modes = {
        each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()
    }
    await backend.aclose()
    assert modes == dict.fromkeys(("x.db", "x.db-wal", "x.db-shm"), 0o600)


async def test_closing_leaves_no_log_behind(tmp_path: Path) -> None:
    backend = await open_backend(f"sqlite:///{tmp_path}/x.db")
    await backend.migrate()
    await backend.aclose()
    assert [each.name for each in tmp_path.iterdir()] == ["x.db"]


async def test_a_closed_backend_says_so(tmp_path: Path) -> None:
    backend = await open_backend(f"sqlite:///{tmp_path}/x.db")
    await backend.aclose()
    with pytest.raises(DatabaseUnavailable, match="closed"):
        await backend.read(lambda tx: tx.now)


async def test_a_folder_or_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="folder"):
        await open_backend(f"sqlite:///{tmp_path}")
    with pytest.raises(DatabaseUnavailable, match="cannot open"):
        await open_backend(f"sqlite:///{tmp_path}/none/x.db")


async def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"a letter, not a database" * 100)
    with pytest.raises(ConfigInvalid, match="no sound SQLite"):
        await open_backend(f"sqlite:///{path}")
    assert path.read_bytes() == b"a letter, not a database" * 100


async def test_a_full_disk_is_an_unavailable_database(sqlite_backend: Backend) -> None:
    def work(tx: Tx) -> None:
        tx.run(f"PRAGMA max_page_count = {pragma(tx, 'page_count')}")
        tx.run("CREATE TABLE big AS SELECT zeroblob(10000000) AS x")

    with pytest.raises(DatabaseUnavailable, match="full"):
        await sqlite_backend.write(work)


async def test_a_writer_waits_for_another_process_and_then_goes_on(
    sqlite_backend: Backend,
) -> None:
    other = sqlite3.connect(path_of(sqlite_backend), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    ran = threading.Event()
    waiting = asyncio.create_task(sqlite_backend.write(lambda _: ran.set()))
    assert await sqlite_backend.read(lambda tx: tx.scalar("SELECT 1")) == 1
    assert not ran.is_set()
    other.execute("COMMIT")
    other.close()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await waiting
    assert ran.is_set()


async def test_a_lock_that_is_never_free_ends_the_wait(
    sqlite_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SQLITE_WAIT_SECONDS", 0.05)
    other = sqlite3.connect(path_of(sqlite_backend), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseUnavailable, match="write lock"):
        await sqlite_backend.write(lambda _: None)
    other.close()
    await sqlite_backend.write(lambda _: None)


async def test_a_read_does_not_wait_for_a_writer(sqlite_backend: Backend) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(_: Tx) -> bool:
        begun.set()
        return go_on.wait(DEADLINE_SECONDS)

    writing = asyncio.create_task(sqlite_backend.write(slow))
    await asyncio.to_thread(begun.wait, DEADLINE_SECONDS)
    assert await sqlite_backend.read(lambda tx: tx.scalar("SELECT 1")) == 1
    assert not writing.done()
    go_on.set()
    assert await writing


async def test_a_read_that_writes_names_the_reason(sqlite_backend: Backend) -> None:
    with pytest.raises((DBAPIError, DatabaseUnavailable), match="readonly"):
        await sqlite_backend.read(lambda tx: tx.run("CREATE TABLE t (x)"))


async def test_time_stands_still_when_the_wall_goes_back(sqlite_url: str) -> None:
    clock = SettableClock()
    backend = await open_backend(sqlite_url, BackendSettings(clock=clock))
    before = await backend.write(lambda tx: tx.now)
    clock.step_wall(-3600)
    assert await backend.write(lambda tx: tx.now) == before
    clock.step_wall(3601)
    assert await backend.read(lambda tx: tx.now) == before + 1_000_000
    await backend.aclose()


async def test_time_goes_on_at_its_own_pace_when_the_wall_went_back(
    sqlite_url: str,
) -> None:
    clock = SettableClock()
    backend = await open_backend(sqlite_url, BackendSettings(clock=clock))
    before = await backend.write(lambda tx: tx.now)
    clock.step_wall(-3600)
    clock.advance(5)
    assert await backend.write(lambda tx: tx.now) == before + 5_000_000
    await backend.aclose()


async def test_time_starts_at_the_newest_beat_of_the_file(sqlite_url: str) -> None:
    clock = SettableClock()
    ahead = clock.wall_us() + 5
    backend = await open_backend(sqlite_url, BackendSettings(clock=clock))
    await backend.write(lambda tx: tx.run(ADD_NODE, {"at": ahead}))
    await backend.aclose()
    again = await open_backend(sqlite_url, BackendSettings(clock=clock))
    assert await again.write(lambda tx: tx.now) == ahead
    await again.aclose()
