"""CEL filters at acceptance and transforms at delivery, on both databases."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from svix import Webhook

from tenure.errors import ValidationFailed
from tenure.outbox.joining import Submitter
from tenure.outbox.keyring import KeyRing
from tenure.outbox.model import (
    Application,
    Endpoint,
    EndpointPatch,
    EndpointSettings,
    OutboxSettings,
)
from tenure.outbox.outbox import Outbox
from tenure.store.backend import Backend
from tests.outbox.sending import LOCAL, sending
from tests.outbox.world import (
    ONE,
    OTHER,
    accept,
    make_app,
    make_endpoint,
    message,
    rows,
)
from tests.server.running import Sink, sink

__all__ = ["sink"]


@pytest.fixture
def settings() -> OutboxSettings:
    return LOCAL


LONG = "body.l.all(i, body.l.all(j, body.l.all(k, i + j + k >= 0)))"
SLOW = "body.l.all(i, body.l.all(j, i + j >= 0))"
ITEMS = json.dumps({"l": list(range(4000))}).encode()
SMALL = b'{"l": [1, 2], "kind": "a"}'


async def filtered(outbox: Outbox, app: Application, text: str) -> Endpoint:
    return await make_endpoint(outbox, app, settings=EndpointSettings(filter=text))


async def unmatched(backend: Backend, message: str) -> dict[str, str]:
    (row,) = await rows(
        backend, "SELECT reasons FROM unmatched WHERE message = :id", id=message
    )
    return json.loads(row["reasons"])


async def test_a_filter_decides_who_gets_a_message_and_says_why_not(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    yes = await filtered(outbox, app, "body.kind == 'a'")
    no = await filtered(outbox, app, "body.kind == 'b'")
    absent = await filtered(outbox, app, "body.other == 'b'")
    macro = await filtered(outbox, app, "body.l.exists(i, i == 2)")
    none = await filtered(outbox, app, "body.l.exists(i, i == 3)")
    accepted = await accept(outbox, app, body=SMALL)
    made = await rows(backend, "SELECT endpoint FROM delivery ORDER BY endpoint")
    assert [row["endpoint"] for row in made] == sorted([yes.id, macro.id])
    assert await unmatched(backend, accepted.message.id) == {
        no.id: "filter",
        absent.id: "filter: no such key 'other'",
        none.id: "filter",
    }


async def test_a_filter_past_its_bound_blocks_its_lane_and_loses_nothing(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    slow = await filtered(outbox, app, SLOW)
    accepted = await accept(outbox, app, body=ITEMS)
    assert accepted.matched == 1
    explained = await outbox.explain(app.tenant, accepted.message.id)
    assert explained.deliveries[0].code == "blocked"
    assert "past its bound" in explained.deliveries[0].why
    # Saving the setting opens the lane; the message is still there.
    await outbox.patch_endpoint(
        app.tenant, app.id, slow.id, EndpointPatch(settings=EndpointSettings())
    )
    explained = await outbox.explain(app.tenant, accepted.message.id)
    assert explained.deliveries[0].code != "blocked"


async def test_one_application_s_slow_filter_does_not_rest_another_s(
    outbox: Outbox, backend: Backend
) -> None:
    for tenant in (ONE, OTHER):
        app = await make_app(outbox, "shop", tenant=tenant)
        await filtered(outbox, app, SLOW)
        body = ITEMS if tenant == ONE else SMALL
        await outbox.accept(tenant, "shop", message(body=body))
    made = await rows(backend, "SELECT tenant, state FROM lane")
    assert {row["tenant"]: row["state"] for row in made} == {
        ONE: "blocked",
        OTHER: "open",
    }


async def test_an_expression_that_cannot_be_is_refused_with_its_place(
    outbox: Outbox,
) -> None:
    app = await make_app(outbox)
    for field, broken in (
        ("filter", EndpointSettings(filter=f"{LONG} (")),
        ("transform", EndpointSettings(transform=f"{LONG} (")),
    ):
        with pytest.raises(ValidationFailed) as refused:
            await make_endpoint(outbox, app, settings=broken)
        assert refused.value.items[0].loc == ("body", "tenure", field)


async def test_a_transform_makes_the_body_that_is_signed_and_sent(
    outbox: Outbox, backend: Backend, ring: KeyRing, sink: Sink
) -> None:
    app = await make_app(outbox)
    text = "{'kind': type, 'twice': body.l.map(i, i * 2)}"
    await make_endpoint(
        outbox, app, url=sink.url, settings=EndpointSettings(transform=text)
    )
    await accept(outbox, app, body=SMALL)
    async with sending(backend, ring) as sender:
        (claimed,) = await sender.claim()
        await sender.settle(claimed, await sender.send(claimed))
    (got,) = await sink.wait(1)
    assert json.loads(got.body) == {"kind": "invoice.paid", "twice": [2, 4]}
    assert got.headers["content-type"] == "application/json"
    (endpoint,) = (await outbox.list_endpoints(app.tenant, app.id)).data
    secret = await outbox.endpoint_secret(app.tenant, app.id, endpoint.id)
    Webhook(secret).verify(got.body, got.headers)


@pytest.mark.parametrize(
    ("text", "body", "state", "why"),
    [
        ("body.zz", SMALL, "parked", "transform: no such key 'zz'"),
        ("body.kind", SMALL, "parked", "transform: it gives str"),
        ("[duration('1s')]", SMALL, "parked", "transform: not JSON"),
        (f"{{'x': {SLOW}}}", ITEMS, "ready", "transform: it ran past its bound"),
    ],
)
async def test_a_transform_that_fails_sends_nothing_and_says_whose_fault_it_is(
    outbox: Outbox,
    backend: Backend,
    ring: KeyRing,
    sink: Sink,
    text: str,
    body: bytes,
    state: str,
    why: str,
) -> None:
    app = await make_app(outbox)
    await make_endpoint(
        outbox, app, url=sink.url, settings=EndpointSettings(transform=text)
    )
    accepted = await accept(outbox, app, body=body)
    async with sending(backend, ring) as sender:
        (claimed,) = await sender.claim()
        await sender.settle(claimed, await sender.send(claimed))
        assert await sender.claim() == []
    (row,) = await rows(backend, "SELECT state, reason, failures FROM work")
    assert (row["state"], row["failures"]) == (state, 0)
    explained = await outbox.explain(app.tenant, accepted.message.id)
    delivery = explained.deliveries[0]
    assert why in f"{delivery.why} {row['reason']}"
    assert delivery.code == ("blocked" if state == "ready" else "parked")
    assert sink.received == []


async def test_a_message_in_a_caller_s_transaction_is_filtered_too(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    yes = await filtered(outbox, app, "body.l.exists(i, i == 2)")
    await filtered(outbox, app, "body.l.exists(i, i == 3)")
    submitter = Submitter(OutboxSettings())
    driver = "sqlite+aiosqlite" if backend.dialect == "sqlite" else "postgresql+asyncpg"
    engine = create_async_engine(backend.url.set(drivername=driver))
    given: dict[str, Any] = {"tenant": app.tenant}
    try:
        async with engine.begin() as connection:
            await submitter.submit_async(
                connection, app.id, "invoice.paid", {"l": [1, 2]}, **given
            )
    finally:
        await engine.dispose()
    made = await rows(backend, "SELECT endpoint FROM delivery")
    assert [row["endpoint"] for row in made] == [yes.id]
