"""Deliveries: what went wrong elsewhere on the way to the receiver."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from standardwebhooks import Webhook
from svix.webhooks import Webhook as SvixWebhook

from tenure.clock import US
from tenure.kernel.commands import Answer, Parked, Succeeded
from tenure.outbox.keyring import KeyRing
from tenure.outbox.model import (
    AttemptStatus,
    EndpointPatch,
    OutboxSettings,
    SecretRotation,
)
from tenure.outbox.outbox import Outbox
from tenure.store.backend import Backend
from tests.outbox.http.servers import OK, answering, serving
from tests.outbox.scripted import (
    Scripted,
    only_attempt,
    parse,
    response,
)
from tests.outbox.sending import (
    LOCAL,
    Sender,
    open_sender,
    sending,
)
from tests.outbox.world import (
    ONE,
    accept,
    make_app,
    make_endpoint,
    rows,
    run,
)


@pytest.fixture
def settings() -> OutboxSettings:
    return LOCAL


@pytest_asyncio.fixture
async def sender(backend: Backend, ring: KeyRing) -> AsyncIterator[Sender]:
    async with sending(backend, ring) as made:
        yield made


async def test_cases_35_and_36_a_message_arrives_signed_with_its_exact_bytes(
    outbox: Outbox, sender: Sender
) -> None:
    body = '{"b": 1e400,"a":"\u2028😀","n":9223372036854775808,"b" :0}'.encode()
    async with serving(answering(OK)) as server:
        app = await make_app(outbox)
        endpoint = await make_endpoint(
            outbox, app, server.url, headers={"X-Own": "one", "X-Both": "endpoint"}
        )
        accepted = await accept(outbox, app, body=body, headers={"x-both": "message"})
        (ran,) = await sender.work_off()
        assert ran.result == Succeeded()
        headers, sent = parse(server.requests[0])
        assert sent == body
        assert headers["webhook-id"] == accepted.message.id
        assert headers["tenure-attempt"] == "1"
        assert headers["content-type"] == "application/json"
        assert (headers["x-own"], headers["x-both"]) == ("one", "message")
        secret = await outbox.endpoint_secret(ONE, app.id, endpoint.id)
        Webhook(secret).verify(sent.decode(), headers)
        SvixWebhook(secret).verify(sent, headers)
        assert b"\r\nX-Own: one\r\n" in server.requests[0], "letter case is the user's"
        attempt = await only_attempt(outbox, app, accepted.message.id)
        assert (attempt.status, attempt.status_code) == (AttemptStatus.SUCCESS, 200)
        assert attempt.response_body == b"ok"
        assert attempt.url == server.url
        assert attempt.endpoint == endpoint.id
        assert attempt.address is not None
        masked = dict(attempt.request_headers)
        assert masked["X-Own"] == "***"
        assert masked["webhook-id"] == accepted.message.id


async def test_case_41_a_retry_goes_to_the_edited_url_and_the_attempt_keeps_the_old(
    outbox: Outbox, sender: Sender, backend: Backend
) -> None:
    broken = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(broken)) as old, serving(answering(OK)) as new:
        app = await make_app(outbox)
        endpoint = await make_endpoint(outbox, app, old.url)
        accepted = await accept(outbox, app)
        await sender.work_off()
        await outbox.patch_endpoint(
            ONE, app.id, endpoint.id, EndpointPatch(url=new.url)
        )
        await run(backend, "UPDATE work SET due_at = 1")
        await sender.work_off()
        assert (len(old.requests), len(new.requests)) == (1, 1)
        page = await outbox.list_attempts_by_message(ONE, app.id, accepted.message.id)
        assert [(each.url, each.status_code) for each in page.data] == [
            (new.url, 200),
            (old.url, 500),
        ]
        assert [each.number for each in page.data] == [2, 1]


async def test_case_42_a_rotation_signs_with_both_secrets_and_then_with_one(
    outbox: Outbox, sender: Sender, backend: Backend
) -> None:
    async with serving(answering(OK)) as server:
        app = await make_app(outbox)
        endpoint = await make_endpoint(outbox, app, server.url)
        former = await outbox.endpoint_secret(ONE, app.id, endpoint.id)
        await outbox.rotate_endpoint_secret(
            ONE, app.id, endpoint.id, SecretRotation(grace_seconds=60)
        )
        current = await outbox.endpoint_secret(ONE, app.id, endpoint.id)
        assert current != former
        await accept(outbox, app)
        await sender.work_off()
        headers, body = parse(server.requests[0])
        assert len(headers["webhook-signature"].split()) == 2
        for secret in (former, current):
            Webhook(secret).verify(body.decode(), headers)
        await outbox.rotate_endpoint_secret(
            ONE, app.id, endpoint.id, SecretRotation(grace_seconds=0)
        )
        backend.clock_offset_us = 61 * US
        await accept(outbox, app)
        await sender.work_off()
        headers, body = parse(server.requests[1])
        assert len(headers["webhook-signature"].split()) == 1
        newest = await outbox.endpoint_secret(ONE, app.id, endpoint.id)
        Webhook(newest).verify(body.decode(), headers)


async def test_case_6_a_row_that_cannot_be_decoded_is_parked_and_its_neighbours_sent(
    outbox: Outbox, sender: Sender, backend: Backend
) -> None:
    async with serving(answering(OK)) as server:
        app = await make_app(outbox)
        await make_endpoint(outbox, app, server.url)
        good = [await accept(outbox, app) for _ in range(3)]
        bad = await accept(outbox, app, headers={"x-a": "b"})
        gone = await accept(outbox, app)
        await run(
            backend,
            "UPDATE message SET headers = '{broken' WHERE id = :id",
            id=bad.message.id,
        )
        await run(
            backend,
            "UPDATE payload SET body = NULL, expunged_at = 1 WHERE message = :id",
            id=gone.message.id,
        )
        claimed = await sender.claim()
        loaded = await sender.load(claimed)
        reasons = {
            each.work.subject: found.reason
            for each, found in zip(claimed, loaded, strict=True)
            if isinstance(found, Parked)
        }
        assert set(reasons) == {bad.message.id, gone.message.id}
        assert reasons[bad.message.id].startswith("undecodable: ")
        assert reasons[gone.message.id] == "payload expunged"
        for each in claimed:
            await sender.settle(each, await sender.send(each))
        sent = {parse(request)[0]["webhook-id"] for request in server.requests}
        assert sent == {each.message.id for each in good}


async def test_case_2a_a_late_410_leaves_the_endpoint_and_the_new_claim_unchanged(
    outbox: Outbox, ring: KeyRing, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app, "http://127.0.0.1:9/hook")
    await accept(outbox, app)
    a = await open_sender(backend, ring, Scripted(response(410)), name="a")
    (held,) = await a.claim()
    late = await a.send(held)
    await a.lose()
    b = await open_sender(backend, ring, Scripted(response(200)), name="b")
    (again,) = await b.claim()
    before = await rows(backend, "SELECT * FROM work")
    assert await a.settle(held, late) is Answer.LOST
    assert await rows(backend, "SELECT * FROM work") == before
    found = await outbox.get_endpoint(ONE, app.id, endpoint.id)
    assert not found.disabled
    assert await b.settle(again, await b.send(again)) is Answer.APPLIED
    page = await outbox.list_attempts_by_endpoint(ONE, app.id, endpoint.id)
    assert [(each.outcome, each.status_code) for each in page.data] == [
        ("succeeded", 200),
        ("failed", 410),
    ]


async def test_case_2a_control_the_same_410_in_time_disables_the_endpoint(
    outbox: Outbox, ring: KeyRing, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app, "http://127.0.0.1:9/hook")
    await accept(outbox, app)
    a = await open_sender(backend, ring, Scripted(response(410)), name="a")
    (held,) = await a.claim()
    assert await a.settle(held, await a.send(held)) is Answer.APPLIED
    assert (await outbox.get_endpoint(ONE, app.id, endpoint.id)).disabled


async def test_case_40_a_backlog_of_three_days_goes_out_in_order_once_enabled(
    outbox: Outbox, sender: Sender, backend: Backend
) -> None:
    async with serving(answering(OK)) as server:
        app = await make_app(outbox)
        endpoint = await make_endpoint(outbox, app, server.url)
        await outbox.patch_endpoint(
            ONE, app.id, endpoint.id, EndpointPatch(disabled=True)
        )
        sent = [(await accept(outbox, app)).message.id for _ in range(5)]
        assert await sender.work_off() == []
        backend.clock_offset_us = 3 * 86_400 * US
        await outbox.sweep()
        await outbox.patch_endpoint(
            ONE, app.id, endpoint.id, EndpointPatch(disabled=False)
        )
        while await sender.work_off():
            pass
        got = [parse(request)[0]["webhook-id"] for request in server.requests]
        assert sorted(got) == sorted(sent), "nothing vanished, nothing came twice"
        due = await rows(backend, "SELECT subject FROM work ORDER BY created_at, id")
        assert [row["subject"] for row in due] == sent
        assert got == sent
