from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import await_only

from tenure.ids import LaneId, WorkId
from tenure.kernel.commands import Replayed, Waiting
from tenure.kernel.states import Phase, State
from tenure.store import claims
from tenure.store.backend import Backend
from tenure.store.claims import Walker
from tenure.store.claims.rows import decide_rows
from tenure.store.tx import Tx
from tests.databases import MakeBackend
from tests.outbox.world import held_transaction
from tests.store.yard import DEAD, OK, SECOND, Yard, answer, new_work, read_all, retry


async def line(
    yard: Yard, count: int = 3, **settings: Any
) -> tuple[LaneId, list[WorkId], Walker]:
    """Submit rows into one ordered queue, each in a commit of its own."""
    lane = await yard.lane(ordered=True, **settings)
    ids = [(await yard.submit(lane, order_key="k"))[0] for _ in range(count)]
    return lane, ids, await yard.walker()


async def run(yard: Yard, walker: Walker) -> list[WorkId]:
    """Claim and succeed until nothing is due; return the rows in their order."""
    order: list[WorkId] = []
    while claimed := await yard.claim(walker):
        order += [one.work.id for one in claimed]
        await yard.settle(*[answer(one) for one in claimed])
    return order


async def test_a_line_goes_one_by_one_in_its_order(yard: Yard):
    _, ids, walker = await line(yard)
    (head,) = await yard.claim(walker)
    assert head.work.id == ids[0]
    assert await yard.claim(walker) == [], "the others wait"
    await yard.settle(answer(head))
    assert await run(yard, walker) == ids[1:]


async def test_a_retry_of_the_head_keeps_its_place(yard: Yard):
    _, ids, walker = await line(yard)
    (head,) = await yard.claim(walker)
    await yard.settle(answer(head, retry(await yard.now() + 5 * SECOND)))
    assert await yard.claim(walker) == []
    yard.pass_time(6)
    assert await run(yard, walker) == ids


async def test_an_unordered_lane_may_overtake(yard: Yard):
    ids = await yard.submit(await yard.lane(), 3)
    walker = await yard.walker()
    first, *_ = await yard.claim(walker, 1)
    await yard.settle(answer(first, retry(await yard.now() + 5 * SECOND)))
    assert set(await run(yard, walker)) == set(ids) - {first.work.id}


async def test_a_dead_head_blocks_until_it_is_replayed_or_cancelled(yard: Yard):
    _, ids, walker = await line(yard)
    (head,) = await yard.claim(walker)
    await yard.settle(answer(head, DEAD))
    assert await yard.claim(walker) == []
    await yard.do(lambda tx: claims.replay(tx, [ids[0]]))
    assert await run(yard, walker) == ids


async def test_a_dead_head_is_skipped_where_the_lane_says_so(yard: Yard):
    _, ids, walker = await line(yard, order_policy="skip")
    (head,) = await yard.claim(walker)
    await yard.settle(answer(head, DEAD))
    assert await run(yard, walker) == ids[1:]


async def test_a_head_may_be_passed_after_so_many_failures(yard: Yard):
    _, ids, walker = await line(yard, order_policy="skip", skip_after=2)
    for _ in range(2):
        (head,) = await yard.claim(walker)
        assert head.work.id == ids[0]
        await yard.settle(answer(head, retry(await yard.now() + 5 * SECOND)))
        if head.work.claim == 1:
            assert await yard.claim(walker) == []
        yard.pass_time(6)
    order = await run(yard, walker)
    assert order.index(ids[1]) < order.index(ids[2])
    assert set(order) == set(ids)


async def test_a_replayed_row_blocks_nobody_and_says_so(yard: Yard):
    _, ids, walker = await line(yard)
    (head,) = await yard.claim(walker)
    await yard.settle(answer(head))
    await yard.do(lambda tx: claims.replay(tx, [ids[0]]))
    assert (await yard.row(ids[0])).reason == "replayed"
    claimed = {one.work.id for one in await yard.claim(walker)}
    assert claimed == {ids[0], ids[1]}


async def test_nobody_behind_the_head_can_be_woken_past_it(yard: Yard):
    _, ids, walker = await line(yard)
    answers = await yard.do(lambda tx: claims.replay(tx, [ids[2]]))
    assert answers == {ids[2]: Replayed.IN_LINE}
    assert await yard.do(lambda tx: claims.wake(tx, [ids[1]])) == 0
    assert await run(yard, walker) == ids


