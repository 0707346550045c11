from __future__ import annotations

import asyncio

from tenure.ids import WorkId
from tenure.kernel.commands import Succeeded
from tenure.store import nodes
from tenure.telemetry.events import Event
from tenure.work.drain import Draining
from tenure.work.kinds import Guard, Prepared, Ran
from tenure.work.pauses import Point
from tests.work.rig import (
    QUICK,
    SUCCESS,
    Held,
    Member,
    Probe,
    Rig,
    failure,
    until,
    until_read,
)

FAR = 4_000_000_000_000_000
"""An instant (µs) beyond every test."""


async def test_submitted_work_runs_once_and_is_settled(rig: Rig) -> None:
    member = await rig.member()
    (work,) = await rig.submit(await rig.lane(), "a")
    row = await rig.until_state(work, "succeeded")
    assert (row.claim, row.claimed_by) == (1, None)
    assert member.kind.begun == [("a", 1)]
    attempt = await rig.attempt(work, 1)
    assert attempt is not None
    assert (attempt.outcome, attempt.node) == ("succeeded", member.id)
    assert attempt.begun_at is not None
    assert attempt.begun_at <= attempt.ended_at
    assert member.loop.hand == {}


async def test_a_failed_attempt_is_tried_again_when_its_retry_is_due(rig: Rig) -> None:
    kind = Probe()
    kind.answer("a", failure(retry_at=0), SUCCESS)
    await rig.member(kind)
    (work,) = await rig.submit(await rig.lane(), "a")
    row = await rig.until_state(work, "succeeded")
    assert (row.claim, row.failures, row.tries) == (2, 1, 1)


async def test_a_failure_without_retry_is_dead(rig: Rig) -> None:
    kind = Probe()
    kind.answer("a", failure(reason="gone"))
    await rig.member(kind)
    (work,) = await rig.submit(await rig.lane(), "a")
    row = await rig.until_state(work, "dead")
    assert row.reason == "gone"
    assert kind.requests("a") == 1


async def test_at_most_slots_attempts_run_at_once_and_all_run(rig: Rig) -> None:
    kind = Probe()
    gate = asyncio.Event()

    async def play(prepared: Prepared, guard: Guard) -> Ran:
        await gate.wait()
        return SUCCESS

    kind.default = play
    member = await rig.member(kind, slots=6)
    for _ in range(4):
        await rig.submit(await rig.lane(), *"abcdef")
    await until(lambda: kind.running.total() == 6)
    gate.set()
    await until(lambda: len(kind.begun) == 24)
    await until(lambda: not member.loop.hand)
    assert kind.most_at_once == 6
    assert await rig.counts() == {"succeeded": 24}


async def test_a_lane_holds_at_most_its_share_of_the_slots(rig: Rig) -> None:
    kind = Probe()
    gate = asyncio.Event()

    async def play(prepared: Prepared, guard: Guard) -> Ran:
        await gate.wait()
        return SUCCESS

    kind.default = play
    await rig.member(kind, slots=16)
    busy, other = await rig.lane(), await rig.lane()
    await rig.submit(busy, *(f"b{n}" for n in range(12)))
    await until(lambda: kind.running[busy] == 4)
    await rig.submit(other, "o")
    await until(lambda: kind.running[other] == 1)
    gate.set()
    await until(lambda: len(kind.begun) == 13)
    assert kind.most[busy] == 4


async def test_rows_share_one_read_when_they_are_loaded(rig: Rig) -> None:
    kind = Probe()
    member = await rig.member(kind, claims=False)
    for _ in range(3):
        await rig.submit(await rig.lane(), "x", "y")
    rig.run(member)
    await until(lambda: len(kind.begun) == 6)
    assert kind.loads == [6]


async def test_code_that_raises_is_a_failure_retried_by_the_default_schedule(
    rig: Rig,
) -> None:
    kind = Probe()

    async def play(prepared: Prepared, guard: Guard) -> Ran:
        raise ZeroDivisionError

    kind.plays["a"] = play
    member = await rig.member(kind)
    (work,) = await rig.submit(await rig.lane(), "a")
    row = await rig.until_row(work, lambda row: row.failures == 1)
    assert row.state == "ready"
    assert row.reason == "failed inside: ZeroDivisionError"
    assert member.count(Event.ATTEMPT_FAILED_INSIDE) == 1


async def test_a_result_that_says_released_after_it_began_is_a_failure(
    rig: Rig,
) -> None:
    kind = Probe()
    kind.answer("a", Ran(result=Succeeded(), released=True))
    member = await rig.member(kind)
    (work,) = await rig.submit(await rig.lane(), "a")
    row = await rig.until_row(work, lambda row: row.failures == 1)
    assert row.releases == 0
    assert member.count(Event.ATTEMPT_FAILED_INSIDE) == 1


async def test_work_of_a_lane_that_needs_other_code_is_left_alone(rig: Rig) -> None:
    kind = Probe()
    kind.needs = "something else"
    await rig.member(kind)
    strange = await rig.lane()
    await rig.backend.write(
        lambda tx: tx.run(
            "UPDATE lane SET needs = 'other' WHERE id = :lane", {"lane": strange}
        )
    )
    (waiting,) = await rig.submit(strange, "strange")
    (done,) = await rig.submit(await rig.lane(), "known")
    await rig.until_state(done, "succeeded")
    row = await rig.row(waiting)
    assert (row.state, row.claim) == ("ready", 0)


