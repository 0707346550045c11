"""Work that a node holds from its acceptance on: offered, taken, withdrawn."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tenure.clock import SystemClock
from tenure.ids import LaneId, new_work_id
from tenure.kernel.states import State
from tenure.store.claims import Claimed, NewWork, submit
from tenure.store.tx import Tx
from tenure.work.births import Offered
from tenure.work.kinds import Prepared
from tests.work.rig import PROBE, TENANT, Member, Rig, until


async def at_ease(rig: Rig, **options: int) -> Member:
    member = await rig.member(**options)  # pyright: ignore[reportArgumentType]
    await until(lambda: member.loop.at_ease, "a claim that found nothing")
    return member


async def commit(
    rig: Rig, lane: LaneId, offered: Offered, *subjects: str
) -> tuple[list[Claimed], float, int]:
    rows = [
        NewWork(id=new_work_id(), lane=lane, kind=PROBE, tenant=TENANT, subject=subject)
        for subject in subjects
    ]

    def insert(tx: Tx) -> tuple[list[Claimed], float, int]:
        at, now_us = SystemClock().monotonic(), tx.now
        return submit(tx, rows, birth=offered.birth), at, now_us

    return await rig.backend.write(insert)


def take(
    member: Member, offered: Offered, born: Sequence[Claimed], at: float, now_us: int
) -> None:
    jobs = [Prepared(claimed=each, job=each.work.subject) for each in born]
    member.loop.births.take(offered, born, jobs, at=at, now_us=now_us)


async def test_what_is_born_is_done_from_memory_without_a_claim_or_a_load(rig: Rig):
    member, lane = await at_ease(rig), await rig.lane()
    offered = member.loop.births.offer(2)
    assert offered is not None
    born, at, now_us = await commit(rig, lane, offered, "a", "b")
    take(member, offered, born, at, now_us)
    for each in born:
        row = await rig.until_state(each.work.id, State.SUCCEEDED)
        assert (row.claim, row.tries) == (1, 0)
        attempt = await rig.attempt(row.id, 1)
        assert attempt is not None
        assert attempt.node == member.id
    assert sorted(member.kind.begun) == [("a", 1), ("b", 1)]
    assert member.kind.loads == []
    assert member.loop.bulkhead.used == 0


async def test_what_memory_does_not_have_is_loaded_first(rig: Rig):
    member, lane = await at_ease(rig), await rig.lane()
    offered = member.loop.births.offer(1)
    assert offered is not None
    born, at, now_us = await commit(rig, lane, offered, "a")
    member.loop.births.take(offered, born, [None], at=at, now_us=now_us)
    await rig.until_state(born[0].work.id, State.SUCCEEDED)
    assert (member.kind.loads, member.kind.begun) == ([1], [("a", 1)])


async def test_births_take_half_of_the_slots_and_give_them_back(rig: Rig):
    member = await at_ease(rig, slots=8)
    first = member.loop.births.offer(100)
    assert first is not None
    assert (first.birth.count, member.loop.bulkhead.used) == (4, 4)
    assert member.loop.births.offer(1) is None
    assert member.loop.claiming_since is not None
    member.loop.births.withdraw(first)
    assert member.loop.bulkhead.used == 0
    assert member.loop.claiming_since is None


async def test_nothing_is_offered_while_a_backlog_is_known(rig: Rig):
    member, lane = await rig.member(slots=8), await rig.lane()
    gates = [member.kind.hold(f"s{n}") for n in range(16)]
    await rig.submit(lane, *(f"s{n}" for n in range(16)))
    await until(lambda: len(member.kind.begun) >= 4)
    offered = member.loop.births.offer(1)
    assert offered is None or member.loop.bulkhead.used <= 4 + offered.birth.count
    for gate in gates:
        gate.opened.set()
    await until(lambda: len(member.kind.begun) == 16)
    await until(lambda: member.loop.at_ease, "the backlog is gone")


@pytest.mark.parametrize("why", ["closed", "off", "fenced"])
async def test_a_node_that_may_not_start_anything_offers_nothing(rig: Rig, why: str):
    member = await at_ease(rig)
    match why:
        case "closed":
            member.loop.close()
        case "off":
            member.loop.off = "off by deployment policy"
            rig.wake()
            await until(lambda: not member.loop.at_ease)
        case _:
            assert member.loop.incarnation is not None
            member.loop.incarnation.fence.shut("a test")
    assert member.loop.births.offer(1) is None


async def test_what_is_born_while_the_node_stops_is_given_back_unbegun(rig: Rig):
    member, lane = await at_ease(rig), await rig.lane()
    offered = member.loop.births.offer(1)
    assert offered is not None
    born, at, now_us = await commit(rig, lane, offered, "a")
    member.loop.close()
    assert not member.loop.idle, "a drain waits for it"
    take(member, offered, born, at, now_us)
    row = await rig.until_state(born[0].work.id, State.READY)
    assert (row.releases, member.kind.begun) == (1, [])
    other = await rig.member()
    await rig.until_state(row.id, State.SUCCEEDED)
    assert other.kind.begun == [("a", 2)]
