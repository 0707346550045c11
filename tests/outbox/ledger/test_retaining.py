"""Retention: by state, in one piece, in steps, and never what somebody waits behind."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tenure.clock import SystemClock
from tenure.errors import NotFound
from tenure.ids import MessageId, NodeId, WorkId
from tenure.limits import RETENTION_APPLICATIONS, RETENTION_MESSAGES
from tenure.outbox import tables
from tenure.outbox.keyring import KeyRing
from tenure.outbox.ledger.deleting import remove_endpoints
from tenure.outbox.ledger.resending import resend
from tenure.outbox.ledger.retaining import DAY_US, STEPS, Keep, Step
from tenure.outbox.model import Application, OutboxSettings
from tenure.outbox.outbox import Outbox
from tenure.outbox.retention import Retention, one_step
from tenure.store import claims
from tenure.store.backend import Backend
from tenure.telemetry.events import Event, Events
from tests.invariants import faults
from tests.outbox.world import (
    ONE,
    accept,
    count,
    held_transaction,
    make_app,
    make_endpoint,
    make_event_types,
    rows,
    run,
    wait_until_blocked,
)
from tests.store.yard import Yard

KEEP = Keep(history_us=90 * DAY_US, response_us=30 * DAY_US, idempotency_us=DAY_US)
TABLES = ("work", "attempt", "delivery", "exchange", "unmatched", "payload", "message")


async def retain(backend: Backend, node: NodeId, name: str = "messages") -> int:
    """Do one whole pass; the invariants hold after each of its commits."""
    removed = 0
    step = partial(one_step, name=name, node=node, keep=KEEP)
    while (done := await backend.write(step)) is not None:
        removed += done.removed
        assert await backend.read(faults) == []
        if done.place is None:
            break
    return removed


def pass_days(backend: Backend, days: float) -> None:
    backend.clock_offset_us += round(days * DAY_US)


async def settle_all(backend: Backend, state: str = "succeeded") -> None:
    """End every row by its own claim, with an attempt and an exchange each."""
    now = await backend.read(lambda tx: tx.now)
    await run(
        backend,
        "UPDATE work SET state = :state, phase = NULL, due_at = NULL, claim = 1,"
        " claimed_at = :now, deadline_at = :now, settled_at = :now, tries = 1,"
        " first_attempt_at = :now, reason = 'test' WHERE state = 'ready'",
        state=state,
        now=now,
    )
    await run(
        backend,
        "INSERT INTO attempt (work, claim, id, node, tenant, lane, kind, number,"
        " ended_at, outcome, state_after) SELECT w.id, 1, 'atmpt_' || w.id, 1, w.tenant,"
        " w.lane, w.kind, 1, :now, 'succeeded', w.state FROM work w WHERE w.claim = 1"
        " AND NOT EXISTS (SELECT 1 FROM attempt a WHERE a.work = w.id)",
        now=now,
    )
    await run(
        backend,
        "INSERT INTO exchange (work, claim, url, method, duration_us, response_body)"
        " SELECT a.work, 1, 'https://r.example', 'POST', 1, :body FROM attempt a"
        " WHERE NOT EXISTS (SELECT 1 FROM exchange e WHERE e.work = a.work)",
        body=b"thanks",
    )


async def left(backend: Backend) -> dict[str, int]:
    return {name: await count(backend, name) for name in TABLES}


async def test_what_is_over_for_as_long_as_it_is_kept_goes_in_one_piece(
    outbox: Outbox, backend: Backend
) -> None:
    node = await Yard(backend).node()
    app = await make_app(outbox)
    await make_event_types(outbox, "other")
    await make_endpoint(outbox, app)
    await make_endpoint(outbox, app)
    await make_endpoint(outbox, app, event_types=("other",))
    for _ in range(3):
        await accept(outbox, app)
    pass_days(backend, 20)
    await settle_all(backend)
    before = await left(backend)
    assert before["message"] == 3
    assert before["exchange"] == 6
    pass_days(backend, 89.9)
    assert await retain(backend, node) == 0
    assert await left(backend) == before
    pass_days(backend, 0.2)
    assert await retain(backend, node) == 3
    assert await left(backend) == dict.fromkeys(TABLES, 0)


@pytest.mark.parametrize("state", ["ready", "claimed", "parked"])
async def test_a_message_stays_whole_while_one_delivery_is_not_over(
    outbox: Outbox, backend: Backend, state: str
) -> None:
    node = await Yard(backend).node()
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    await make_endpoint(outbox, app)
    await accept(outbox, app)
    await settle_all(backend)
    reopened = {
        "ready": "phase = 'due', due_at = created_at, settled_at = NULL",
        "claimed": f"claimed_by = {node}, settled_at = NULL, claim = 2, releases = 0",
        "parked": "reason = 'quarantined'",
    }[state]
    await run(
        backend,
        f"UPDATE work SET state = '{state}', {reopened}"
        " WHERE id = (SELECT min(id) FROM work)",
    )
    before = await left(backend)
    pass_days(backend, 400)
    assert await retain(backend, node) == 0
    assert await left(backend) == before


async def test_a_replayed_message_is_kept_from_its_new_end_on(
    outbox: Outbox, backend: Backend
) -> None:
    node = await Yard(backend).node()
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    await accept(outbox, app)
    await settle_all(backend)
    pass_days(backend, 80)
    await run(
        backend, "UPDATE work SET settled_at = settled_at + :more", more=80 * DAY_US
    )
    pass_days(backend, 11)
    assert await retain(backend, node) == 0
    pass_days(backend, 80)
    assert await retain(backend, node) == 1


async def test_each_application_keeps_for_as_long_as_it_says(
    outbox: Outbox, backend: Backend
) -> None:
    node = await Yard(backend).node()
    apps = [await make_app(outbox) for _ in range(3)]
    for app in apps:
        await make_endpoint(outbox, app)
        await accept(outbox, app)
    await settle_all(backend)

    async def keep(app: Application, days: int) -> None:
        await run(
            backend,
            "UPDATE application SET history_days = :days, response_days = :days"
            " WHERE id = :app",
            days=days,
            app=app.id,
        )

    await keep(apps[0], 7)
    await keep(apps[2], 365)
    pass_days(backend, 8)
    assert await retain(backend, node, "responses") == 1
    assert await retain(backend, node) == 1
    assert {row["app"] for row in await rows(backend, "SELECT app FROM message")} == {
        apps[1].id,
        apps[2].id,
    }
    pass_days(backend, 90)
    assert await retain(backend, node, "responses") == 1
    assert await retain(backend, node) == 1
    pass_days(backend, 270)
    assert await retain(backend, node) == 1


async def test_answers_go_before_history_and_only_of_what_is_over(
    outbox: Outbox, backend: Backend
) -> None:
    node = await Yard(backend).node()
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    for _ in range(2):
        await accept(outbox, app)
    await settle_all(backend)
    await run(
        backend,
        "UPDATE work SET state = 'parked' WHERE id = (SELECT min(id) FROM work)",
    )
    pass_days(backend, 29)
    assert await retain(backend, node, "responses") == 0
    pass_days(backend, 1.1)
    assert await retain(backend, node, "responses") == 1
    kept = await rows(
        backend, "SELECT expunged_at, response_body FROM exchange ORDER BY work"
    )
    assert kept[0] == {"expunged_at": None, "response_body": b"thanks"}
    assert kept[1]["response_body"] is None
    assert kept[1]["expunged_at"] is not None
    assert await count(backend, "attempt") == 2


async def test_a_pass_goes_over_many_applications_and_many_messages_in_steps(
    outbox: Outbox, backend: Backend
) -> None:
    node = await Yard(backend).node()
    for _ in range(RETENTION_APPLICATIONS + 3):
        await make_app(outbox)
    busy = await make_app(outbox)
    await asyncio.gather(
        *(accept(outbox, busy) for _ in range(2 * RETENTION_MESSAGES + 5))
    )
    pass_days(backend, 91)
    sizes: list[int] = []
    step = partial(one_step, name="messages", node=node, keep=KEEP)
    while (done := await backend.write(step)) is not None:
        sizes.append(done.removed)
    assert sum(sizes) == 2 * RETENTION_MESSAGES + 5
    assert max(sizes) <= RETENTION_MESSAGES
    assert await count(backend, "message") == 0


async def test_a_pass_goes_on_where_the_former_holder_stopped(
    outbox: Outbox, backend: Backend
) -> None:
    yard = Yard(backend)
    first, second = await yard.node(), await yard.node()
    app = await make_app(outbox)
    await asyncio.gather(*(accept(outbox, app) for _ in range(RETENTION_MESSAGES + 1)))
    pass_days(backend, 91)
    done = await backend.write(
        partial(one_step, name="messages", node=first, keep=KEEP)
    )
    assert done is not None
    assert done.removed == RETENTION_MESSAGES
    assert await retain(backend, second) == 0, "somebody else has it"
    await yard.close(first, "drained")
    assert await retain(backend, second) == 1


async def test_a_dead_row_that_others_wait_behind_is_kept_until_they_have_gone(
    backend: Backend,
) -> None:
    yard = Yard(backend)
    lane = await yard.lane(ordered=True)
    ids: list[WorkId] = []
    for _ in range(3):
        ids += await yard.submit(lane, order_key="k")
    await run(
        backend,
        "UPDATE work SET state = 'dead', phase = NULL, due_at = NULL, reason = 'x',"
        " settled_at = created_at WHERE id = :id",
        id=ids[0],
    )
    assert await yard.do(lambda tx: claims.lock_ended(tx, ids)) == {}
    await yard.do(lambda tx: claims.cancel(tx, ids[1:], "test"))
    ended = await yard.do(lambda tx: set(claims.lock_ended(tx, ids)))
    assert ended == set(ids)
    assert await yard.do(lambda tx: claims.remove(tx, ids)) == 3
    assert await count(backend, "order_line") == 0
    # The queue goes on from its counter: no sequence is used twice.
    fresh = (await yard.submit(lane, order_key="k"))[0]
    assert (await yard.row(fresh)).sequence == 4
    assert (await yard.row(fresh)).phase == "due"


async def test_nodes_that_are_gone_go_unless_they_hold_something(
    outbox: Outbox, backend: Backend
) -> None:
    yard = Yard(backend)
    me, gone, holder = [await yard.node() for _ in range(3)]
    await yard.close(gone, "drained")
    await yard.close(holder, "silent")
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    await accept(outbox, app)
    await run(
        backend,
        "UPDATE work SET state = 'claimed', phase = NULL, claim = 1, claimed_at = 1,"
        " deadline_at = 2, claimed_by = :node",
        node=holder,
    )
    pass_days(backend, 89)
    assert await retain(backend, me, "nodes") == 0
    pass_days(backend, 2)
    assert await retain(backend, me, "nodes") == 1
    found = await rows(backend, "SELECT id FROM node ORDER BY id")
    assert [row["id"] for row in found] == [me, holder]


async def test_a_message_under_resend_is_passed_over_and_one_that_went_is_not_found(
    postgres_url: str, postgres_backend: Backend, ring: KeyRing
) -> None:
    backend = postgres_backend
    outbox = Outbox(backend, OutboxSettings(), ring, SystemClock())
    outbox.start()
    node = await Yard(backend).node()
    app = await make_app(outbox)
    message = (await accept(outbox, app)).message.id
    endpoint = await make_endpoint(outbox, app)
    await run(
        backend, "UPDATE payload SET expires_at = expires_at + :y", y=365 * DAY_US
    )
    pass_days(backend, 91)
    async with held_transaction(postgres_url) as held:
        await held.run(lambda tx: resend(tx, ONE, app.id, message, endpoint.id))
        assert await retain(backend, node) == 0
        await held.commit()
    assert await count(backend, "delivery") == 1
    # Control: the other way round the resend waits, and finds nothing.
    other = (await accept(outbox, app, event_type="x")).message.id
    await run(backend, "DELETE FROM delivery WHERE message = :id", id=other)
    async with held_transaction(postgres_url) as held:
        await held.run(
            lambda tx: tx.run("DELETE FROM message WHERE id = :id", {"id": other})
        )
        resending = asyncio.create_task(
            outbox.resend(ONE, app.id, MessageId(other), endpoint.id)
        )
        await wait_until_blocked(backend)
        await held.commit()
        with pytest.raises(NotFound, match="retention"):
            await resending
    await outbox.aclose()


def test_every_chore_of_retention_has_a_step():
    assert list(STEPS) == [
        "messages",
        "responses",
        "payloads",
        "archived",
        "nodes",
        "tasks",
        "endpoints",
        "applications",
    ]


async def test_what_was_deleted_goes_once_no_history_refers_to_it(
    outbox: Outbox, backend: Backend
) -> None:
    yard = Yard(backend)
    node = await yard.node()
    app, other = await make_app(outbox), await make_app(outbox)
    gone, kept = await make_endpoint(outbox, app), await make_endpoint(outbox, app)
    await make_endpoint(outbox, other)
    await accept(outbox, app)
    (lane,) = await rows(backend, f"SELECT lane FROM endpoint WHERE id = '{gone.id}'")
    await run(
        backend,
        "INSERT INTO order_head (lane, order_key, next_sequence) VALUES (:lane, 'k', 2)",
        lane=lane["lane"],
    )
    await outbox.delete_endpoint(ONE, app.id, gone.id)
    await outbox.delete_application(ONE, other.id)

    async def forget() -> int:
        return sum(
            [
                await retain(backend, node, name)
                for name in ("endpoints", "applications")
            ]
        )

    async def stored() -> list[int]:
        names = ("endpoint", "lane", "order_head", "application", "lane_group")
        return [await count(backend, name) for name in names]

    while await outbox.sweep():
        pass
    await retain(backend, node, "tasks")
    assert await forget() == 0
    pass_days(backend, 89)
    assert await forget() == 0
    assert await stored() == [3, 3, 1, 2, 2]
    pass_days(backend, 2)
    await retain(backend, node, "tasks")
    # The other application's task and endpoint are over; ours has a delivery still.
    assert await forget() == 2
    assert await stored() == [2, 2, 1, 1, 1]
    await settle_all(backend)
    pass_days(backend, 91)
    assert await retain(backend, node) == 1
    assert await forget() == 1
    assert await stored() == [1, 1, 0, 1, 1]
    assert (await outbox.get_endpoint(ONE, app.id, kept.id)).id == kept.id


async def test_an_archive_keeps_what_its_endpoint_says_and_goes_with_it(
    outbox: Outbox, backend: Backend
) -> None:
    node = await Yard(backend).node()
    app = await make_app(outbox)
    endpoint = await make_endpoint(outbox, app)
    now = await backend.read(lambda tx: tx.now)
    columns = {
        "endpoint": endpoint.id,
        "work": "work_1",
        "app": app.id,
        "tenant": ONE,
        "event_type": "invoice.paid",
        "body": b"{}",
        "archived_at": now,
    }
    ends = {"msg_1": now + DAY_US, "msg_2": now + 2 * DAY_US, "msg_3": None}
    archived = [
        {**columns, "message": message, "expires_at": expires_at}
        for message, expires_at in ends.items()
    ]
    await backend.write(lambda tx: tx.insert(tables.archived, archived))
    pass_days(backend, 1.5)
    assert await retain(backend, node, "archived") == 1
    kept = await rows(backend, "SELECT message FROM archived ORDER BY message")
    assert [row["message"] for row in kept] == ["msg_2", "msg_3"]
    # What is kept for ever ends with the history of its endpoint.
    await outbox.delete_endpoint(ONE, app.id, endpoint.id)
    while await outbox.sweep():
        pass
    pass_days(backend, 89)
    await retain(backend, node, "endpoints")
    assert await count(backend, "archived") == 2
    pass_days(backend, 2)
    removed = await backend.write(
        lambda tx: remove_endpoints(tx, "", tx.now - KEEP.history_us, limit=2)
    )
    assert removed == (2, ""), "the archive first, then once more from there"
    assert await count(backend, "endpoint") == 1
    assert await retain(backend, node, "endpoints") == 1
    assert [await count(backend, name) for name in ("endpoint", "archived")] == [0, 0]


async def test_a_chore_that_fails_holds_up_no_other(
    outbox: Outbox, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await Yard(backend).node()
    app = await make_app(outbox)
    await accept(outbox, app)
    pass_days(backend, 91)

    def fail(*_: object) -> Step:
        raise LookupError

    monkeypatch.setitem(STEPS, "messages", fail)
    events = Events()
    settings = OutboxSettings()
    retention = Retention(backend, settings, SystemClock(), events, lambda: node)
    assert await retention.turn() == 1, "the payload went"
    assert events.count(Event.HOUSEKEEPING_FAILED) == 1
    assert await count(backend, "message") == 1
