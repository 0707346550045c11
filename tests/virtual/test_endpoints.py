"""An endpoint that is away for three days and comes back; a secret that is rotated."""

from __future__ import annotations

import pytest

from tenure.clock import US
from tenure.limits import SECRET_GRACE_SECONDS
from tenure.outbox.model import SecretRotation
from tenure.outbox.outbox import DEFAULT_TENANT
from tenure.outbox.signing import SignatureRefused
from tests.virtual.world import AWAY, DAY, HOUR, OK, World

GRACE = round(SECRET_GRACE_SECONDS * US)


async def test_a_disabled_endpoints_backlog_of_three_days_goes_out_in_its_order(
    world: World,
) -> None:
    world.receiver.answer(OK)
    endpoint = await world.endpoint()
    await world.disable(endpoint)
    sent: list[str] = []
    for _ in range(12):
        sent.append((await world.accept()).message.id)
        await world.engine.advance(hours=6)
    assert world.arrived() == []
    assert [row.state for row in await world.rows()] == ["ready"] * 12
    await world.disable(endpoint, disabled=False)
    await world.engine.idle()
    assert world.arrived() == [world.begin + 3 * DAY] * 12
    claims = await world.engine.backend.read(
        lambda tx: tx.all(
            "SELECT w.subject FROM attempt a JOIN work w ON w.id = a.work"
            " ORDER BY w.due_at, w.id"
        )
    )
    assert [row[0] for row in claims] == sent
    assert sorted(filter(None, world.messages())) == sorted(sent), "each once"
    assert {row.state for row in await world.rows()} == {"succeeded"}


async def test_what_an_endpoint_refused_for_three_days_is_all_there_when_it_is_back(
    world: World,
) -> None:
    """Older messages ran out of attempts: they say so, and can be sent again."""
    endpoint = await world.endpoint()
    sent: list[str] = []
    for _ in range(6):
        sent.append((await world.accept()).message.id)
        await world.engine.advance(hours=12)
    back = world.engine.now
    world.receiver.answer(OK)
    await world.engine.advance(days=2)
    rows = {row.message: row for row in await world.rows()}
    assert sorted(rows) == sorted(sent)
    dead = [id_ for id_ in sent if rows[id_].state == "dead"]
    assert {rows[id_].reason for id_ in dead} == {"exhausted: status_503"}
    assert {rows[id_].state for id_ in sent if id_ not in dead} == {"succeeded"}
    assert 0 < len(dead) < len(sent), "27.6 h of retries lie within the three days"
    assert dead == sent[: len(dead)]
    for id_ in dead:
        await world.engine.outbox.resend(DEFAULT_TENANT, world.app, id_, endpoint.id)
    await world.engine.idle()
    assert {row.state for row in await world.rows()} == {"succeeded"}
    received = [r.message_id for r in world.receiver.requests if r.at >= back]
    assert sorted(filter(None, received)) == sorted(sent), "each one once"


async def test_what_is_still_retried_when_the_endpoint_is_back_arrives_by_itself(
    world: World,
) -> None:
    await world.endpoint(retry_seconds=(0.0, *([6 * 3_600.0] * 20)))
    for _ in range(2):
        await world.accept()
        await world.engine.advance(minutes=10)
    await world.engine.advance_to(world.begin + 60 * HOUR)
    assert {row.state for row in await world.rows()} == {"ready"}
    world.receiver.answer(OK)
    await world.engine.advance(hours=8)
    assert {row.state for row in await world.rows()} == {"succeeded"}


@pytest.mark.parametrize("opens", ["never", "when it is back"])
async def test_nothing_is_sent_to_a_disabled_endpoint_however_long(
    world: World, opens: str
) -> None:
    endpoint = await world.endpoint()
    await world.accept()
    await world.engine.advance(hours=1)
    before = len(world.arrived())
    assert before == 4, "at once, after 5 s, 5 min, 30 min"
    await world.disable(endpoint)
    await world.engine.advance(days=3)
    assert len(world.arrived()) == before
    assert (await world.row()).state == "ready"
    if opens == "never":
        return
    world.receiver.answer(OK)
    await world.disable(endpoint, disabled=False)
    await world.engine.idle()
    assert world.arrived()[before:] == [world.begin + HOUR + 3 * DAY]
    assert (await world.row()).state == "succeeded"


async def test_a_rotated_secret_signs_for_a_day_and_not_a_microsecond_longer(
    world: World,
) -> None:
    world.receiver.answer(OK)
    endpoint = await world.endpoint()
    former = await world.engine.outbox.endpoint_secret(
        DEFAULT_TENANT, world.app, endpoint.id
    )
    await world.engine.outbox.rotate_endpoint_secret(
        DEFAULT_TENANT, world.app, endpoint.id, SecretRotation()
    )
    rotated = await world.engine.outbox.endpoint_secret(
        DEFAULT_TENANT, world.app, endpoint.id
    )
    for at in (0, GRACE - 1, GRACE):
        await world.engine.advance_to(world.begin + at)
        await world.accept()
        await world.engine.idle()
    fresh, last, late = world.receiver.requests
    for request in (fresh, last, late):
        request.check_signature(rotated)
    for request in (fresh, last):
        request.check_signature(former)
    with pytest.raises(SignatureRefused):
        late.check_signature(former)


async def test_a_retry_is_signed_with_the_secrets_of_its_own_instant(
    world: World,
) -> None:
    endpoint = await world.endpoint()
    former = await world.engine.outbox.endpoint_secret(
        DEFAULT_TENANT, world.app, endpoint.id
    )
    world.receiver.answer(AWAY)
    await world.accept()
    await world.engine.idle()
    await world.engine.outbox.rotate_endpoint_secret(
        DEFAULT_TENANT, world.app, endpoint.id, SecretRotation()
    )
    await world.engine.advance(days=2)
    for request in world.receiver.requests:
        if request.at < world.begin + GRACE:
            request.check_signature(former)
        else:
            with pytest.raises(SignatureRefused):
                request.check_signature(former)
    assert world.arrived()[-1] >= world.begin + GRACE
