"""Three days of retries: every instant is what the rules say."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tenure.clock import US, to_rfc3339
from tenure.limits import (
    RETRY_AFTER_MAX_SECONDS,
    RETRY_JITTER,
    RETRY_SECONDS,
    TIME_BUDGET_SECONDS,
)
from tenure.testing import Reply
from tests.virtual.world import DAY, HOUR, World

BUDGET = round(TIME_BUDGET_SECONDS * US)


async def test_each_retry_happens_when_it_is_due_and_not_a_microsecond_before(
    world: World,
) -> None:
    await world.endpoint()
    await world.accept()
    await world.engine.idle()
    assert world.arrived() == [world.begin]
    for number, delay in enumerate(RETRY_SECONDS[1:], start=1):
        row = await world.row()
        assert (row.state, row.tries, row.failures) == ("ready", number, number)
        assert row.due_at is not None
        waits = (row.due_at - world.engine.now) / US
        assert delay * (1 - RETRY_JITTER) <= waits <= delay * (1 + RETRY_JITTER)
        await world.engine.advance_to(row.due_at - 1)
        assert len(world.arrived()) == number
        await world.engine.advance_to(row.due_at)
        assert world.arrived()[number:] == [row.due_at]
    row = await world.row()
    assert (row.state, row.reason) == ("dead", "exhausted: status_503")
    assert row.settled_at == world.arrived()[-1]
    assert await world.begun() == world.arrived()


async def test_three_days_at_once_are_the_same_instants(world: World) -> None:
    await world.endpoint()
    await world.accept()
    await world.engine.advance(days=3)
    gaps = [(after - before) / US for before, after in pairwise(world.arrived())]
    assert len(gaps) == len(RETRY_SECONDS) - 1
    for gap, delay in zip(gaps, RETRY_SECONDS[1:], strict=True):
        assert delay * (1 - RETRY_JITTER) <= gap <= delay * (1 + RETRY_JITTER)
    assert world.engine.now == world.begin + 3 * DAY
    assert await world.begun() == world.arrived()


async def test_no_two_messages_are_retried_in_one_wave(world: World) -> None:
    await world.endpoint()
    for _ in range(10):
        await world.accept()
    await world.engine.idle()
    dues = {row.due_at for row in await world.rows()}
    assert len(dues) == 10, "each has a jitter of its own"


@pytest.mark.parametrize(
    ("status", "value", "waits"),
    [
        (429, "7200", 2 * HOUR),
        (503, "7200", 2 * HOUR),
        (503, "1.5", None),
        (429, "9999999", round(RETRY_AFTER_MAX_SECONDS * US)),
        (503, "soon", None),
    ],
)
async def test_retry_after_is_waited_for_and_not_shortened_by_the_jitter(
    world: World, status: int, value: str, waits: int | None
) -> None:
    await world.endpoint()
    world.receiver.answer(Reply(status=status, headers=(("retry-after", value),)))
    await world.accept()
    await world.engine.idle()
    row = await world.row()
    assert row.due_at is not None
    if waits is None:  # shorter than the schedule, or no number: the schedule holds
        asked = (row.due_at - world.begin) / US
        assert RETRY_SECONDS[1] * 0.8 <= asked <= RETRY_SECONDS[1] * 1.2
        return
    assert (row.tries, row.failures) == (1, 0), "the receiver asked: not charged"
    assert row.due_at == world.begin + waits
    await world.engine.advance_to(row.due_at - 1)
    assert len(world.arrived()) == 1
    await world.engine.advance_to(row.due_at)
    assert world.arrived() == [world.begin, world.begin + waits]


async def test_a_retry_after_that_is_a_date_is_that_date(world: World) -> None:
    await world.endpoint()
    at = (world.begin // DAY + 1) * DAY  # the coming midnight, UTC
    clock = to_rfc3339(at)
    days, months = "Mon Tue Wed Thu Fri Sat Sun", "Jan Feb Mar Apr May Jun Jul Aug Sep"
    day = days.split()[(at // DAY + 3) % 7]
    month = f"{months} Oct Nov Dec".split()[int(clock[5:7]) - 1]
    date = f"{day}, {clock[8:10]} {month} {clock[:4]} 00:00:00 GMT"
    world.receiver.answer(Reply(status=503, headers=(("retry-after", date),)))
    await world.accept()
    await world.engine.idle()
    row = await world.row()
    assert row.due_at is not None
    assert row.due_at >= at, "never before the date"
    await world.engine.advance_to(row.due_at)
    assert world.arrived() == [world.begin, row.due_at]
    assert row.due_at == at or at - world.begin < 6 * US


async def test_the_time_budget_ends_three_days_after_the_first_attempt(
    world: World,
) -> None:
    await world.endpoint(retry_seconds=(0.0, *([6 * 3_600.0] * 60)))
    await world.engine.advance(hours=5)  # the budget does not run before an attempt
    begin = world.engine.now
    await world.accept()
    await world.engine.advance(days=7)
    *within, last = world.arrived()
    assert within[0] == begin
    assert max(within) < begin + BUDGET <= last
    assert last <= begin + BUDGET + 1.2 * 6 * HOUR
    row = await world.row()
    assert (row.state, row.reason) == ("dead", "exhausted: status_503")
    assert row.settled_at == last


@pytest.mark.parametrize("receives", [True, False], ids=["back", "still away"])
async def test_a_message_gets_one_attempt_after_its_lane_opens_whatever_its_budget(
    world: World, receives: bool
) -> None:
    endpoint = await world.endpoint()
    await world.accept()
    await world.engine.idle()
    await world.disable(endpoint)
    await world.engine.advance(days=10)
    assert len(world.arrived()) == 1
    assert (await world.row()).state == "ready"
    if receives:
        world.receiver.answer(Reply(status=200))
    await world.disable(endpoint, disabled=False)
    await world.engine.advance(days=10)
    assert world.arrived() == [world.begin, world.begin + 10 * DAY]
    assert (await world.row()).state == ("succeeded" if receives else "dead")


@pytest.mark.parametrize(("early", "state"), [(1, "succeeded"), (0, "dead")])
async def test_nothing_is_sent_from_the_instant_on_at_which_a_message_expires(
    world: World, early: int, state: str
) -> None:
    world.receiver.answer(Reply(status=200))
    endpoint = await world.endpoint()
    await world.disable(endpoint)
    expires_at = world.begin + 3 * DAY
    await world.accept(expires_at=expires_at)
    await world.engine.advance_to(expires_at - early)
    await world.disable(endpoint, disabled=False)
    await world.engine.idle()
    row = await world.row()
    assert row.state == state
    assert world.arrived() == ([expires_at - 1] if early else [])
    if not early:
        assert (row.reason, row.settled_at) == ("expired", expires_at)


async def test_a_retry_that_is_due_after_the_expiry_is_not_sent(world: World) -> None:
    await world.endpoint()
    await world.accept(expires_at=world.begin + 20 * 60 * US)
    await world.engine.advance(days=1)
    row = await world.row()
    assert (row.state, row.reason) == ("dead", "expired")
    assert len(world.arrived()) == 3, "at once, after 5 s and after 5 min"


async def test_a_message_for_later_is_sent_at_its_instant(world: World) -> None:
    world.receiver.answer(Reply(status=200))
    await world.endpoint()
    await world.accept(deliver_at=world.begin + 6 * DAY + 1)
    await world.accept(delay_us=HOUR)
    await world.engine.advance(days=7)
    assert world.arrived() == [world.begin + HOUR, world.begin + 6 * DAY + 1]
