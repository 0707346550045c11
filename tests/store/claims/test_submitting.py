from __future__ import annotations

import asyncio

import pytest
from sqlalchemy.exc import IntegrityError

from tenure.errors import InvariantViolated
from tenure.ids import LaneId
from tenure.kernel.states import Phase, State
from tenure.store.claims import submit
from tenure.store.tx import Tx
from tests.databases import MakeBackend
from tests.store.yard import SECOND, Yard, new_work, statements


async def test_new_work_is_due_later_or_asleep_by_the_databases_clock(yard: Yard):
    lane = await yard.lane()
    now = await yard.now()
    (due,) = await yard.submit(lane)
    (past,) = await yard.submit(lane, due_at=now - SECOND)
    (future,) = await yard.submit(lane, due_at=now + 60 * SECOND)
    (waits,) = await yard.submit(lane, asleep=True)
    rows = await yard.rows([due, past, future, waits])
    assert [rows[i].phase for i in (due, past, future, waits)] == [
        Phase.DUE,
        Phase.DUE,
        Phase.LATER,
        Phase.ASLEEP,
    ]
    assert now <= (rows[due].due_at or 0) <= await yard.now()
    assert rows[past].due_at == now - SECOND, "it keeps its place in the lane"
    assert {row.state for row in rows.values()} == {State.READY}
    assert {row.claim for row in rows.values()} == {0}


async def test_an_id_that_exists_is_refused_and_nothing_of_the_batch_stays(yard: Yard):
    lane = await yard.lane()
    (known,) = await yard.submit(lane)
    fresh = new_work(lane)
    with pytest.raises(IntegrityError):
        await yard.do(lambda tx: submit(tx, [fresh, new_work(lane, id=known)]))
    assert await yard.do(lambda tx: tx.scalar("SELECT count(*) FROM work")) == 1


async def test_what_its_caller_rolls_back_was_never_submitted(yard: Yard):
    lane = await yard.lane()

    def fail(tx: Tx) -> None:
        submit(tx, [new_work(lane)])
        raise LookupError

    with pytest.raises(LookupError):
        await yard.do(fail)
    assert await yard.claim(await yard.walker()) == []


async def test_a_submit_is_one_statement_however_many_rows(yard: Yard):
    lane = await yard.lane()

    def count(tx: Tx) -> tuple[list[str], list[str]]:
        with statements(tx) as one:
            submit(tx, [new_work(lane)])
        with statements(tx) as many:
            submit(tx, [new_work(lane) for _ in range(100)])
        return one, many

    one, many = await yard.do(count)
    assert len(one) == len(many) == 1
    assert '"lane"' not in one[0].split("(")[0], "no lane row is touched"


async def test_nothing_to_submit_is_nothing_to_do(yard: Yard):
    await yard.do(lambda tx: submit(tx, []))


@pytest.mark.parametrize("dialect", ["postgresql"])
async def test_a_submit_does_not_wait_for_a_locked_lane(
    yard: Yard, make_backend: MakeBackend
):
    lane = await yard.lane(concurrency=1)
    other = Yard(await make_backend())
    held, done = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        from sqlalchemy.util import await_only

        def lock(tx: Tx) -> None:
            tx.all("SELECT 1 FROM lane FOR UPDATE")
            held.set()
            await_only(done.wait())

        await yard.do(lock)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hold())
        await held.wait()
        async with asyncio.timeout(5):
            (id_,) = await other.submit(lane)
        done.set()
    assert (await yard.row(id_)).phase is Phase.DUE


async def test_ordered_rows_stand_in_line_behind_the_first(yard: Yard):
    lane = await yard.lane(ordered=True)
    (first,) = await yard.submit(lane, order_key="k")
    second, third = await yard.submit(lane, 2, order_key="k")
    (alone,) = await yard.submit(lane, order_key="other")
    rows = await yard.rows([first, second, third, alone])
    assert [rows[i].sequence for i in (first, second, third, alone)] == [1, 2, 3, 1]
    assert [rows[i].phase for i in (first, second, third, alone)] == [
        Phase.DUE,
        Phase.ASLEEP,
        Phase.ASLEEP,
        Phase.DUE,
    ]
    assert rows[second].reason == "head of line"


async def test_keys_and_lanes_of_one_batch_have_lines_of_their_own(yard: Yard):
    one, two = await yard.lane(ordered=True), await yard.lane(ordered=True)
    rows = [new_work(lane, order_key=key) for lane in (one, two) for key in "abab"]
    await yard.do(lambda tx: submit(tx, rows))
    stored = await yard.rows([row.id for row in rows])
    sequences = [stored[row.id].sequence for row in rows]
    assert sequences == [1, 1, 2, 2, 1, 1, 2, 2]


async def test_an_unknown_lane_is_no_obstacle(yard: Yard):
    (id_,) = await yard.submit(LaneId(99 << 24 | 1))
    assert (await yard.row(id_)).phase is Phase.DUE
    assert await yard.claim(await yard.walker()) == [], "nobody serves it"


async def test_an_ordered_row_cannot_be_submitted_asleep(yard: Yard):
    lane = await yard.lane()
    with pytest.raises(InvariantViolated, match="ordered"):
        await yard.submit(lane, asleep=True, order_key="a")
    assert await yard.do(lambda tx: tx.scalar("SELECT count(*) FROM work")) == 0