async def test_a_cancellation_that_leaks_out_of_a_kind_is_a_failure_not_a_release(
    rig: Rig,
) -> None:
    kind = Probe()

    async def play(prepared: Prepared, guard: Guard) -> Ran:
        raise asyncio.CancelledError  # of something shared that it waited for

    kind.plays["m"] = play
    member = await rig.member(kind, durations=QUICK)
    (work,) = await rig.submit(await rig.lane(), "m")
    row = await rig.until_row(work, lambda row: row.failures + row.releases > 0)
    assert (row.failures, row.releases) == (1, 0)
    assert row.reason == "failed inside: CancelledError"
    assert member.count(Event.ATTEMPT_FAILED_INSIDE) == 1


async def test_a_drain_gives_back_what_a_claim_under_way_still_brings(rig: Rig) -> None:
    pauses = Held()
    gate = pauses.hold(Point.CLAIMED)
    member = await rig.member(pauses=pauses, durations=QUICK, claims=False)
    (work,) = await rig.submit(await rig.lane(), "m")
    rig.run(member)
    await gate.wait_entered()
    stopping = asyncio.create_task(member.stop())
    await until(lambda: member.count(Event.DRAINING))
    await until_read(
        rig.backend,
        lambda tx: tx.scalar("SELECT state FROM node"),
        lambda state: state == "draining",
    )
    assert member.node.health().state == "draining"
    gate.opened.set()
    await stopping
    row = await rig.row(work)
    assert (row.state, row.releases, row.losses) == ("ready", 1, 0)
    assert member.kind.begun == []


async def test_a_loop_that_drains_still_shows_life_and_ends_what_overran(
    rig: Rig,
) -> None:
    kind = Probe()
    kind.hold("m")
    member = await rig.member(kind, durations=QUICK)
    (work,) = await rig.submit(await rig.lane(1.0), "m")
    await until(lambda: kind.begun)
    member.loop.close()
    assert member.running is not None
    await member.running
    ticks = member.loop.tick
    row = await rig.until_row(work, lambda row: row.failures == 1)
    assert row.reason == "deadline passed"
    assert member.loop.tick > ticks


async def test_a_node_that_somebody_marked_as_draining_still_begins_what_it_holds(
    rig: Rig,
) -> None:
    pauses = Held()
    gate = pauses.hold(Point.LOADED)
    member = await rig.member(pauses=pauses)
    lane = await rig.lane()
    (work,) = await rig.submit(lane, "m")
    await gate.wait_entered()
    await rig.backend.write(lambda tx: nodes.drain_node(tx, member.id))
    (later,) = await rig.submit(lane, "later")
    ticks = member.loop.tick
    rig.wake()
    await until(lambda: member.loop.tick > ticks + 1)
    gate.opened.set()
    row = await rig.until_state(work, "succeeded")
    assert (row.claim, row.releases) == (1, 0)
    assert (await rig.row(later)).claim == 0


async def suspected(rig: Rig, kind: Probe, member: Member) -> WorkId:
    """Submit a row that killed its holders twice, and wait until it runs."""
    gate = kind.hold("suspect")
    (work,) = await rig.submit(await rig.lane(), "suspect", due_at=FAR)
    await rig.backend.write(
        lambda tx: tx.run(
            "UPDATE work SET losses = 2, phase = 'due' WHERE id = :id", {"id": work}
        )
    )
    rig.wake()
    await gate.wait_entered()
    return work


async def test_a_suspect_whose_claim_was_lost_keeps_the_node_no_longer_than_any(
    rig: Rig,
) -> None:
    kind = Probe()
    member = await rig.member(kind, durations=QUICK)
    work = await suspected(rig, kind, member)
    await rig.lose_alone(work)
    (other,) = await rig.submit(await rig.lane(), "other")
    await rig.until_state(other, "succeeded")
    assert (work, 1) in member.loop.hand


async def test_a_suspect_that_waited_for_others_has_its_whole_deadline_in_the_store(
    rig: Rig,
) -> None:
    kind = Probe()
    first = kind.hold("first")
    member = await rig.member(kind)
    await rig.submit(await rig.lane(), "first")
    await first.wait_entered()
    suspect = kind.hold("suspect")
    (work,) = await rig.submit(await rig.lane(), "suspect", due_at=FAR)
    await rig.backend.write(
        lambda tx: tx.run(
            "UPDATE work SET losses = 2, phase = 'due' WHERE id = :id", {"id": work}
        )
    )
    rig.wake()
    claimed = await rig.until_state(work, "claimed")
    await asyncio.sleep(0.2)  # nothing to wait for: time that passes is the fault
    first.opened.set()
    await suspect.wait_entered()
    held, row = member.loop.hand[work, 1], await rig.row(work)
    assert claimed.deadline_at is not None
    assert row.deadline_at is not None
    assert row.deadline_at > claimed.deadline_at + 100_000
    assert abs(row.deadline_at - (held.claimed.work.deadline_at or 0)) < 100_000
    suspect.opened.set()
    await rig.until_state(work, "succeeded")


async def test_a_drain_whose_news_nobody_takes_drains_all_the_same(rig: Rig) -> None:
    kind = Probe()
    gate = kind.hold("m")
    member = await rig.member(kind)
    (work,) = await rig.submit(await rig.lane(), "m")
    await gate.wait_entered()

    def told(_: Draining) -> None:
        gate.opened.set()
        raise BrokenPipeError

    member.drained = await member.drain.run(told=told)
    assert (await rig.row(work)).state == "succeeded"
    assert member.drained.finished == 1
