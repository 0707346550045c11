"""How long things are kept: to the instant, by what they are and never by age alone."""

from __future__ import annotations

from tenure.clock import US
from tenure.limits import IDEMPOTENCY_SECONDS
from tenure.outbox.model import Idempotency, NewMessage
from tenure.outbox.outbox import DEFAULT_TENANT
from tests.outbox.world import count
from tests.virtual.world import DAY, OK, World

REMEMBERED = round(IDEMPOTENCY_SECONDS * US)


async def test_an_idempotency_key_answers_for_a_day_and_is_free_afterwards(
    world: World,
) -> None:
    await world.endpoint()

    async def again() -> str:
        accepted = await world.engine.outbox.accept(
            DEFAULT_TENANT,
            world.app,
            NewMessage(event_type="a.b", body=b"{}"),
            idempotency=Idempotency(key="once", body_hash="h"),
        )
        return accepted.message.id

    first = await again()
    await world.engine.advance_to(world.begin + REMEMBERED - 1)
    assert await again() == first
    await world.engine.advance_to(world.begin + REMEMBERED)
    assert await again() != first


async def test_a_payload_goes_at_the_end_of_its_own_retention(world: World) -> None:
    world.receiver.answer(OK)
    await world.endpoint()
    short = await world.accept(retention_seconds=5 * 86_400.0)
    await world.accept()
    await world.engine.advance_to(world.begin + 5 * DAY - 1)

    async def body() -> bytes | None:
        found = await world.engine.outbox.get_message(
            DEFAULT_TENANT, world.app, short.message.id, with_content=True
        )
        return found.body

    assert await body() == b"{}"
    await world.engine.advance_to(world.begin + 5 * DAY)
    assert await body() is None
    await world.engine.advance(minutes=1)  # the housekeeping has passed by
    held = "body IS NOT NULL"
    assert await count(world.engine.backend, "payload", held) == 1
    await world.engine.advance(days=90)
    assert await count(world.engine.backend, "payload", held) == 0


async def test_a_payload_stays_for_as_long_as_its_message_waits(world: World) -> None:
    endpoint = await world.endpoint()
    await world.disable(endpoint)
    await world.accept(retention_seconds=5 * 86_400.0)
    await world.engine.advance(days=200)
    world.receiver.answer(OK)
    await world.disable(endpoint, disabled=False)
    await world.engine.idle()
    assert world.arrived() == [world.begin + 200 * DAY]
    assert world.receiver.requests[0].body == b"{}"
