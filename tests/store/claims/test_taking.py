from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest
from sqlalchemy.util import await_only

from tenure.ids import LaneId, WorkId
from tenure.kernel.states import Phase, State
from tenure.limits import PROMOTE_ROWS
from tenure.store import claims, lanes
from tenure.store.claims import Claimed, Walker, promote
from tenure.store.claims.taking import take
from tenure.store.claims.views import lock_lanes, read_lanes
from tenure.store.tx import Tx
from tests.databases import MakeBackend
from tests.store.yard import DEAD, OK, SECOND, Yard, answer, retry


def ids(claimed: list[Claimed]) -> list[WorkId]:
    return [one.work.id for one in claimed]


async def change(yard: Yard, lane: LaneId, **changes: object) -> None:
    await yard.do(lambda tx: lanes.change_lane(tx, lane, **changes))


# --- one claim -----------------------------------------------------------------------------


async def test_a_claim_gives_the_node_a_number_a_deadline_and_its_lane(yard: Yard):
    lane = await yard.lane(deadline_us=15 * SECOND)
    await change(yard, lane, reason="second version")
    (id_,) = await yard.submit(lane)
    walker = await yard.walker()
    before = await yard.now()
    (one,) = await yard.claim(walker)
    work = one.work
    assert (work.id, work.state, work.claim) == (id_, State.CLAIMED, 1)
    assert (work.claimed_by, work.phase) == (walker.node, None)
    assert work.claimed_at is not None
    assert before <= work.claimed_at <= await yard.now()
    assert work.deadline_at == work.claimed_at + 15 * SECOND
    assert (one.lane_subject, one.lane_version) == ("ep_1", 2)
    assert (one.number, one.deadline_us) == (1, 15 * SECOND)
    assert one.start_at == work.claimed_at
    assert await yard.row(id_) == work, "what it returns is what is stored"


async def test_a_claimed_row_is_nobody_elses(yard: Yard):
    await yard.submit(await yard.lane(), 3)
    first, second = await yard.walker(), await yard.walker()
    assert len(await yard.claim(first)) == 3
    assert await yard.claim(second) == []


async def test_every_claim_of_a_row_raises_its_number(yard: Yard):
    (id_,) = await yard.submit(await yard.lane())
    walker = await yard.walker()
    for number in range(1, 4):
        (one,) = await yard.claim(walker)
        assert (one.work.id, one.work.claim) == (id_, number)
        await yard.settle(answer(one, retry(await yard.now())))
    assert [one.claim for one in await yard.attempts(id_)] == [1, 2, 3]


async def test_a_claim_takes_no_more_than_it_wants(yard: Yard):
    await yard.submit(await yard.lane(), 5)
    walker = await yard.walker()
    assert len(await yard.claim(walker, 2)) == 2
    assert await yard.claim(walker, 0) == []
    assert len(await yard.claim(walker, 9)) == 3


async def test_within_a_lane_priority_comes_first_then_the_longest_due(yard: Yard):
    lane = await yard.lane()
    now = await yard.now()
    (late,) = await yard.submit(lane, due_at=now - 1 * SECOND)
    (early,) = await yard.submit(lane, due_at=now - 9 * SECOND)
    (urgent,) = await yard.submit(lane, priority=0)
    (whenever,) = await yard.submit(lane, priority=3, due_at=now - 99 * SECOND)
    walker = await yard.walker()
    assert ids(await yard.claim(walker, 1)) == [urgent]
    assert ids(await yard.claim(walker)) == [early, late, whenever]


async def test_a_claim_is_spread_over_its_lanes_before_one_gives_more(yard: Yard):
    made = [await yard.lane() for _ in range(4)]
    for lane, count in zip(made, (50, 50, 2, 1), strict=True):
        await yard.submit(lane, count)
    found = Counter(one.work.lane for one in await yard.claim(await yard.walker(), 20))
    assert found[made[2]] == 2
    assert found[made[3]] == 1
    assert found[made[0]] >= 5
    assert found[made[1]] >= 5
    assert sum(found.values()) == 20


