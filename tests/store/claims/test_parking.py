"""Held rows: nothing but an operator moves them, and a line keeps its order."""

from __future__ import annotations

from tenure.ids import WorkId
from tenure.kernel.commands import Answer
from tenure.kernel.states import AttemptOutcome, Phase, State
from tenure.store import claims
from tenure.store.claims import HELD
from tests.store.yard import OK, Yard, answer


async def hold_all(yard: Yard, limit: int = 2) -> int:
    now, count, place = await yard.now(), 0, ""
    while True:
        batch = await yard.do(
            lambda tx, place=place: claims.hold_open(tx, place, now, limit)
        )
        count += batch.count
        if batch.place is None:
            return count
        place = batch.place


async def test_open_rows_are_held_in_batches_and_those_that_come_later_are_not(
    yard: Yard,
):
    lane, walker = await yard.lane(), await yard.walker()
    (done,) = await yard.submit(lane)
    (claimed,) = await yard.claim(walker)
    await yard.settle(answer(claimed, OK))
    waiting = await yard.submit(lane, 4)
    later = await yard.submit(lane, due_at=await yard.now() + 3_600_000_000)
    (running,) = await yard.claim(walker, 1)
    assert await hold_all(yard) == 5
    rows = await yard.rows([*waiting, *later])
    assert {row.state for row in rows.values()} == {State.PARKED}
    assert {row.reason for row in rows.values()} == {HELD}
    assert (await yard.row(done)).state is State.SUCCEEDED
    # The claim of the original is lost, with its evidence; it may settle no more.
    (lost,) = await yard.attempts(running.work.id)
    assert (lost.outcome, lost.reason) == (AttemptOutcome.LOST, HELD)
    (answered,) = await yard.settle(answer(running, OK))
    assert answered is Answer.LATE_KEPT
    assert (await yard.row(running.work.id)).state is State.SUCCEEDED
    fresh = await yard.submit(lane)
    assert [one.work.id for one in await yard.claim(walker)] == fresh
    assert await hold_all(yard) == 1, "only what is open is held"


async def test_a_row_submitted_after_the_instant_is_not_held(yard: Yard):
    lane = await yard.lane()
    before = await yard.now()
    yard.pass_time(1)
    (fresh,) = await yard.submit(lane)
    batch = await yard.do(lambda tx: claims.hold_open(tx, "", before, 10))
    assert batch.count == 0
    assert (await yard.row(fresh)).state is State.READY


async def test_what_is_let_go_starts_anew_and_what_is_not_held_is_left(yard: Yard):
    lane, walker = await yard.lane(), await yard.walker()
    ids = await yard.submit(lane, 2)
    await hold_all(yard)
    other = await yard.submit(lane)
    assert await yard.do(lambda tx: claims.let_go(tx, [ids[0], *other])) == 1
    row = await yard.row(ids[0])
    assert (row.state, row.phase, row.failures) == (State.READY, Phase.DUE, 0)
    assert {one.work.id for one in await yard.claim(walker)} == {ids[0], *other}
    assert await yard.do(lambda tx: claims.cancel_held(tx, [*ids, *other], "x")) == 1
    assert (await yard.row(ids[1])).state is State.CANCELLED


async def line(yard: Yard, count: int) -> tuple[list[WorkId], claims.Walker]:
    lane = await yard.lane(ordered=True)
    ids = [(await yard.submit(lane, order_key="k"))[0] for _ in range(count)]
    await hold_all(yard)
    ids += await yard.submit(lane, order_key="k")
    return ids, await yard.walker()


async def run(yard: Yard, walker: claims.Walker) -> list[WorkId]:
    order: list[WorkId] = []
    while claimed := await yard.claim(walker):
        order += [one.work.id for one in claimed]
        await yard.settle(*[answer(one) for one in claimed])
    return order


async def test_a_line_that_is_let_go_keeps_its_order(yard: Yard):
    ids, walker = await line(yard, 3)
    assert await run(yard, walker) == [], "what came later waits in its line"
    assert await yard.do(lambda tx: claims.let_go(tx, ids[:3])) == 3
    phases = [(await yard.row(id_)).phase for id_ in ids]
    assert phases == [Phase.DUE, Phase.ASLEEP, Phase.ASLEEP, Phase.ASLEEP]
    assert await run(yard, walker) == ids


async def test_a_line_goes_on_when_its_held_rows_are_cancelled(yard: Yard):
    ids, walker = await line(yard, 2)
    assert await yard.do(lambda tx: claims.cancel_held(tx, ids[:2], "x")) == 2
    assert await run(yard, walker) == ids[2:]


async def test_a_row_let_go_before_the_head_of_its_line_waits_for_it(yard: Yard):
    ids, walker = await line(yard, 2)
    assert await yard.do(lambda tx: claims.let_go(tx, [ids[1]])) == 1
    assert await run(yard, walker) == []
    assert await yard.do(lambda tx: claims.let_go(tx, [ids[0]])) == 1
    assert await run(yard, walker) == ids
