"""What an operator restores, copies, promotes or moves: which of it is a copy."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from tenure.ids import WorkId
from tenure.store import claims
from tenure.store.adopting import adopt
from tenure.store.backend import Backend, open_backend
from tenure.store.identity import Matches, Mismatch, check_identity
from tests.databases import (
    PostgresServer,
    owner_of_servers,
    postgres_binaries,
    reachable_binaries,
    running_postgres,
)
from tests.invariants import faults
from tests.store.yard import Yard

pytestmark = pytest.mark.crash
check_live = partial(check_identity, deployment="live")


def program(name: str, *arguments: str) -> None:
    """Run a program of PostgreSQL; print why not where it is missing."""
    path = postgres_binaries("18") / name
    if not path.exists():
        pytest.skip(f"{path} is not installed")
    done = subprocess.run(
        [path, *arguments], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr


def dsn(url: str) -> str:
    return make_url(url).render_as_string(hide_password=False)


@contextmanager
def promoted(primary: PostgresServer, home: Path) -> Generator[str]:
    """Copy a running server by pg_basebackup, start the copy, promote it."""
    owner = owner_of_servers()
    data, socket = home / "standby", home / "s"
    socket.mkdir()
    if owner is not None:
        shutil.chown(socket, owner)
    binaries = reachable_binaries(postgres_binaries("18"), home, owner)

    def program(name: str, *arguments: str) -> None:
        with (home / "said").open("w+") as said:  # the server would keep a pipe open
            done = subprocess.run(
                [binaries / name, *arguments],
                user=owner,
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                timeout=100,
                check=False,
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            )
            said.seek(0)
            assert done.returncode == 0, said.read()

    port = str(primary.port)
    host = str(home)
    program(
        "pg_basebackup",
        *("-D", str(data), "-R", "-c", "fast"),
        *("-U", "postgres", "-h", host, "-p", port),
    )
    # A standby needs room for as many connections as its primary has.
    options = (
        f"-c unix_socket_directories={socket} -c listen_addresses= -p {port}"
        " -c max_connections=200"
    )
    control = ("-D", str(data), "-w", "-t", "60")
    program("pg_ctl", *control, "-l", str(home / "log2"), "-o", options, "start")
    try:
        program("pg_ctl", *control, "promote")
        yield f"postgresql://postgres@/live?host={socket}&port={port}"
    finally:
        program("pg_ctl", *control, "-m", "immediate", "stop")


async def waiting(backend: Backend) -> list[WorkId]:
    yard = Yard(backend)
    await backend.write(check_live)
    return await yard.submit(await yard.lane(), 3)


async def test_a_dump_restored_into_another_cluster_is_a_copy_that_may_be_held(
    postgres_url: str, tmp_path: Path
) -> None:
    backend = await open_backend(postgres_url)
    ids = await waiting(backend)
    dump = tmp_path / "tenure.dump"
    program("pg_dump", "-Fc", "-f", str(dump), "-d", dsn(postgres_url))
    assert isinstance(await backend.write(check_live), Matches)
    await backend.aclose()
    with running_postgres() as other:
        await other.run("CREATE DATABASE restored TEMPLATE template0")
        url = other.database("restored")
        program("pg_restore", "--no-owner", "-d", dsn(url), str(dump))
        copy = await open_backend(url)
        verdict = await copy.write(check_live)
        assert isinstance(verdict, Mismatch)
        assert "system identifier" in verdict.reason
        done = await adopt(copy, "live", held=True)
        assert isinstance(done.before, Mismatch)
        assert done.before.reason == verdict.reason
        assert done.held == len(ids)
        assert isinstance(await copy.write(check_live), Matches)
        yard = Yard(copy)
        assert {row.reason for row in (await yard.rows(ids)).values()} == {claims.HELD}
        assert await copy.read(faults) == []
        await copy.aclose()


@pytest.mark.long
async def test_a_standby_that_was_promoted_is_the_same_database(
    tmp_path: Path,
) -> None:
    with running_postgres() as primary:
        await primary.run("CREATE DATABASE live TEMPLATE template0")
        backend = await open_backend(primary.database("live"))
        await backend.migrate()
        ids = await waiting(backend)
        await backend.aclose()
        assert primary.data is not None
        with promoted(primary, primary.data.parent) as url:
            standby = await open_backend(url)
            assert isinstance(await standby.write(check_live), Matches)
            assert len(await Yard(standby).rows(ids)) == len(ids)
            await standby.aclose()


async def test_a_database_held_where_nobody_works_is_restored_in_place(
    sqlite_url: str, tmp_path: Path
) -> None:
    backend = await open_backend(sqlite_url)
    ids = await waiting(backend)
    await backend.aclose()
    file, backup = Path(sqlite_url.removeprefix("sqlite:///")), tmp_path / "backup.db"
    shutil.copyfile(file, backup)
    shutil.copyfile(backup, file)
    restored = await open_backend(sqlite_url)
    # Nothing tells a file restored in its own place: only --held keeps it from sending.
    assert isinstance(await restored.write(check_live), Matches)
    assert (await adopt(restored, "live", held=True)).held == len(ids)
    await restored.aclose()