@pytest.mark.parametrize("state", ["paused", "blocked", "deleted"])
async def test_a_lane_that_is_not_open_starts_nothing(yard: Yard, state: str):
    lane = await yard.lane(state=state)
    await yard.submit(lane)
    walker = await yard.walker()
    assert await yard.claim(walker) == []
    await change(yard, lane, state="open")
    assert len(await yard.claim(walker)) == 1


async def test_a_limited_lane_closed_since_it_was_read_starts_nothing(yard: Yard):
    lane = await yard.lane(concurrency=3)
    await yard.submit(lane)
    node = await yard.node()
    stale = (await yard.do(lambda tx: read_lanes(tx, [lane])))[lane]
    await change(yard, lane, state="paused")
    taken = await yard.do(lambda tx: take(tx, node, [stale], {lane: 9}, 9))
    assert taken.claimed == []
    await change(yard, lane, state="open")
    taken = await yard.do(lambda tx: take(tx, node, [stale], {lane: 9}, 9))
    assert len(taken.claimed) == 1


async def test_an_open_breaker_starts_nothing_until_its_instant(yard: Yard):
    lane = await yard.lane(breaker_until=await yard.now() + 30 * SECOND)
    await yard.submit(lane)
    walker = await yard.walker()
    assert await yard.claim(walker) == []
    yard.pass_time(31)
    assert len(await yard.claim(walker)) == 1


async def test_a_node_takes_only_what_it_can_serve(yard: Yard):
    lane = await yard.lane(needs="flow:7")
    (id_,) = await yard.submit(lane)
    walker = await yard.walker()
    assert await yard.claim(walker) == []
    assert (await yard.row(id_)).phase is Phase.DUE
    able = Walker(node=await yard.node(), serves=frozenset({"test", "flow:7"}))
    assert ids(await yard.claim(able)) == [id_]


async def test_a_nodes_busy_and_slow_lanes_start_no_more_than_allowed(yard: Yard):
    busy, full, slow = [await yard.lane() for _ in range(3)]
    for lane in (busy, full, slow):
        await yard.submit(lane, 10)
    claimed = await yard.claim(
        await yard.walker(), 100, busy={busy: 2, full: 4}, lane_max=4, skip=[slow]
    )
    assert [one.work.lane for one in claimed] == [busy, busy]


# --- later rows ----------------------------------------------------------------------------


async def test_later_rows_are_claimed_when_their_time_has_come(yard: Yard):
    lane = await yard.lane()
    at = await yard.now() + 60 * SECOND
    (id_,) = await yard.submit(lane, due_at=at)
    walker = await yard.walker()
    result = await yard.claim_result(walker)
    assert (result.claimed, result.next_due_at) == ([], at)
    yard.pass_time(61)
    result = await yard.claim_result(walker)
    assert [one.work.id for one in result.claimed] == [id_]
    assert result.next_due_at is None


async def test_rows_are_promoted_in_batches_and_the_claim_knows_of_more(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
):
    lane = await yard.lane()
    at = await yard.now() + 60 * SECOND
    await yard.submit(lane, PROMOTE_ROWS + 10, due_at=at)
    yard.pass_time(61)
    first = await yard.do(promote)
    assert first == at, "an instant in the past: go on at once"
    due = "SELECT count(*) FROM work WHERE phase = 'due'"
    assert await yard.do(lambda tx: tx.scalar(due)) == PROMOTE_ROWS
    assert await yard.do(promote) is None
    assert await yard.do(lambda tx: tx.scalar(due)) == PROMOTE_ROWS + 10


# --- limits --------------------------------------------------------------------------------


async def test_a_lanes_limit_counts_claims_of_all_nodes(yard: Yard):
    lane = await yard.lane(concurrency=3)
    await yard.submit(lane, 10)
    first, second = await yard.walker(), await yard.walker()
    two = await yard.claim(first, 2)
    assert len(await yard.claim(second)) == 1
    assert await yard.claim(first) == []
    await yard.settle(answer(two[0]))
    assert len(await yard.claim(second)) == 1


async def test_a_row_that_waits_for_its_cancel_still_counts(yard: Yard):
    lane = await yard.lane(concurrency=1)
    await yard.submit(lane, 2)
    walker = await yard.walker()
    (one,) = await yard.claim(walker)
    await yard.do(lambda tx: claims.cancel(tx, [one.work.id], "enough"))
    assert await yard.claim(walker) == []
    await yard.settle(answer(one, DEAD))
    assert len(await yard.claim(walker)) == 1