async def test_a_delayed_head_delays_those_behind_it(yard: Yard):
    lane = await yard.lane(ordered=True)
    at = await yard.now() + 30 * SECOND
    (first,) = await yard.submit(lane, order_key="k", due_at=at)
    (second,) = await yard.submit(lane, order_key="k")
    walker = await yard.walker()
    assert await yard.claim(walker) == []
    yard.pass_time(31)
    assert await run(yard, walker) == [first, second]


async def test_a_delayed_row_in_line_waits_for_its_time_and_its_turn(yard: Yard):
    lane = await yard.lane(ordered=True)
    (first,) = await yard.submit(lane, order_key="k")
    at = await yard.now() + 30 * SECOND
    (second,) = await yard.submit(lane, order_key="k", due_at=at)
    walker = await yard.walker()
    assert await run(yard, walker) == [first]
    row = await yard.row(second)
    assert (row.phase, row.due_at) == (Phase.LATER, at)
    yard.pass_time(31)
    assert await run(yard, walker) == [second]


async def test_cancelled_rows_leave_their_line_wherever_they_stand(yard: Yard):
    _, ids, walker = await line(yard, 4)
    await yard.do(lambda tx: claims.cancel(tx, [ids[1]], "enough"))
    assert (await yard.row(ids[2])).phase is Phase.ASLEEP
    await yard.do(lambda tx: claims.cancel(tx, [ids[0]], "enough"))
    assert await run(yard, walker) == ids[2:]
    assert await yard.do(lambda tx: tx.all("SELECT 1 FROM order_line")) == []


async def test_a_whole_line_cancelled_at_once_leaves_the_next_in_front(yard: Yard):
    lane, ids, walker = await line(yard, 3)
    await yard.do(lambda tx: claims.cancel(tx, ids, "enough"))
    (fresh,) = await yard.submit(lane, order_key="k")
    assert (await yard.row(fresh)).sequence == 4
    assert await run(yard, walker) == [fresh]


async def test_several_lines_settle_in_one_batch(yard: Yard):
    lane = await yard.lane(ordered=True)
    first = [new_work(lane, order_key=key) for key in "abc"]
    second = [new_work(lane, order_key=key) for key in "abc"]
    await yard.do(lambda tx: claims.submit(tx, [*first, *second]))
    walker = await yard.walker()
    heads = await yard.claim(walker)
    assert {one.work.id for one in heads} == {row.id for row in first}
    await yard.settle(*[answer(one, OK) for one in heads])
    nexts = await yard.claim(walker)
    assert {one.work.id for one in nexts} == {row.id for row in second}


async def test_a_lost_head_is_tried_again_before_anybody_behind_it(yard: Yard):
    _, ids, walker = await line(yard)
    await yard.claim(walker)
    await yard.close(walker.node, claims.CERTAIN)
    await yard.sweep()
    assert await run(yard, await yard.walker()) == ids


async def test_the_order_of_a_line_is_the_order_of_commits(
    yard: Yard, make_backend: MakeBackend
):
    lane = await yard.lane(ordered=True)
    others = [Yard(await make_backend()) for _ in range(4)]
    committed: list[WorkId] = []

    async def send(other: Yard) -> None:
        for _ in range(10):
            (id_,) = await other.submit(lane, order_key="k")
            committed.append(id_)

    async with asyncio.TaskGroup() as tasks:
        for other in others:
            tasks.create_task(send(other))
    rows = sorted(await yard.do(read_all), key=lambda row: row.sequence or 0)
    assert [row.sequence for row in rows] == list(range(1, 41))
    assert [row.phase for row in rows[1:]] == [Phase.ASLEEP] * 39
    assert await run(yard, await yard.walker()) == [row.id for row in rows]
    assert set(committed) == {row.id for row in rows}


@pytest.mark.parametrize("dialect", ["postgresql"])
async def test_a_later_sequence_never_commits_before_an_earlier_one(
    yard: Yard, make_backend: MakeBackend
):
    """Who has taken a sequence holds the queue until its commit."""
    lane = await yard.lane(ordered=True)
    await yard.submit(lane, order_key="k")
    other = Yard(await make_backend())
    taken, go = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    def slow(tx: Tx) -> None:
        claims.submit(tx, [new_work(lane, order_key="k")])
        taken.set()
        await_only(go.wait())

    async def first() -> None:
        await yard.do(slow)
        done.append("first")

    async def second() -> None:
        await other.submit(lane, order_key="k")
        done.append("second")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(first())
        await taken.wait()
        waiting = tasks.create_task(second())
        free = await other.submit(lane, order_key="another key")
        assert not waiting.done()
        go.set()
    assert done == ["first", "second"]
    assert (await yard.row(free[0])).phase is Phase.DUE


