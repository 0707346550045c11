"""Explain: nothing waits without a reason, a rule, and the next instant if any."""

from __future__ import annotations

import contextlib

import pytest

from tenure.clock import SystemClock
from tenure.errors import NotFound
from tenure.outbox.explaining import explain
from tenure.outbox.keyring import KeyRing
from tenure.outbox.model import OutboxSettings
from tenure.outbox.outbox import Outbox
from tenure.outbox.waiting import Standing
from tenure.store import nodes
from tenure.store.backend import Backend
from tenure.store.tx import Tx
from tests.outbox.world import ONE, OTHER, accept, make_app, make_endpoint, run


async def test_a_due_row_waits_for_a_node_that_serves_its_lane(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)

    async def code() -> str:
        found = await outbox.explain(ONE, accepted.message.id)
        return found.deliveries[0].code

    async def open_node(serves: str) -> None:
        await backend.write(
            lambda tx: nodes.open_node(
                tx,
                name="n",
                host="h",
                pid=1,
                version="0",
                serves=serves,
                lock_path=None,
            )
        )

    assert await code() == "no_capable_node"
    await open_node("job:other deliveryman")
    assert await code() == "no_capable_node"
    await open_node("delivery job:other")
    assert await code() == "due"
    await run(backend, "UPDATE node SET beat_at = beat_at - 20 * 1000000")
    assert await code() == "no_capable_node"
    found = await outbox.explain(ONE, accepted.message.id)
    assert "has been heard for 2" in found.deliveries[0].why
    await run(backend, "UPDATE node SET beat_at = beat_at + 20 * 1000000")
    await run(backend, "UPDATE lane SET concurrency = 0")
    assert await code() == "no_room"


async def test_a_work_row_is_explained_by_its_own_id(outbox: Outbox) -> None:
    app = await make_app(outbox)
    first = await make_endpoint(outbox, app)
    await make_endpoint(outbox, app, channels=["x"])
    await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)
    whole = await outbox.explain(ONE, accepted.message.id)
    assert len(whole.deliveries) == 2
    assert len(whole.unmatched) == 1
    one = next(each for each in whole.deliveries if each.endpoint == first.id)
    alone = await outbox.explain(ONE, one.work)
    assert alone.deliveries == (one,)
    assert alone.unmatched == ()
    with pytest.raises(NotFound):
        await outbox.explain(OTHER, one.work)


async def test_a_deployment_that_sends_nothing_says_so(
    backend: Backend, ring: KeyRing, outbox: Outbox
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)
    quiet = Outbox(backend, OutboxSettings(), ring, SystemClock(), sending=False)
    found = await quiet.explain(ONE, accepted.message.id)
    assert found.deliveries[0].why == "off by deployment policy"


REASONS: dict[str, tuple[str, ...]] = {
    "due": (),
    "not_due": ("UPDATE work SET phase = 'later', due_at = due_at + 90000000",),
    "no_capable_node": ("UPDATE node SET serves = 'else'",),
    "no_room": ("UPDATE lane SET concurrency = 0",),
    "rate": ("UPDATE lane SET rate_per_second = 1, tat = 9000000000000000",),
    "paused": ("UPDATE lane SET state = 'paused', reason = 'by hand'",),
    "blocked": ("UPDATE lane SET state = 'blocked', reason = 'no secret'",),
    "deleted": ("UPDATE lane SET state = 'deleted'",),
    "breaker": ("UPDATE lane SET breaker_until = 9000000000000000",),
    "suspect": ("UPDATE work SET losses = 2",),
    "asleep": ("UPDATE work SET phase = 'asleep', due_at = NULL",),
    "parked": (
        (
            "UPDATE work SET state = 'parked', phase = NULL, reason = 'undecodable',"
            " due_at = NULL, settled_at = 1"
        ),
    ),
    "held": (
        (
            "UPDATE work SET state = 'parked', phase = NULL, due_at = NULL,"
            " reason = 'held: restored copy', settled_at = 1"
        ),
    ),
}
CLAIM = (
    "UPDATE work SET state = 'claimed', phase = NULL, due_at = NULL, claim = 1,"
    " claimed_by = (SELECT min(id) FROM node), claimed_at = CAST(:now AS bigint),"
    " deadline_at = CAST(:now AS bigint) + 15000000"
)
HELD_BY_NODE: dict[str, tuple[str, ...]] = {
    "in_flight": (),
    "alone": ("UPDATE work SET alone = true",),
    "cancelling": ("UPDATE work SET cancel_requested_at = 1",),
    "holder_silent": ("UPDATE node SET beat_at = beat_at - 20000000",),
    "holder_closed": ("UPDATE node SET state = 'closed', closed_why = 'silent'",),
}


