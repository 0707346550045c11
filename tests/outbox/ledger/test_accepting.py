"""Accepting: one commit for everything, each caller its own answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.errors import (
    Conflict,
    DatabaseUnavailable,
    IdempotencyKeyReused,
    NotFound,
    PayloadTooLarge,
    ValidationFailed,
)
from tenure.ids import new_message_id
from tenure.outbox.ledger import accepting
from tenure.outbox.ledger.accepting import AcceptItem, accept_batch
from tenure.outbox.ledger.applications import create_application
from tenure.outbox.model import (
    Accepted,
    ApplicationIn,
    EndpointPatch,
    Idempotency,
    OutboxSettings,
)
from tenure.outbox.outbox import Outbox
from tenure.outbox.routes import Routes
from tenure.store.backend import Backend
from tenure.store.tx import Tx
from tests.databases import MakeBackend
from tests.outbox.world import (
    ONE,
    OTHER,
    accept,
    count,
    held_transaction,
    make_app,
    make_endpoint,
    make_event_types,
    message,
    rows,
    run,
    wait_until_blocked,
)


async def test_an_accepted_message_has_one_work_row_for_each_matched_endpoint(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    await make_event_types(outbox, "invoice.paid", "invoice.sent")
    everything = await make_endpoint(outbox, app)
    paid = await make_endpoint(outbox, app, event_types=["invoice.paid"])
    sent = await make_endpoint(outbox, app, event_types=["invoice.sent"])
    news = await make_endpoint(outbox, app, channels=["news"])
    accepted = await accept(outbox, app)
    assert accepted.matched == 2
    found = await rows(
        backend,
        "SELECT d.endpoint, w.lane, w.state, w.phase, w.kind, w.subject, w.tenant"
        " FROM delivery d JOIN work w ON w.id = d.work",
    )
    assert {row["endpoint"]: row["lane"] for row in found} == {
        everything.id: everything.lane,
        paid.id: paid.lane,
    }
    assert {(row["state"], row["phase"], row["kind"]) for row in found} == {
        ("ready", "due", "delivery")
    }
    assert {row["subject"] for row in found} == {accepted.message.id}
    assert {row["tenant"] for row in found} == {ONE}
    explained = await outbox.explain(ONE, accepted.message.id)
    assert {each.endpoint: each.reason for each in explained.unmatched} == {
        sent.id: "the endpoint does not listen to this event type",
        news.id: "the endpoint listens to other channels only",
    }


async def test_a_message_that_nobody_wants_is_kept_with_the_reason(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    accepted = await accept(outbox, app)
    assert accepted.matched == 0
    assert await count(backend, "work") == 0
    explained = await outbox.explain(ONE, accepted.message.id)
    assert [each.reason for each in explained.unmatched] == [
        "the application had no endpoint"
    ]


async def test_the_bytes_are_stored_exactly_as_given(
    outbox: Outbox, backend: Backend
) -> None:
    body = (
        b'{"b" : 1e400,"a":"\\u2028","a":9223372036854775808, "x":"\xf0\x9f\x98\x80"}'
    )
    app = await make_app(outbox)
    for given in (body, b"", bytes(range(256))):
        accepted = await accept(outbox, app, body=given, content_type="text/plain")
        assert accepted.message.body == given
        read = await outbox.get_message(ONE, app.id, accepted.message.id)
        assert (read.body, read.content_type) == (given, "text/plain")


async def test_the_same_key_with_another_body_is_refused_and_stores_nothing(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    await accept(outbox, app, "k1")
    with pytest.raises(IdempotencyKeyReused):
        await accept(outbox, app, "k1", body=b"{}")
    assert await count(backend, "message") == 1


async def test_a_key_is_free_again_once_it_expired(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    first = await accept(outbox, app, "k1")
    await run(backend, "UPDATE idempotency SET expires_at = 1")
    second = await accept(outbox, app, "k1", body=b"{}")
    assert second.message.id != first.message.id
    again = await accept(outbox, app, "k1", body=b"{}")
    assert again.message.id == second.message.id


@pytest.mark.parametrize("key", ["", "x" * 257, "a\nb", "\ud800"])
async def test_a_bad_idempotency_key_is_refused(outbox: Outbox, key: str) -> None:
    app = await make_app(outbox)
    with pytest.raises(ValidationFailed):
        await accept(outbox, app, key)


async def test_a_second_use_of_an_event_id_is_a_conflict(
    outbox: Outbox, backend: Backend
) -> None:
    app, other = await make_app(outbox), await make_app(outbox)
    first = await accept(outbox, app, "k1", event_id="e1")
    with pytest.raises(Conflict):
        await accept(outbox, app, event_id="e1")
    with pytest.raises(Conflict):
        await accept(outbox, app, "k2", event_id="e1")
    replayed = await accept(outbox, app, "k1", event_id="e1")
    assert replayed.message.id == first.message.id
    elsewhere = await accept(outbox, other, event_id="e1")
    assert elsewhere.message.id != first.message.id
    assert await count(backend, "idempotency") == 1, "the refused key is free again"
    assert await count(backend, "message") == 2


async def test_what_one_caller_of_a_batch_is_refused_for_fails_no_neighbour(
    backend: Backend, outbox: Outbox, settings: OutboxSettings
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)

    def item(key: str | None = None, ref: str = app.id, **changes: Any) -> AcceptItem:
        return AcceptItem(
            tenant=ONE,
            app_ref=ref,
            message=message(**changes),
            id=new_message_id(),
            idempotency=None
            if key is None
            else Idempotency(key=key, body_hash=key[:1]),
        )

    items = [
        item(),
        item(ref="app_nowhere"),
        item(event_type="not a type"),
        item(body=b"x" * (settings.payload_max_bytes + 1)),
        item("k", event_id="e1"),
        item("k", event_id="e1"),
        item(event_id="e1"),
        item(""),
        item("l"),
    ]
    batch = await backend.write(
        lambda tx: accept_batch(tx, items, routes=Routes(), settings=settings)
    )
    kinds = [type(answer) for answer in batch.answers]
    assert kinds == [
        Accepted,
        NotFound,
        ValidationFailed,
        PayloadTooLarge,
        Accepted,
        Accepted,
        Conflict,
        ValidationFailed,
        Accepted,
    ]
    leader, follower = batch.answers[4], batch.answers[5]
    assert isinstance(leader, Accepted)
    assert isinstance(follower, Accepted)
    assert follower.replayed
    assert follower.message.id == leader.message.id
    assert await count(backend, "message") == await count(backend, "work") == 3


async def test_concurrent_accepts_share_commits_and_each_gets_its_own_message(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    answers = await asyncio.gather(
        *(accept(outbox, app, body=b'{"n":%d}' % n) for n in range(150))
    )
    assert [answer.message.body for answer in answers] == [
        b'{"n":%d}' % n for n in range(150)
    ]
    assert await count(backend, "work") == 150


async def test_two_nodes_at_once_with_one_key_make_one_message(
    postgres_url: str, postgres_backend: Backend, settings: OutboxSettings
) -> None:
    """The second node waits on the first one's uncommitted key, then reads it."""
    made = await postgres_backend.write(
        lambda tx: create_application(tx, ONE, ApplicationIn(name="Shop"))
    )

    def submit(tx: Tx, body: bytes = b"{}") -> Any:
        item = AcceptItem(
            tenant=ONE,
            app_ref=made.value.id,
            message=message(body=body),
            id=new_message_id(),
            idempotency=Idempotency(key="k1", body_hash=body.hex()),
        )
        return accept_batch(tx, [item], routes=Routes(), settings=settings).answers[0]

    async with held_transaction(postgres_url) as held:
        first = await held.run(submit)
        same = asyncio.create_task(postgres_backend.write(submit))
        other = asyncio.create_task(
            postgres_backend.write(lambda tx: submit(tx, b"[]"))
        )
        await wait_until_blocked(postgres_backend)
        assert not same.done()
        await held.commit()
        again = await same
        refused = await other
    assert again.message.id == first.message.id
    assert (first.replayed, again.replayed) == (False, True)
    assert isinstance(refused, IdempotencyKeyReused)
    assert await count(postgres_backend, "message") == 1


