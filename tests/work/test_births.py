"""Work that a node holds from its acceptance on: offered, taken, withdrawn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tenure.clock import SystemClock
from tenure.ids import LaneId, new_work_id
from tenure.kernel.states import State
from tenure.store.claims import Claimed, NewWork, submit
from tenure.store.tx import Tx
from tenure.work.births import Offered
from tenure.work.kinds import Guard, Prepared, Ran
from tenure.work.loop import Incarnation
from tenure.work.pauses import Point
from tests.work.rig import (
    PROBE,
    SUCCESS,
    TENANT,
    Held,
    Member,
    Probe,
    Rig,
    until,
)

FAR = 4_000_000_000_000_000
"""An instant (µs) beyond every test."""


async def at_ease(rig: Rig, **options: Any) -> Member:
    member = await rig.member(**options)
    await until(lambda: member.loop.at_ease, "a claim that found nothing")
    return member


def new(lane: LaneId, *subjects: str) -> list[NewWork]:
    return [
        NewWork(id=new_work_id(), lane=lane, kind=PROBE, tenant=TENANT, subject=subject)
        for subject in subjects
    ]


async def commit(
    rig: Rig, lane: LaneId, offered: Offered, *subjects: str
) -> tuple[list[Claimed], float, int]:
    rows = new(lane, *subjects)

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
    assert member.loop.births.since is None


async def test_nothing_is_offered_while_a_backlog_is_known(rig: Rig):
    member = await at_ease(rig, slots=8)
    gates = [member.kind.hold(f"s{n}") for n in range(16)]
    for first in range(0, 16, 4):
        await rig.submit(await rig.lane(), *(f"s{first + n}" for n in range(4)))
    await until(lambda: len(member.kind.begun) == 8)
    await until(lambda: not member.loop.at_ease, "a claim that was full")
    for gate in gates:
        gate.opened.set()
    await until(lambda: len(member.kind.begun) == 16)
    await until(lambda: member.loop.at_ease, "the backlog is gone")


def noted(member: Member) -> list[Claimed]:
    """Note what is received while no offer is open."""
    loop, found = member.loop, list[Claimed]()
    receive = loop.receive

    def look(
        incarnation: Incarnation, born: Sequence[Claimed], *rest: Any, **more: Any
    ) -> None:
        if loop.claiming_since is None:
            found.extend(born)
        receive(incarnation, born, *rest, **more)

    loop.receive = look
    return found


async def test_an_offer_stays_open_until_what_was_born_is_in_the_hand(rig: Rig):
    # A beat that looked in between would give back what is about to run.
    member, lane = await at_ease(rig), await rig.lane()
    in_no_hand = noted(member)
    offered = member.loop.births.offer(1)
    assert offered is not None
    born, at, now_us = await commit(rig, lane, offered, "a")
    take(member, offered, born, at, now_us)
    await rig.until_state(born[0].work.id, State.SUCCEEDED)
    assert in_no_hand == []
    # A poll may be claiming at this very moment; then that ends.
    await until(
        lambda: (member.loop.claiming_since, member.loop.bulkhead.used) == (None, 0)
    )


async def test_a_suspect_waits_for_what_is_being_born(rig: Rig):
    kind = Probe()
    suspect, beside = kind.hold("suspect"), kind.hold("beside")
    member = await at_ease(rig, kind=kind)
    offered = member.loop.births.offer(1)
    assert offered is not None
    (work,) = await rig.submit(await rig.lane(), "suspect", due_at=FAR)
    await rig.backend.write(
        lambda tx: tx.run(
            "UPDATE work SET losses = 2, phase = 'due' WHERE id = :id", {"id": work}
        )
    )
    rig.wake()
    await until(lambda: (work, 1) in member.loop.hand, "the suspect's claim")
    born, at, now_us = await commit(rig, await rig.lane(), offered, "beside")
    take(member, offered, born, at, now_us)
    await beside.wait_entered()
    beside.opened.set()
    await suspect.wait_entered()
    suspect.opened.set()
    await rig.until_state(work, State.SUCCEEDED)
    await rig.until_state(born[0].work.id, State.SUCCEEDED)
    assert kind.most_at_once == 1


@pytest.mark.parametrize("lanes", [1, 4])
async def test_a_claim_under_way_gives_back_what_births_left_no_room_for(
    rig: Rig, lanes: int
):
    kind, pauses, gate = Probe(), Held(), asyncio.Event()

    async def play(prepared: Prepared, guard: Guard) -> Ran:
        await gate.wait()
        return SUCCESS

    kind.default = play
    member = await at_ease(rig, kind=kind, pauses=pauses, slots=16)
    claimed = pauses.hold(Point.CLAIMED)
    busy = [await rig.lane() for _ in range(lanes)]
    rows = [row for lane in busy for row in new(lane, *"wxyz")]
    await rig.backend.write(lambda tx: submit(tx, rows))
    rig.wake()
    await claimed.wait_entered()
    mine = busy[0] if lanes == 1 else await rig.lane()
    offered = member.loop.births.offer(4)
    assert offered is not None
    born, at, now_us = await commit(rig, mine, offered, *"abcd")
    take(member, offered, born, at, now_us)
    claimed.opened.set()
    del pauses.gates[Point.CLAIMED]
    settled = 4 if lanes == 1 else 16
    await until(lambda: kind.running.total() == settled)
    await until(lambda: len(member.loop.hand) == settled, "what was given back")
    gate.set()
    await until(lambda: len(kind.begun) == 4 * lanes + 4)
    assert (kind.most[mine], kind.most_at_once) == (4, settled)


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