@pytest.mark.parametrize("dialect", ["postgresql"])
async def test_a_row_that_joins_while_the_head_is_settled_is_not_forgotten(
    yard: Yard, make_backend: MakeBackend
):
    """The joining row saw a head before it; the settle cannot see the row yet."""
    lane, _, walker = await line(yard, 1)
    (head,) = await yard.claim(walker)
    other, looker = Yard(await make_backend()), Yard(await make_backend())
    row = new_work(lane, order_key="k")
    joined, go = asyncio.Event(), asyncio.Event()

    def join(tx: Tx) -> None:
        claims.submit(tx, [row])
        joined.set()
        await_only(go.wait())

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(other.do(join))
        await joined.wait()
        settling = tasks.create_task(yard.settle(answer(head)))
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        while not settling.done():
            if await looker.backend.read(lambda tx: tx.scalar(waits)):
                break
        go.set()
    assert (await yard.row(row.id)).phase is Phase.DUE


async def test_many_settle_and_submit_one_line_at_once_without_a_gap(
    yard: Yard, make_backend: MakeBackend
):
    lane = await yard.lane(ordered=True)
    others = [Yard(await make_backend()) for _ in range(3)]
    order: list[WorkId] = []
    sending = 2

    async def send(other: Yard) -> None:
        nonlocal sending
        for at in range(15):
            await other.submit(lane, order_key="ab"[at % 2])
        sending -= 1

    async def work(other: Yard) -> None:
        walker = await other.walker()
        while sending or len(order) < 30:
            for one in await other.claim(walker, 5):
                order.append(one.work.id)
                await other.settle(answer(one))

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(send(others[0]))
        tasks.create_task(send(others[1]))
        tasks.create_task(work(others[2]))
        tasks.create_task(work(yard))
    rows = await yard.do(read_all)
    assert {row.state for row in rows} == {State.SUCCEEDED}
    for key in "ab":
        mine = [row for row in rows if row.order_key == key]
        ended = sorted(mine, key=lambda row: order.index(row.id))
        assert [row.sequence for row in ended] == sorted(
            row.sequence or 0 for row in mine
        )


async def test_a_missing_row_is_left_out_of_a_decision(yard: Yard):
    decided = await yard.do(
        lambda tx: decide_rows(tx, [WorkId("wrk_unknown")], lambda _: None)
    )
    assert decided == {}


async def test_a_head_that_waits_for_an_event_is_not_woken_by_who_leaves_the_line(
    yard: Yard,
):
    _, ids, walker = await line(yard)
    (head,) = await yard.claim(walker)
    await yard.settle(answer(head, Waiting(wakes=0)))
    await yard.do(lambda tx: claims.cancel(tx, [ids[1]], "operator"))
    row = await yard.row(ids[0])
    assert (row.phase, row.wakes) == (Phase.ASLEEP, 0)
    await yard.do(lambda tx: claims.wake(tx, [ids[0]]))
    assert await run(yard, walker) == [ids[0], ids[2]]


async def test_a_row_deleted_by_hand_does_not_stop_those_behind_it(yard: Yard):
    _, ids, walker = await line(yard, 4)
    (head,) = await yard.claim(walker)
    for gone in ids[1:3]:
        await yard.do(
            lambda tx, gone=gone: tx.run(
                "DELETE FROM work WHERE id = :id", {"id": gone}
            )
        )
    await yard.settle(answer(head))
    assert await run(yard, walker) == [ids[3]]
    assert await yard.do(lambda tx: tx.scalar("SELECT count(*) FROM order_line")) == 0


@pytest.mark.parametrize("passed", [True, False])
async def test_who_joins_a_line_by_an_old_snapshot_never_waits_behind_what_has_gone(
    postgres_url: str, postgres_backend: Backend, *, passed: bool
):
    yard = Yard(postgres_backend)
    lane, ids, walker = await line(yard, 1)
    (head,) = await yard.claim(walker)
    late = new_work(lane, order_key="k")
    async with held_transaction(postgres_url) as mine:
        await mine.run(
            lambda tx: tx.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        )
        await mine.run(lambda tx: tx.scalar("SELECT count(*) FROM work"))
        if passed:
            await yard.settle(answer(head))
            with pytest.raises(DBAPIError, match="could not serialize"):
                await mine.run(lambda tx: claims.submit(tx, [late]))
        else:  # control: who is in front still is
            await mine.run(lambda tx: claims.submit(tx, [late]))
            await mine.commit()
            await yard.settle(answer(head))
            assert await run(yard, walker) == [late.id]
    assert len(ids) == 1
