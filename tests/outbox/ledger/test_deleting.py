"""Deletions: open work ends, history stays, and nothing is left that could be sent."""

from __future__ import annotations

import asyncio

import pytest

from tenure.errors import NotFound
from tenure.ids import WorkId
from tenure.limits import CANCEL_BATCH_ROWS, RETENTION_ROWS
from tenure.outbox.keyring import KeyRing
from tenure.outbox.ledger.applications import create_application
from tenure.outbox.ledger.deleting import (
    clear_deleted,
    delete_application,
    sweep_deleted_lanes,
)
from tenure.outbox.ledger.endpoints import create_endpoint
from tenure.outbox.ledger.purging import (
    Purged,
    Task,
    find_task,
    list_tasks,
    purge_next,
)
from tenure.outbox.model import ApplicationIn, EndpointIn, OutboxSettings, PageIn
from tenure.outbox.outbox import Outbox
from tenure.store import claims
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
    rows,
    wait_until_blocked,
)


async def test_an_endpoint_made_while_its_application_is_deleted_does_not_survive(
    postgres_url: str, postgres_backend: Backend, ring: KeyRing
) -> None:
    made = await postgres_backend.write(
        lambda tx: create_application(tx, ONE, ApplicationIn(name="Shop"))
    )
    app = made.value.id

    def create(tx: Tx) -> object:
        return create_endpoint(
            tx, ONE, app, EndpointIn(url=URL), ring=ring, settings=OutboxSettings()
        )

    def delete(tx: Tx) -> None:
        delete_application(tx, ONE, app)

    async with held_transaction(postgres_url) as held:
        await held.run(create)
        deleting = asyncio.create_task(postgres_backend.write(delete))
        await wait_until_blocked(postgres_backend)
        await held.commit()
        await deleting
    live = await count(postgres_backend, "endpoint", "deleted_at IS NULL")
    assert live == 0
    await postgres_backend.write(sweep_deleted_lanes)
    assert await rows(postgres_backend, "SELECT state FROM lane") == [
        {"state": "deleted"}
    ]
    async with held_transaction(postgres_url) as held:
        again = await held.run(
            lambda tx: create_application(tx, ONE, ApplicationIn(name="Shop"))
        )
        await held.commit()
        app = again.value.id
        await held.run(delete)
        creating = asyncio.create_task(postgres_backend.write(create))
        await wait_until_blocked(postgres_backend)
        await held.commit()
        with pytest.raises(NotFound):
            await creating


async def test_deleting_closes_the_lane_and_ends_open_work(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    other = await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)
    await outbox.delete_endpoint(ONE, app.id, endpoint.id)
    found = await rows(backend, "SELECT lane, state, reason FROM work ORDER BY lane")
    assert found == [
        {"lane": endpoint.lane, "state": "cancelled", "reason": "endpoint deleted"},
        {"lane": other.lane, "state": "ready", "reason": None},
    ]
    with pytest.raises(NotFound):
        await outbox.get_endpoint(ONE, app.id, endpoint.id)
    with pytest.raises(NotFound):
        await outbox.delete_endpoint(ONE, app.id, endpoint.id)
    shown = await outbox.list_endpoints(ONE, app.id)
    assert [each.id for each in shown.data] == [other.id]
    kept = await outbox.list_attempted_destinations(ONE, app.id, accepted.message.id)
    assert [each.endpoint.id for each in kept.data] == sorted([endpoint.id, other.id])


