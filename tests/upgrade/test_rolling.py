"""A rolling upgrade: old code on the new schema, new code on a database of the old."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest

from tenure.errors import NodesBehind
from tenure.outbox.keyring import new_key
from tenure.store import migrating
from tenure.store import revisions as revisions_module
from tenure.store.backend import open_backend
from tenure.store.nodes import NodeRow, list_nodes
from tenure.store.revisions import revision_of
from tenure.testing.receivers import Receiving, receiving
from tests.cli import rig
from tests.cli.rig import Served, run, serving
from tests.invariants import faults
from tests.upgrade.release import source_before

if TYPE_CHECKING:
    from tests.databases import PostgresServer

pytestmark = pytest.mark.crash


@pytest.fixture
def receiver() -> Iterator[Receiving]:
    with receiving() as made:
        yield made


@pytest.fixture
def empty_url(
    dialect: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[str]:
    """Where a database without any table is."""
    if dialect == "sqlite":
        yield f"sqlite:///{tmp_path}/rolling.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = "rolling_upgrade"
    asyncio.run(server.run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
    asyncio.run(server.run(f"CREATE DATABASE {name} TEMPLATE template0"))
    yield server.database(name)
    asyncio.run(server.run(f"DROP DATABASE {name} WITH (FORCE)"))


def post(served: Served, path: str, body: object) -> Any:
    request = Request(  # noqa: S310 - http to loopback
        f"{served.url}/api/v1/{path}",
        data=json.dumps(body).encode(),
        headers={
            "authorization": f"Bearer {served.key}",
            "content-type": "application/json",
        },
    )
    with urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.load(answer)


def send(served: Served, count: int = 3) -> list[str]:
    message = {"eventType": "invoice.paid", "payload": {"total": 12}}
    return [post(served, "app/shop/msg", message)["id"] for _ in range(count)]


def stop(served: Served) -> None:
    served.command.signal()
    assert served.command.ended() == 0, served.command.errors


async def looked(url: str) -> tuple[str | None, list[NodeRow], list[str]]:
    """Return the revision, the open nodes, and what is wrong with the database."""
    backend = await open_backend(url)
    try:
        return (
            await backend.read(revision_of),
            await backend.read(list_nodes),
            await backend.read(faults),
        )
    finally:
        await backend.aclose()


async def looked_before(url: str) -> tuple[str | None, str]:
    """Return the revision and the only node's name, in a schema of the old release."""
    backend = await open_backend(url)
    try:
        name = "SELECT name FROM node WHERE state = 'open'"
        return (
            await backend.read(revision_of),
            await backend.read(lambda tx: tx.scalar(name)),
        )
    finally:
        await backend.aclose()


async def migrated_by_post(url: str) -> list[str]:
    backend = await open_backend(url)
    try:
        return await backend.migrate(post=True)
    finally:
        await backend.aclose()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give three processes that start beside each other the time that takes."""
    monkeypatch.setattr(rig, "PATIENCE", 180.0)


@pytest.fixture
def post_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process know one revision more, which takes something away."""
    copied = tmp_path / "migrations"
    shutil.copytree(Path(migrating.__file__).parent / "migrations", copied)
    (copied / "versions" / "v9999.py").write_text(
        '"""Takes something away."""\n'
        f'revision = "9999_post"\ndown_revision = "{revisions_module.NEWEST}"\n'
        'phase = "post"\ndef upgrade() -> None:\n    pass\n'
    )
    monkeypatch.setattr(migrating, "_FOLDER", copied)
    monkeypatch.setattr(revisions_module, "NEWEST", "9999_post")
    monkeypatch.setattr(
        revisions_module, "KNOWN", (*revisions_module.KNOWN, "9999_post")
    )


@pytest.mark.parametrize(
    "dialect", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)]
)
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("post_revision")
def test_both_releases_share_the_work_and_the_old_one_comes_back(
    empty_url: str, tmp_path: Path, receiver: Receiving
) -> None:
    newest = revisions_module.KNOWN[-2]
    old_source = source_before(tmp_path / "before")
    shared = {
        "TENURE_DATABASE_URL": empty_url,
        "TENURE_SECRET_KEYS": new_key(),
        "TENURE_DRAIN_SECONDS": "5",
    }
    old = {**shared, "PYTHONPATH": str(old_source)}
    sent: list[str] = []
    with serving(tmp_path, **old) as before:
        post(before, "app", {"name": "Shop", "uid": "shop"})
        post(before, "app/shop/endpoint", {"url": receiver.url})
        sent += send(before)
        receiver.wait(len(sent), seconds=120)
        revision, old_node = asyncio.run(looked_before(empty_url))
        assert revision == revisions_module.KNOWN[-3], "made by the old release"
        with serving(tmp_path, **shared) as after:
            revision, found, _ = asyncio.run(looked(empty_url))
            assert revision == newest, "migrated while the old node worked"
            assert [node.revision for node in found] == [
                revisions_module.KNOWN[-3],
                newest,
            ]
            sent += send(after) + send(before)
            receiver.wait(len(sent), seconds=120)
            with pytest.raises(NodesBehind, match=old_node):
                asyncio.run(migrated_by_post(empty_url))
            stop(before)
            with serving(tmp_path, **old) as again:
                sent += send(again) + send(after)
                stop(after)
                sent += send(again)
                receiver.wait(len(sent), seconds=120)
                stop(again)
    requests = Counter(request.message_id for request in receiver.requests)
    assert requests == Counter(sent), "each once: nothing is lost, nothing is doubled"
    revision, found, broken = asyncio.run(looked(empty_url))
    assert (revision, found, broken) == (newest, [], [])
    assert asyncio.run(migrated_by_post(empty_url)) == ["9999_post"]
    refused = run(tmp_path, "serve", "--port", "0", **old)
    assert refused.code == 2
    assert "9999_post" in refused.err
    assert "start a release at least as new" in refused.err
