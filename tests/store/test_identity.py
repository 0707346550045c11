from __future__ import annotations

import asyncio
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.store.backend import open_backend
from tenure.store.identity import (
    Matches,
    Mismatch,
    adopt_identity,
    check_identity,
    claim_setting,
    read_setting,
    write_setting,
)

if TYPE_CHECKING:
    from tenure.store.contract import Backend
    from tests.databases import MakeBackend, PostgresServer

check_live = partial(check_identity, deployment="live")
check_staging = partial(check_identity, deployment="staging")


async def test_a_setting_is_kept_as_the_bytes_that_were_given(backend: Backend) -> None:
    assert await backend.read(lambda tx: read_setting(tx, "x")) is None
    await backend.write(lambda tx: write_setting(tx, "x", b"\x00\xff"))
    await backend.write(lambda tx: write_setting(tx, "y", b""))
    await backend.write(lambda tx: write_setting(tx, "x", b"new"))
    assert await backend.read(lambda tx: read_setting(tx, "x")) == b"new"
    assert await backend.read(lambda tx: read_setting(tx, "y")) == b""


async def test_the_first_of_several_nodes_decides_a_claimed_setting(
    make_backend: MakeBackend,
) -> None:
    nodes = [await make_backend() for _ in range(3)]
    kept = await asyncio.gather(
        *(
            node.write(lambda tx, at=at: claim_setting(tx, "x", b"%d" % at))
            for at, node in enumerate(nodes)
        )
    )
    assert len(set(kept)) == 1


async def test_a_database_matches_what_it_said_at_first_use(backend: Backend) -> None:
    first = await backend.write(check_live)
    again = await backend.write(check_live)
    assert isinstance(first, Matches)
    assert again == first


async def test_another_deployment_name_is_a_mismatch_until_adopted(
    backend: Backend,
) -> None:
    await backend.write(check_live)
    verdict = await backend.write(check_staging)
    assert isinstance(verdict, Mismatch)
    assert "'live'" in verdict.reason
    assert "'staging'" in verdict.reason
    # Looking changes nothing: the original goes on as it was.
    assert isinstance(await backend.write(check_live), Matches)
    await backend.write(lambda tx: adopt_identity(tx, "staging"))
    assert isinstance(await backend.write(check_staging), Matches)
    assert isinstance(await backend.write(check_live), Mismatch)


async def test_a_copied_postgresql_database_is_seen(
    postgres_backend: Backend, postgres_server: PostgresServer, postgres_database: str
) -> None:
    await postgres_backend.write(check_live)
    await postgres_backend.aclose()
    copy = f"{postgres_database}_copy"
    await postgres_server.run(
        f'CREATE DATABASE "{copy}" TEMPLATE "{postgres_database}"'
    )
    copied = await open_backend(postgres_server.database(copy))
    verdict = await copied.write(check_live)
    await copied.aclose()
    await postgres_server.run(f'DROP DATABASE "{copy}" WITH (FORCE)')
    assert isinstance(verdict, Mismatch)
    assert "database name" in verdict.reason


async def test_a_user_who_may_not_ask_the_system_identifier_still_starts(
    postgres_server: PostgresServer, postgres_database: str, postgres_url: str
) -> None:
    role = f"{postgres_database}_plain"
    await postgres_server.run(
        f'CREATE ROLE "{role}" LOGIN',
        f'ALTER DATABASE "{postgres_database}" OWNER TO "{role}"',
    )
    owner = await open_backend(postgres_url)
    assert isinstance(await owner.write(check_live), Matches)
    await owner.write(
        lambda tx: [
            tx.run("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC"),
            tx.run(f'GRANT SELECT, INSERT, UPDATE ON setting TO "{role}"'),
        ]
    )
    plain = await open_backend(postgres_url.replace("//postgres@", f"//{role}@"))
    verdict = await plain.write(check_live)
    assert isinstance(verdict, Matches)
    assert verdict.identity.system is not None
    adopted = await plain.write(lambda tx: adopt_identity(tx, "live"))
    await plain.aclose()
    await owner.aclose()
    assert adopted.system is None
    assert adopted.database == postgres_database


async def test_a_moved_sqlite_file_is_the_same_database(
    sqlite_url: str, tmp_path: Path
) -> None:
    backend = await open_backend(sqlite_url)
    await backend.write(check_live)
    await backend.aclose()
    moved = tmp_path / "elsewhere.db"
    shutil.move(sqlite_url.removeprefix("sqlite:///"), moved)
    backend = await open_backend(f"sqlite:///{moved}")
    assert isinstance(await backend.write(check_live), Matches)
    await backend.aclose()


async def test_a_sqlite_file_copied_beside_its_source_is_a_copy_until_adopted(
    sqlite_url: str, tmp_path: Path
) -> None:
    backend = await open_backend(sqlite_url)
    await backend.write(check_live)
    await backend.aclose()
    source = Path(sqlite_url.removeprefix("sqlite:///"))
    copy = tmp_path / "copy.db"
    shutil.copyfile(source, copy)
    copied = await open_backend(f"sqlite:///{copy}")
    verdict = await copied.write(check_live)
    assert isinstance(verdict, Mismatch)
    assert f"copied from {source}" in verdict.reason
    backend = await open_backend(sqlite_url)
    assert isinstance(await backend.write(check_live), Matches), "the original goes on"
    await copied.write(lambda tx: adopt_identity(tx, "live"))
    assert isinstance(await copied.write(check_live), Matches)
    assert isinstance(await backend.write(check_live), Matches)
    await backend.aclose()
    await copied.aclose()


async def test_a_file_whose_former_place_another_database_took_is_no_copy(
    sqlite_url: str, sqlite_template: Path, tmp_path: Path
) -> None:
    backend = await open_backend(sqlite_url)
    await backend.write(check_live)
    await backend.aclose()
    place, moved = Path(sqlite_url.removeprefix("sqlite:///")), tmp_path / "moved.db"
    shutil.move(place, moved)
    shutil.copyfile(sqlite_template, place)
    fresh = await open_backend(sqlite_url)
    assert isinstance(await fresh.write(check_live), Matches)
    await fresh.aclose()
    backend = await open_backend(f"sqlite:///{moved}")
    assert isinstance(await backend.write(check_live), Matches)
    await backend.aclose()