async def test_work_that_a_deletion_did_not_see_is_ended_by_the_periodic_pass(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    await outbox.delete_endpoint(ONE, app.id, endpoint.id)
    work = [
        claims.NewWork(
            id=WorkId(f"wrk_{n:026d}"),
            lane=endpoint.lane,
            kind="delivery",
            tenant=ONE,
            subject="msg_x",
        )
        for n in range(CANCEL_BATCH_ROWS + 5)
    ]
    await backend.write(lambda tx: claims.submit(tx, work))
    assert await outbox.sweep() == CANCEL_BATCH_ROWS
    assert await outbox.sweep() == 5
    assert await outbox.sweep() == 0
    assert await count(backend, "work", "state = 'cancelled'") == len(work)


async def test_rows_due_later_and_parked_rows_of_a_deleted_endpoint_are_ended_too(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    for _ in range(6):
        await accept(outbox, app)
    await backend.write(
        lambda tx: tx.run(
            "UPDATE work SET phase = 'later', due_at = due_at + 60000000"
            " WHERE id IN (SELECT id FROM work ORDER BY id LIMIT 2)"
        )
    )
    await backend.write(
        lambda tx: tx.run(
            "UPDATE work SET state = 'parked', phase = NULL, reason = 'test'"
            " WHERE id IN (SELECT id FROM work WHERE phase = 'due' LIMIT 2)"
        )
    )
    await outbox.delete_endpoint(ONE, app.id, endpoint.id)
    assert await rows(backend, "SELECT DISTINCT state, reason FROM work") == [
        {"state": "cancelled", "reason": "endpoint deleted"}
    ]


async def test_a_deleted_applications_deliveries_are_looked_at_in_batches(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    for _ in range(5):
        await accept(outbox, app)
    await backend.write(
        lambda tx: tx.run("UPDATE work SET phase = 'later', due_at = due_at + 60000000")
    )
    await outbox.delete_application(ONE, app.id)
    assert await count(backend, "work", "state = 'cancelled'") == 0

    async def batch() -> int:
        return await backend.write(lambda tx: clear_deleted(tx, 2))

    assert [await batch() for _ in range(4)] == [2, 2, 1, 0]
    assert await count(backend, "work", "state = 'cancelled'") == 5


async def test_rows_of_a_deleted_application_say_so_whoever_ends_them(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    for _ in range(3):
        await accept(outbox, app)
    await backend.write(
        lambda tx: tx.run(
            "UPDATE work SET phase = 'later', due_at = due_at + 60000000"
            " WHERE id = (SELECT min(id) FROM work)"
        )
    )
    await outbox.delete_application(ONE, app.id)
    while await outbox.sweep():
        pass
    assert await rows(backend, "SELECT DISTINCT state, reason FROM work") == [
        {"state": "cancelled", "reason": "application deleted"}
    ]


async def test_payloads_of_a_deleted_application_go_by_a_task_with_progress(
    outbox: Outbox, backend: Backend
) -> None:
    app, other = await make_app(outbox, "shop"), await make_app(outbox)
    await make_endpoint(outbox, app)
    await asyncio.gather(*(accept(outbox, app) for _ in range(RETENTION_ROWS + 2)))
    await accept(outbox, other)
    await outbox.delete_application(ONE, app.id)

    async def step(place: str = "") -> Purged:
        return await backend.write(lambda tx: purge_next(tx, place))

    async def task() -> Task:
        found = await backend.read(lambda tx: list_tasks(tx, ONE, PageIn()))
        [only] = found.data
        assert await backend.read(lambda tx: find_task(tx, ONE, only.id)) == only
        return only

    waits = await step()
    assert waits == Purged(count=0, place=(await task()).id), "open work first"
    while await outbox.sweep():
        pass
    assert await step() == Purged(count=RETENTION_ROWS, place="")
    assert ((await task()).done, (await task()).finished_at) == (RETENTION_ROWS, None)
    assert (await step()).count == 2
    ended = await task()
    assert ended.finished_at is not None
    assert ended.done == RETENTION_ROWS + 2
    assert await step() == Purged(count=0, place=None)
    assert await count(backend, "payload", "body IS NOT NULL") == 1
    assert await count(backend, "message") == RETENTION_ROWS + 3, "history stays"
    again = await make_app(outbox, "shop")
    assert again.id != app.id, "a uid may be used again, an id never"
    with pytest.raises(NotFound):
        await backend.read(lambda tx: find_task(tx, OTHER, ended.id))
