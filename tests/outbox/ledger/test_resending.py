"""Resend: a full replay by the state of the row, past the filters."""

from __future__ import annotations

import asyncio

import pytest

from tenure.errors import NotFound
from tenure.outbox.keyring import KeyRing
from tenure.outbox.ledger.accepting import AcceptItem, accept_batch
from tenure.outbox.ledger.applications import create_application
from tenure.outbox.ledger.endpoints import create_endpoint
from tenure.outbox.ledger.resending import resend
from tenure.outbox.model import (
    ApplicationIn,
    EndpointIn,
    Idempotency,
    OutboxSettings,
)
from tenure.outbox.outbox import Outbox
from tenure.outbox.routes import Routes
from tenure.store.backend import Backend
from tenure.store.tx import Tx
from tests.outbox.world import (
    ONE,
    OTHER,
    URL,
    accept,
    count,
    held_transaction,
    make_app,
    make_endpoint,
    message,
    rows,
    run,
    wait_until_blocked,
)


@pytest.mark.parametrize("state", ["succeeded", "dead", "cancelled", "parked"])
async def test_a_row_that_ended_starts_over_with_fresh_budgets(
    outbox: Outbox, backend: Backend, state: str
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)
    await run(
        backend,
        "UPDATE work SET state = :state, phase = NULL, due_at = NULL, claim = 3,"
        " failures = 2, tries = 3, settled_at = 1",
        state=state,
    )
    resent = await outbox.resend(ONE, app.id, accepted.message.id, endpoint.id)
    assert resent.answer == "ready"
    (row,) = await rows(backend, "SELECT * FROM work")
    assert row["id"] == resent.work
    assert (row["state"], row["phase"], row["trigger"]) == ("ready", "due", 1)
    assert (row["claim"], row["replay_claim"]) == (3, 3)
    assert (row["failures"], row["tries"]) == (0, 0)


async def test_a_waiting_row_goes_now_and_a_claimed_one_stays(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    accepted = await accept(outbox, app, deliver_at=4_000_000_000_000_000)
    args = (ONE, app.id, accepted.message.id, endpoint.id)
    assert (await outbox.resend(*args)).answer == "woken"
    assert await rows(backend, "SELECT phase FROM work") == [{"phase": "due"}]
    await run(
        backend,
        "UPDATE work SET state = 'claimed', phase = NULL, claim = 1, claimed_by = 1,"
        " claimed_at = 1, deadline_at = 1",
    )
    before = await rows(backend, "SELECT * FROM work")
    assert (await outbox.resend(*args)).answer == "in_flight"
    assert await rows(backend, "SELECT * FROM work") == before


async def test_an_endpoint_that_did_not_match_gets_a_row_of_its_own(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    accepted = await accept(outbox, app)
    endpoint = await make_endpoint(outbox, app, channels=["news"], uid="late")
    resent = await outbox.resend(ONE, app.id, accepted.message.id, "late")
    assert resent.answer == "ready"
    (row,) = await rows(backend, "SELECT * FROM work")
    assert (row["id"], row["lane"], row["trigger"]) == (resent.work, endpoint.lane, 1)
    again = await outbox.resend(ONE, app.id, accepted.message.id, endpoint.id)
    assert (again.work, again.answer) == (resent.work, "woken")
    assert await count(backend, "work") == 1


async def test_two_first_resends_at_once_make_one_row(
    postgres_url: str, postgres_backend: Backend, ring: KeyRing
) -> None:
    settings = OutboxSettings()

    def prepare(tx: Tx) -> tuple[str, str, str]:
        app = create_application(tx, ONE, ApplicationIn(name="Shop")).value.id
        from tenure.ids import new_message_id

        item = AcceptItem(
            tenant=ONE, app_ref=app, message=message(), id=new_message_id()
        )
        accept_batch(tx, [item], routes=Routes(), settings=settings)
        endpoint = create_endpoint(
            tx, ONE, app, EndpointIn(url=URL), ring=ring, settings=settings
        )
        return app, item.id, endpoint.value.id

    args = await postgres_backend.write(prepare)

    def again(tx: Tx) -> str:
        return resend(tx, ONE, *args).value.work

    async with held_transaction(postgres_url) as held:
        first = await held.run(again)
        second = asyncio.create_task(postgres_backend.write(again))
        await wait_until_blocked(postgres_backend)
        await held.commit()
        assert await second == first
    assert await count(postgres_backend, "work") == 1


async def test_a_disabled_endpoint_accepts_a_resend_and_says_why_it_waits(
    outbox: Outbox,
) -> None:
    app = await make_app(outbox)
    accepted = await accept(outbox, app)
    endpoint = await make_endpoint(outbox, app, disabled=True)
    await outbox.resend(ONE, app.id, accepted.message.id, endpoint.id)
    explained = await outbox.explain(ONE, accepted.message.id)
    assert [each.code for each in explained.deliveries] == ["paused"]


async def test_a_resend_repeated_with_its_key_happens_once(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)
    once = Idempotency(key="k", body_hash="")
    args = (ONE, app.id, accepted.message.id, endpoint.id)
    first = await outbox.resend(*args, idempotency=once)
    await run(backend, "UPDATE work SET state = 'dead', phase = NULL, due_at = NULL")
    assert await outbox.resend(*args, idempotency=once) == first
    assert await rows(backend, "SELECT state FROM work") == [{"state": "dead"}]


async def test_a_resend_across_tenants_or_applications_is_not_found(
    outbox: Outbox,
) -> None:
    app, other = await make_app(outbox), await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    elsewhere = await make_endpoint(outbox, other)
    accepted = await accept(outbox, app)
    for args in (
        (OTHER, app.id, accepted.message.id, endpoint.id),
        (ONE, other.id, accepted.message.id, elsewhere.id),
        (ONE, app.id, accepted.message.id, elsewhere.id),
        (ONE, app.id, "msg_nowhere", endpoint.id),
    ):
        with pytest.raises(NotFound):
            await outbox.resend(*args)