async def test_two_nodes_at_once_with_one_event_id_make_one_message(
    postgres_url: str, postgres_backend: Backend, settings: OutboxSettings
) -> None:
    made = await postgres_backend.write(
        lambda tx: create_application(tx, ONE, ApplicationIn(name="Shop"))
    )

    def submit(tx: Tx) -> Any:
        item = AcceptItem(
            tenant=ONE,
            app_ref=made.value.id,
            message=message(event_id="e1"),
            id=new_message_id(),
        )
        return accept_batch(tx, [item], routes=Routes(), settings=settings).answers[0]

    async with held_transaction(postgres_url) as held:
        first = await held.run(submit)
        second = asyncio.create_task(postgres_backend.write(submit))
        await wait_until_blocked(postgres_backend)
        await held.commit()
        assert isinstance(first, Accepted)
        assert isinstance(await second, Conflict)
    assert await count(postgres_backend, "message") == 1


async def test_a_cached_route_table_is_never_stale(outbox: Outbox) -> None:
    app = await make_app(outbox)
    await make_event_types(outbox, "invoice.sent")
    first = await make_endpoint(outbox, app)
    assert (await accept(outbox, app)).matched == 1
    await make_endpoint(outbox, app)
    assert (await accept(outbox, app)).matched == 2
    await outbox.patch_endpoint(
        ONE, app.id, first.id, EndpointPatch(event_types=["invoice.sent"])
    )
    assert (await accept(outbox, app)).matched == 1
    await outbox.delete_endpoint(ONE, app.id, first.id)
    assert (await accept(outbox, app, event_type="invoice.sent")).matched == 1


