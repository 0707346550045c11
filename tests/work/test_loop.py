from __future__ import annotations

import asyncio

from tenure.kernel.commands import Succeeded
from tenure.telemetry.events import Event
from tenure.work.kinds import Guard, Prepared, Ran
from tests.work.rig import SUCCESS, Probe, Rig, failure, until


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