async def test_a_half_open_lane_lets_one_row_through_at_a_time(yard: Yard):
    lane = await yard.lane(half_open=True)
    await yard.submit(lane, 3)
    first, second = await yard.walker(), await yard.walker()
    (probe,) = await yard.claim(first)
    assert await yard.claim(second) == []
    await yard.settle(answer(probe, DEAD))
    assert len(await yard.claim(second)) == 1


async def test_rates_are_spaced_evenly_over_nodes(yard: Yard):
    lane = await yard.lane(rate_per_second=4)
    await yard.submit(lane, 40)
    walkers = [await yard.walker(), await yard.walker()]
    started: list[int] = []
    for turn in range(6):
        claimed = await yard.claim(walkers[turn % 2])
        now = await yard.now()
        assert all(one.start_at <= now + SECOND for one in claimed)
        started += [one.start_at for one in claimed]
        yard.pass_time(0.6)
    assert all(b - a >= SECOND // 4 for a, b in pairwise(started))
    assert 4 * 3 <= len(started) <= 4 * 4 + 2


async def test_a_rate_limited_rows_deadline_counts_from_its_start(yard: Yard):
    lane = await yard.lane(rate_per_second=2, deadline_us=10 * SECOND)
    await yard.submit(lane, 3)
    for one in await yard.claim(await yard.walker()):
        assert one.work.deadline_at is not None
        assert one.work.deadline_at >= one.start_at + 10 * SECOND


async def test_full_lanes_do_not_stand_before_one_with_room(yard: Yard):
    """One free slot locks two lanes; the third must have its turn all the same."""
    group = await yard.group()
    full = [await yard.lane(group, concurrency=1) for _ in range(10)]
    for lane in full:
        await yard.submit(lane, 5)
    walker = await yard.walker()
    assert len(await yard.claim(walker)) == 10
    free = await yard.lane(group, concurrency=1)
    (id_,) = await yard.submit(free)
    assert ids(await yard.claim(walker, 1)) == [id_]


async def test_limited_lanes_left_out_come_first_the_next_time(yard: Yard):
    group = await yard.group()
    made = [await yard.lane(group, concurrency=100) for _ in range(9)]
    for lane in made:
        await yard.submit(lane, 50)
    walker = await yard.walker()
    served: set[LaneId] = set()
    for _ in range(9):
        served.update(one.work.lane for one in await yard.claim(walker, 1))
    assert served == set(made)


# --- several at once -----------------------------------------------------------------------


async def test_no_row_is_ever_given_to_two_claimers(
    yard: Yard, make_backend: MakeBackend
):
    made = [await yard.lane() for _ in range(3)]
    for lane in made:
        await yard.submit(lane, 100)
    given: list[WorkId] = []

    async def work(other: Yard) -> None:
        walker = await other.walker()
        while claimed := await other.claim(walker, 7):
            given.extend(ids(claimed))

    others = [Yard(await make_backend()) for _ in range(4)]
    async with asyncio.TaskGroup() as tasks:
        for other in others:
            tasks.create_task(work(other))
    assert len(given) == len(set(given)) == 300


async def test_limits_are_exact_while_several_claim_and_settle(
    yard: Yard, make_backend: MakeBackend
):
    made = [await yard.lane(concurrency=3) for _ in range(4)]
    for lane in made:
        await yard.submit(lane, 60)
    others = [Yard(await make_backend()) for _ in range(5)]
    working = len(others) - 1
    seen: list[int] = []

    async def work(other: Yard) -> None:
        nonlocal working
        walker = await other.walker()
        empty = 0
        while empty < 30:
            claimed = await other.claim(walker, 5)
            empty = 0 if claimed else empty + 1
            await other.settle(*[answer(one, OK) for one in claimed])
            await asyncio.sleep(0)
        working -= 1

    async def check(other: Yard) -> None:
        live = "SELECT lane, count(*) FROM work WHERE state = 'claimed' GROUP BY lane"
        while working:
            rows = await other.backend.read(lambda tx: tx.all(live))
            seen.extend(row[1] for row in rows)

    async with asyncio.TaskGroup() as tasks:
        for other in others[:-1]:
            tasks.create_task(work(other))
        tasks.create_task(check(others[-1]))
    assert len(seen) > 20
    assert max(seen) <= 3
    left = "SELECT count(*) FROM work WHERE state <> 'succeeded'"
    assert await yard.do(lambda tx: tx.scalar(left)) == 0


ONE_STATEMENT = """
WITH l AS MATERIALIZED (
  SELECT id, concurrency FROM lane WHERE id = :lane FOR NO KEY UPDATE),
live AS MATERIALIZED (
  SELECT l.concurrency - (SELECT count(*) FROM work w
    WHERE w.state = 'claimed' AND w.lane = l.id) AS room FROM l),
pick AS MATERIALIZED (
  SELECT p.id FROM live CROSS JOIN LATERAL (
    SELECT w.id FROM work w WHERE w.lane = :lane AND w.phase = 'due'
    ORDER BY w.due_at LIMIT live.room FOR NO KEY UPDATE SKIP LOCKED) p)
UPDATE work w SET state = 'claimed', phase = NULL, claim = 1, claimed_by = :node,
  claimed_at = 1, deadline_at = 2 FROM pick WHERE w.id = pick.id RETURNING w.id
"""


@pytest.mark.parametrize("dialect", ["postgresql"])
@pytest.mark.parametrize("way", ["one statement", "a new statement"])
async def test_room_is_counted_in_a_newer_snapshot_than_the_lanes_lock(
    yard: Yard, make_backend: MakeBackend, way: str
):
    """B waits for the lane while A takes three of three, and A commits.

    Counted in the locking statement, B does not see A's rows and the lane runs six:
    that is the control. Counted in a statement after the lock, B finds no room.
    """
    lane = await yard.lane(concurrency=3)
    await yard.submit(lane, 10)
    a, b = Yard(await make_backend()), Yard(await make_backend())
    node_a, node_b = await a.node(), await b.node()
    taken, go = asyncio.Event(), asyncio.Event()

    def claim_a(tx: Tx) -> int:
        views = read_lanes(tx, [lane])
        count = len(take(tx, node_a, [views[lane]], {lane: 10}, 10).claimed)
        taken.set()
        await_only(go.wait())
        return count

    def claim_b(tx: Tx) -> int:
        tx.run("SET LOCAL lock_timeout = '10s'")
        if way == "one statement":
            return len(tx.all(ONE_STATEMENT, {"lane": lane, "node": node_b}))
        tx.all("SELECT 1 FROM lane WHERE id = :lane FOR NO KEY UPDATE", {"lane": lane})
        views = read_lanes(tx, [lane])
        return len(take(tx, node_b, [views[lane]], {lane: 10}, 10).claimed)

    async def until_b_waits() -> None:
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        async with asyncio.timeout(10):
            while not await yard.backend.read(lambda tx: tx.scalar(waits)):
                pass

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(a.do(claim_a))
        await taken.wait()
        second = tasks.create_task(b.do(claim_b))
        await until_b_waits()
        go.set()
    assert first.result() == 3
    assert second.result() == (3 if way == "one statement" else 0)


@pytest.mark.parametrize("dialect", ["postgresql"])
async def test_a_claim_passes_over_a_lane_that_another_claim_holds(
    yard: Yard, make_backend: MakeBackend
):
    group = await yard.group()
    held, free = [await yard.lane(group, concurrency=3) for _ in range(2)]
    await yard.submit(held, 5)
    await yard.submit(free, 5)
    other = Yard(await make_backend())
    locked, go = asyncio.Event(), asyncio.Event()

    def lock(tx: Tx) -> None:
        assert held in lock_lanes(tx, [held])
        locked.set()
        await_only(go.wait())

    walker = await other.walker()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(yard.do(lock))
        await locked.wait()
        async with asyncio.timeout(5):
            claimed = await other.claim(walker)
        go.set()
    assert {one.work.lane for one in claimed} == {free}
    assert len(await other.claim(walker)) == 3