async def test_a_change_by_another_node_is_seen_by_the_next_accept(
    make_backend: MakeBackend, outbox: Outbox, settings: OutboxSettings, ring: Any
) -> None:
    from tenure.clock import SystemClock

    app = await make_app(outbox)
    assert (await accept(outbox, app)).matched == 0
    elsewhere = Outbox(await make_backend(), settings, ring, SystemClock())
    await make_endpoint(elsewhere, app)
    assert (await accept(outbox, app)).matched == 1


async def test_a_route_table_read_in_a_rolled_back_transaction_is_not_remembered(
    backend: Backend, outbox: Outbox, settings: OutboxSettings, ring: Any
) -> None:
    from tenure.outbox.ledger.endpoints import create_endpoint
    from tenure.outbox.model import EndpointIn

    app = await make_app(outbox)
    routes = Routes()

    def undone(tx: Tx) -> None:
        create_endpoint(
            tx,
            ONE,
            app.id,
            EndpointIn(url="https://gone.example/"),
            ring=ring,
            settings=settings,
        )
        item = AcceptItem(
            tenant=ONE, app_ref=app.id, message=message(), id=new_message_id()
        )
        done = accept_batch(tx, [item], routes=routes, settings=settings)
        assert isinstance(done.answers[0], Accepted)
        assert done.answers[0].matched == 1
        raise DatabaseUnavailable("undone")

    with pytest.raises(DatabaseUnavailable):
        await backend.write(undone)
    assert routes.get(app.id, 2) is None
    assert await count(backend, "message") == 0


async def test_a_message_may_be_delivered_later(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    far = 4_000_000_000_000_000
    await accept(outbox, app, deliver_at=far)
    await accept(outbox, app, delay_us=3_600_000_000)
    found = await rows(backend, "SELECT phase, due_at FROM work ORDER BY due_at DESC")
    assert [row["phase"] for row in found] == ["later", "later"]
    assert found[0]["due_at"] == far
    with pytest.raises(ValidationFailed):
        await accept(outbox, app, deliver_at=far, delay_us=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"event_type": ""},
        {"event_type": "a b"},
        {"event_id": "msg_x"},
        {"event_id": "$$"},
        {"channels": []},
        {"channels": ["a", "b", "c", "d", "e", "f"]},
        {"channels": ["x" * 129]},
        {"tags": ["a b"]},
        {"headers": {"Webhook-Signature": "x"}},
        {"headers": {"x": "a\r\nb"}},
        {"content_type": "a\r\nb"},
        {"retention_seconds": 4 * 86_400.0},
        {"retention_seconds": 91 * 86_400.0},
        {"retention_seconds": float("nan")},
        {"delay_us": -1},
        {"delay_us": 10**20},
        {"deliver_at": -1},
        {"deliver_at": 10**20},
        {"expires_at": 10**20},
        {"application": ApplicationIn(name="", uid="shop")},
    ],
)
async def test_a_bad_message_is_refused_and_stores_nothing(
    outbox: Outbox, backend: Backend, changes: dict[str, Any]
) -> None:
    app = await make_app(outbox)
    with pytest.raises(ValidationFailed):
        await accept(outbox, app, "k1", **changes)
    assert await count(backend, "message") == await count(backend, "idempotency") == 0


