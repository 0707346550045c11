from __future__ import annotations

from tenure.ids import WorkId
from tenure.kernel.commands import Answer, Replayed, Waiting
from tenure.kernel.states import Phase, State
from tenure.store import claims
from tests.store.yard import DEAD, OK, SECOND, Yard, answer


async def test_a_wake_makes_sleeping_and_later_rows_due(yard: Yard):
    lane = await yard.lane()
    (sleeps,) = await yard.submit(lane, asleep=True)
    (later,) = await yard.submit(lane, due_at=await yard.now() + 60 * SECOND)
    assert await yard.claim(await yard.walker()) == []
    unknown = WorkId("wrk_unknown")
    assert await yard.do(lambda tx: claims.wake(tx, [sleeps, later, unknown])) == 2
    claimed = await yard.claim(await yard.walker())
    assert {one.work.id for one in claimed} == {sleeps, later}
    assert {one.work.wakes for one in claimed} == {1}


async def test_a_wake_during_an_attempt_is_not_missed(yard: Yard):
    await yard.submit(await yard.lane())
    (one,) = await yard.claim(await yard.walker())
    await yard.do(lambda tx: claims.wake(tx, [one.work.id]))
    await yard.settle(answer(one, Waiting(wakes=one.work.wakes)))
    assert (await yard.row(one.work.id)).phase is Phase.DUE


async def test_without_a_wake_the_same_attempt_sleeps(yard: Yard):
    await yard.submit(await yard.lane())
    (one,) = await yard.claim(await yard.walker())
    await yard.settle(answer(one, Waiting(wakes=one.work.wakes)))
    assert (await yard.row(one.work.id)).phase is Phase.ASLEEP


async def test_cancel_ends_what_waits_and_asks_for_what_runs(yard: Yard):
    lane = await yard.lane()
    (runs,) = await yard.submit(lane)
    (one,) = await yard.claim(await yard.walker())
    (waits,) = await yard.submit(lane)
    changed = await yard.do(lambda tx: claims.cancel(tx, [runs, waits], "enough"))
    assert changed[waits].state is State.CANCELLED
    assert changed[runs].state is State.CLAIMED
    assert changed[runs].cancel_requested_at is not None
    assert await yard.do(lambda tx: claims.cancel(tx, [runs, waits], "again")) == {}
    assert await yard.settle(answer(one, DEAD)) == [Answer.APPLIED]
    row = await yard.row(runs)
    assert (row.state, row.reason) == (State.CANCELLED, "enough")


async def test_a_success_after_a_cancel_request_stays_a_success(yard: Yard):
    (id_,) = await yard.submit(await yard.lane())
    (one,) = await yard.claim(await yard.walker())
    await yard.do(lambda tx: claims.cancel(tx, [id_], "enough"))
    await yard.settle(answer(one, OK))
    assert (await yard.row(id_)).state is State.SUCCEEDED


async def test_a_lanes_due_and_claimed_rows_are_cancelled_in_batches(yard: Yard):
    lane, other = await yard.lane(), await yard.lane()
    await yard.submit(lane, 2)
    done, runs = await yard.claim(await yard.walker())
    await yard.settle(answer(done))
    await yard.submit(lane, 3)
    await yard.submit(lane, asleep=True)
    await yard.submit(lane, due_at=await yard.now() + 60 * SECOND)
    (stays,) = await yard.submit(other)

    async def batch() -> int:
        return await yard.do(lambda tx: claims.cancel_lane(tx, lane, "deleted", 4))

    await yard.submit(lane, 2)
    assert [await batch() for _ in range(3)] == [4, 2, 0]
    count = "SELECT count(*) FROM work WHERE state = 'cancelled'"
    assert await yard.do(lambda tx: tx.scalar(count)) == 5
    asleep_or_later = "SELECT count(*) FROM work WHERE phase IN ('asleep', 'later')"
    assert await yard.do(lambda tx: tx.scalar(asleep_or_later)) == 2
    assert (await yard.row(done.work.id)).state is State.SUCCEEDED
    assert (await yard.row(runs.work.id)).cancel_requested_at is not None
    assert (await yard.row(stays)).phase is Phase.DUE


async def test_a_replay_says_what_it_found(yard: Yard):
    lane = await yard.lane()
    await yard.submit(lane, 2)
    dead, runs = await yard.claim(await yard.walker())
    await yard.settle(answer(dead, DEAD))
    (later,) = await yard.submit(lane, due_at=await yard.now() + 60 * SECOND)
    ids = [dead.work.id, runs.work.id, later, WorkId("wrk_unknown")]
    answers = await yard.do(lambda tx: claims.replay(tx, ids))
    assert answers == {
        dead.work.id: Replayed.READY,
        runs.work.id: Replayed.IN_FLIGHT,
        later: Replayed.WOKEN,
    }
    row = await yard.row(dead.work.id)
    assert (row.phase, row.trigger, row.replay_claim) == (Phase.DUE, 1, 1)
    assert len(await yard.attempts(dead.work.id)) == 1, "history stays"


async def test_a_replay_may_say_by_what_it_was_triggered(yard: Yard):
    await yard.submit(await yard.lane())
    (one,) = await yard.claim(await yard.walker())
    await yard.settle(answer(one))
    await yard.do(lambda tx: claims.replay(tx, [one.work.id], trigger=0))
    (again,) = await yard.claim(await yard.walker())
    await yard.settle(answer(again))
    assert [one.trigger for one in await yard.attempts(one.work.id)] == [0, 0]
    assert (await yard.row(one.work.id)).claim == 2
