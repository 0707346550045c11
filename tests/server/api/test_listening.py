"""Listening: receipts in the order of their commits, none skipped."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tenure.ids import TenantId
from tenure.inbox.ledger.listening import cursor_now, next_receipts
from tenure.inbox.ledger.places import next_place
from tenure.store.backend import Backend
from tenure.store.tx import Tx
from tests.inbox.world import hook, make_source, send
from tests.outbox.world import held_transaction
from tests.server.running import BOTH, Service

TENANT = TenantId("default")


async def arrive(service: Service, path: str, *events: str) -> list[str]:
    replies = [await send(service.engine.inbox, path, hook(event)) for event in events]
    assert all(reply.receipt is not None for reply in replies)
    return [str(reply.receipt) for reply in replies]


async def after(client: httpx.AsyncClient, cursor: str, **query: Any) -> Any:
    found = await client.get("/api/v1/receipt/next", params={"cursor": cursor, **query})
    assert found.status_code == 200, found.text
    return found.json()


@BOTH
async def test_a_listener_that_slept_gets_what_arrived_meanwhile_in_order(
    client: httpx.AsyncClient, service: Service
):
    source = await make_source(service.engine.inbox)
    await arrive(service, source.path, "before")
    now = (await client.get("/api/v1/receipt/next")).json()
    assert now["data"] == []
    ids = await arrive(service, source.path, "a", "b", "c")
    first = await after(client, now["cursor"])
    assert [each["id"] for each in first["data"]] == ids
    body = base64.b64decode(first["data"][0]["body"])
    assert json.loads(body)["number"] == "a"
    assert (await after(client, first["cursor"]))["data"] == []
    middle = await after(client, first["data"][1]["cursor"])
    assert [each["id"] for each in middle["data"]] == ids[2:]
    # Waiting for one that arrives later.
    asked = asyncio.create_task(after(client, first["cursor"], wait=20))
    (later,) = await arrive(service, source.path, "d")
    assert [each["id"] for each in (await asked)["data"]] == [later]


async def test_a_name_keeps_how_far_its_listener_got(
    client: httpx.AsyncClient, other: httpx.AsyncClient, service: Service
):
    source = await make_source(service.engine.inbox)
    path = "/api/v1/listener/mine"
    assert (await client.get(path)).status_code == 404
    now = (await client.get("/api/v1/receipt/next")).json()["cursor"]
    assert (await client.put(path, json={"cursor": now})).status_code == 200
    await arrive(service, source.path, "a", "b")
    found = await after(client, (await client.get(path)).json()["cursor"])
    await client.put(path, json={"cursor": found["data"][0]["cursor"]})
    again = await after(client, (await client.get(path)).json()["cursor"])
    assert [each["id"] for each in again["data"]] == [found["data"][1]["id"]]
    assert (await other.get(path)).status_code == 404
    assert (await after(other, now))["data"] == []
    for bad in ("nonsense", "9223372036854775807.", ""):
        refused = await client.put(path, json={"cursor": bad})
        assert refused.status_code == 400, bad


async def test_a_stream_goes_on_after_the_event_that_was_seen_last(
    client: httpx.AsyncClient, service: Service
):
    source = await make_source(service.engine.inbox)
    now = (await client.get("/api/v1/receipt/next")).json()["cursor"]
    ids = await arrive(service, source.path, "a", "b")

    async def lines(headers: dict[str, str]) -> AsyncIterator[str]:
        async with client.stream(
            "GET", "/api/v1/receipt/listen", headers=headers
        ) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            async for line in stream.aiter_lines():
                yield line

    async def seen(last: str, count: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        cursor = ""
        reading = lines({"last-event-id": last})
        async with asyncio.timeout(10):
            async for line in reading:
                name, _, value = line.partition(": ")
                if name == "id":
                    cursor = value
                if name == "data":
                    found.append((cursor, json.loads(value)["id"]))
                    if len(found) == count:
                        break
        await reading.aclose()  # pyright: ignore[reportAttributeAccessIssue]
        return found

    both = await seen(now, 2)
    assert [receipt for _, receipt in both] == ids
    assert [receipt for _, receipt in await seen(both[0][0], 1)] == ids[1:]
    refused = await client.get(
        "/api/v1/receipt/listen", headers={"last-event-id": "nonsense"}
    )
    assert refused.status_code == 400


def insert(tx: Tx, name: str) -> None:
    tx.run(
        "INSERT INTO receipt (id, tenant, source, app, messages, event_type, method,"
        " size, place, received_at) VALUES (:id, 'default', 's', 'a', 0, 't', 'POST',"
        " 0, :place, 1)",
        {"id": f"rcpt_{name * 26}", "place": next_place(tx)},
    )


async def test_who_commits_later_is_not_skipped_although_it_began_earlier(
    postgres_url: str, postgres_backend: Backend
):
    cursor = await postgres_backend.read(cursor_now)

    def listen(tx: Tx) -> list[str]:
        found = next_receipts(tx, TENANT, cursor, source=None, limit=10)
        return [each.id[5] for each in found]

    async with held_transaction(postgres_url) as early:
        await early.run(lambda tx: insert(tx, "1"))
        await postgres_backend.write(lambda tx: insert(tx, "2"))
        # The later one is committed; it waits for the one that may still come before.
        assert await postgres_backend.read(listen) == []
        await early.commit()
    assert await postgres_backend.read(listen) == ["1", "2"]


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.server.api.listening.LISTEN_POLL_SECONDS", 0.02)