async def test_an_application_may_come_with_its_first_message(outbox: Outbox) -> None:
    given = ApplicationIn(name="New", uid="new")
    with pytest.raises(NotFound):
        await outbox.accept(ONE, "new", message())
    accepted = await outbox.accept(ONE, "new", message(application=given))
    app = await outbox.get_application(ONE, "new")
    assert accepted.message.app == app.id
    other = ApplicationIn(name="Ignored", uid="other")
    again = await outbox.accept(ONE, "new", message(application=other))
    assert again.message.app == app.id
    assert (await outbox.get_application(ONE, "new")).name == "New"


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (ApplicationIn(name="New"), "application_uid_missing"),
        (ApplicationIn(name="New", uid="else"), "application_uid_mismatch"),
    ],
)
async def test_an_inline_application_must_be_the_one_of_the_path(
    outbox: Outbox, given: ApplicationIn, kind: str
) -> None:
    with pytest.raises(ValidationFailed) as refused:
        await outbox.accept(ONE, "new", message(application=given))
    assert refused.value.items[0].type == kind
    assert refused.value.items[0].loc == ("body", "application", "uid")
    with pytest.raises(NotFound):
        await outbox.get_application(ONE, "new")


async def test_two_first_messages_in_one_batch_make_one_application(
    backend: Backend, settings: OutboxSettings
) -> None:
    items = [
        AcceptItem(
            tenant=ONE,
            app_ref="new",
            message=message(application=ApplicationIn(name="New", uid="new")),
            id=new_message_id(),
        )
        for _ in range(3)
    ]
    batch = await backend.write(
        lambda tx: accept_batch(tx, items, routes=Routes(), settings=settings)
    )
    assert all(isinstance(answer, Accepted) for answer in batch.answers)
    assert await count(backend, "application") == 1


async def test_another_tenant_cannot_send_to_an_application(outbox: Outbox) -> None:
    app = await make_app(outbox, "shop")
    for ref in (app.id, "shop"):
        with pytest.raises(NotFound):
            await outbox.accept(OTHER, ref, message())


@pytest.mark.parametrize(
    "ref", ["", "app_", "' OR 1=1", "\ud800", "x" * 10_000, "\x00"]
)
async def test_a_hostile_application_reference_is_not_found(
    outbox: Outbox, ref: str
) -> None:
    with pytest.raises(NotFound):
        await outbox.accept(ONE, ref, message())


async def test_a_disabled_endpoint_keeps_its_backlog(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app, disabled=True)
    accepted = await accept(outbox, app)
    assert accepted.matched == 1
    explained = await outbox.explain(ONE, accepted.message.id)
    assert explained.deliveries[0].code == "paused"
    assert explained.deliveries[0].why == "the endpoint is disabled (by request)"
    await outbox.patch_endpoint(ONE, app.id, endpoint.id, EndpointPatch(disabled=False))
    found = await rows(backend, "SELECT state, reason FROM lane")
    assert found == [{"state": "open", "reason": None}]


async def test_a_batch_of_equal_keys_beyond_the_rounds_is_our_own_fault(
    backend: Backend, settings: OutboxSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenure.errors import InvariantViolated

    monkeypatch.setattr(accepting, "ACCEPT_ROUNDS_MAX", 1)
    items = [
        AcceptItem(
            tenant=ONE,
            app_ref="new",
            message=message(application=ApplicationIn(name="New", uid="new")),
            id=new_message_id(),
            idempotency=Idempotency(key="k", body_hash="b"),
        )
        for _ in range(2)
    ]
    with pytest.raises(InvariantViolated):
        await backend.write(
            lambda tx: accept_batch(tx, items, routes=Routes(), settings=settings)
        )
