"""How long things are kept: to the instant, by what they are and never by age alone."""

from __future__ import annotations

from tenure.clock import US
from tenure.limits import HISTORY_DAYS, IDEMPOTENCY_SECONDS, RESPONSE_DAYS
from tenure.outbox.model import Idempotency, NewMessage
from tenure.outbox.outbox import DEFAULT_TENANT
from tenure.testing import Reply
from tests.outbox.world import count
from tests.virtual.world import DAY, OK, World

REMEMBERED = round(IDEMPOTENCY_SECONDS * US)
HISTORY = HISTORY_DAYS * DAY
RESPONSES = RESPONSE_DAYS * DAY


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
    await passes(world)
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


async def passes(world: World) -> None:
    """Let retention pass by: it looks every quarter of an hour, and in steps."""
    for _ in range(8):
        await world.engine.advance(minutes=10)


async def kept(world: World, message: str) -> dict[str, int]:
    """Count what is stored of one message, by table."""
    works = f"(SELECT work FROM delivery WHERE message = '{message}')"
    where = {
        "message": f"id = '{message}'",
        "payload": f"message = '{message}'",
        "delivery": f"message = '{message}'",
        "work": f"subject = '{message}'",
        "attempt": f"work IN {works}",
        "exchange": f"work IN {works}",
    }
    return {
        table: await count(world.engine.backend, table, condition)
        for table, condition in where.items()
    }


async def test_what_is_over_goes_after_ninety_days_and_nothing_else_does(
    world: World,
) -> None:
    world.receiver.answer(OK)
    await world.endpoint()
    over = (await world.accept()).message.id
    await world.engine.idle()
    away = await world.endpoint()
    await world.disable(away)
    waiting = (await world.accept()).message.id
    await world.engine.advance_to(world.begin + HISTORY - 1)
    whole = dict.fromkeys(("message", "payload", "delivery", "work", "attempt"), 1)
    assert await kept(world, over) == whole | {"exchange": 1}
    await passes(world)
    assert set((await kept(world, over)).values()) == {0}
    half = await kept(world, waiting)
    assert (half["message"], half["payload"], half["work"]) == (1, 1, 2), "it waits"
    back = world.engine.now
    await world.disable(away, disabled=False)
    await world.engine.idle()
    assert world.arrived()[-1] == back
    assert {row.state for row in await world.rows()} == {"succeeded"}
    await world.engine.advance_to(back + HISTORY - 1)
    assert (await kept(world, waiting))["message"] == 1
    await passes(world)
    assert set((await kept(world, waiting)).values()) == {0}


async def test_what_a_receiver_answered_goes_after_thirty_days_and_the_rest_stays(
    world: World,
) -> None:
    world.receiver.answer(Reply(status=200, body=b"thank you"))
    await world.endpoint()
    message = (await world.accept()).message.id
    await world.engine.advance_to(world.begin + RESPONSES - 1)
    answers = "response_body IS NOT NULL"
    assert await count(world.engine.backend, "exchange", answers) == 1
    await passes(world)
    assert await count(world.engine.backend, "exchange", answers) == 0
    assert set((await kept(world, message)).values()) == {1}


async def test_a_dead_message_is_kept_as_long_counted_from_its_end(
    world: World,
) -> None:
    await world.endpoint()
    message = (await world.accept()).message.id
    await world.engine.advance(days=3)
    row = await world.row()
    assert row.state == "dead"
    assert row.settled_at is not None
    assert row.settled_at > world.begin + DAY
    await world.engine.advance_to(row.settled_at + HISTORY - 1)
    assert (await kept(world, message))["attempt"] == 8
    await passes(world)
    assert set((await kept(world, message)).values()) == {0}