async def _codes(
    backend: Backend, outbox: Outbox, message: str, cases: dict[str, tuple[str, ...]]
) -> dict[str, str]:
    """Return the code that each case's statements lead to, each undone again."""
    found: dict[str, str] = {}

    def explained(tx: Tx, statements: tuple[str, ...]) -> str:
        for statement in statements:
            tx.run(statement)
        return explain(tx, ONE, message, standing=outbox.standing).deliveries[0].code

    def all_of_them(tx: Tx) -> None:
        for code, statements in cases.items():
            with contextlib.suppress(_Undone), tx.savepoint():
                found[code] = explained(tx, statements)
                raise _Undone

    await backend.write(all_of_them)
    return found


class _Undone(Exception):
    pass


async def test_each_reason_is_found_in_a_database(outbox: Outbox, backend: Backend):
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    message = (await accept(outbox, app)).message.id
    await backend.write(_open_node)
    found = await _codes(backend, outbox, message, REASONS)
    assert found == {code: code for code in REASONS}
    await backend.write(lambda tx: tx.run(CLAIM, {"now": tx.now}))
    found = await _codes(backend, outbox, message, HELD_BY_NODE)
    assert found == {code: code for code in HELD_BY_NODE}


async def test_a_row_says_who_is_before_it_and_what_holds_them_up(
    outbox: Outbox, backend: Backend
):
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    first = (await accept(outbox, app)).message.id
    second = (await accept(outbox, app)).message.id
    await backend.write(_open_node)

    async def told() -> tuple[str, str]:
        found = (await outbox.explain(ONE, second)).deliveries[0]
        return found.code, found.why

    assert await told() == ("behind", "due now; 1 rows of the endpoint are before it")
    claim_first = (
        f"{CLAIM} WHERE id = (SELECT work FROM delivery WHERE message = :first)"
    )
    await backend.write(lambda tx: tx.run(claim_first, {"now": tx.now, "first": first}))
    assert (await told())[0] == "due"
    await run(backend, "UPDATE lane SET half_open = true")
    assert (await told())[0] == "probing"
    await run(backend, "UPDATE lane SET half_open = false")
    outbox.standing = Standing(slots=1)
    assert (await told())[0] == "node_full"
    await run(backend, "UPDATE work SET claimed_at = claimed_at - 3000000")
    assert (await told())[0] == "slow_lane"
    outbox.standing = Standing(off="this database looks like a copy")
    assert await told() == ("off", "this database looks like a copy")


async def test_a_row_in_line_names_the_one_in_front(outbox: Outbox, backend: Backend):
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    first = (await accept(outbox, app)).message.id
    second = (await accept(outbox, app)).message.id
    await backend.write(lambda tx: _put_in_line(tx, first, second))
    found = (await outbox.explain(ONE, second)).deliveries[0]
    assert found.code == "head_of_line"
    assert first in found.why
    assert "dead: status_404" in found.why


def _put_in_line(tx: Tx, *messages: str) -> None:
    """Make two deliveries stand in one line, the first of them dead."""
    for sequence, message in enumerate(messages, 1):
        of = "(SELECT work FROM delivery WHERE message = :message)"
        at = {"sequence": sequence, "message": message}
        tx.run(
            "INSERT INTO order_line (lane, order_key, sequence, work)"
            f" SELECT lane, 'k', :sequence, id FROM work WHERE id = {of}",
            at,
        )
        tx.run(
            f"UPDATE work SET order_key = 'k', sequence = :sequence WHERE id = {of}", at
        )
    tx.run("UPDATE work SET phase = 'asleep', due_at = NULL WHERE sequence = 2")
    tx.run(
        "UPDATE work SET state = 'dead', phase = NULL, due_at = NULL, settled_at = 1,"
        " reason = 'status_404' WHERE sequence = 1"
    )


def _open_node(tx: Tx) -> None:
    nodes.open_node(
        tx,
        name="n",
        host="h",
        pid=1,
        version="0",
        serves="delivery",
        lock_path=None,
    )
