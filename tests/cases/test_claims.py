"""Cases 1 to 3, 16 and 17: late answers and stale reads. Each is followed by its control, without the fault."""

from __future__ import annotations

import asyncio

import pytest

from tenure.ids import WorkId
from tenure.kernel.commands import Answer, Succeeded
from tenure.store.claims import Write, cancel, replay
from tenure.store.claims.sweeping import SweepRule, candidates, lose
from tenure.store.tx import Tx
from tenure.telemetry.events import Event
from tenure.work.kinds import Guard, Prepared, Ran
from tests.work.rig import SUCCESS, Gate, Member, Probe, Rig, failure, until

FAR = 4_000_000_000_000_000
"""An instant (µs) beyond every test: a retry that never comes due here."""


async def stalled(rig: Rig, after: Ran) -> tuple[Member, WorkId, Gate]:
    """A node that holds one claim and waits for its receiver's answer."""
    kind = Probe()
    gate = kind.hold("m", after)
    a = await rig.member(kind, slots=1)
    (work,) = await rig.submit(await rig.lane(), "m")
    await gate.wait_entered()
    a.loop.close()  # claims nothing more, so that who takes the row over is certain
    return a, work, gate


async def answered(member: Member, gate: Gate) -> None:
    """Let the receiver answer and wait until the result was written."""
    gate.opened.set()
    await until(lambda: not member.loop.hand)


async def taken_over(rig: Rig, a: Member, after: Ran) -> tuple[Member, Gate]:
    """Close A, and let B claim what A held and wait for its receiver's answer."""
    await rig.bury(a)
    kind = Probe()
    gate = kind.hold("m", after)
    b = await rig.member(kind)
    await gate.wait_entered()
    return b, gate


@pytest.mark.parametrize("after", [failure(FAR), failure(), Ran(result=Succeeded())])
async def test_case_01_a_late_result_does_not_touch_the_next_claim(
    rig: Rig, after: Ran
) -> None:
    a, work, gate_a = await stalled(rig, after)
    b, gate_b = await taken_over(rig, a, SUCCESS)
    held = await rig.row(work)
    assert (held.claim, held.claimed_by) == (2, b.id)
    await answered(a, gate_a)
    now = await rig.row(work)
    late = isinstance(after.result, Succeeded)
    assert now.success_claim == (1 if late else None)
    assert (now.state, now.claim, now.claimed_by) == ("claimed", 2, b.id)
    assert (now.failures, now.tries, now.due_at) == (0, 0, held.due_at)
    first = await rig.attempt(work, 1)
    assert first is not None
    assert (first.outcome, first.node) == ("lost", a.id)
    assert first.late_outcome == ("succeeded" if late else "failed")
    assert a.count(Event.CLAIM_NO_LONGER_HELD) == int(not late)
    assert a.count(Event.LATE_SUCCESS_KEPT) == int(late)
    await answered(b, gate_b)
    assert (await rig.row(work)).state == "succeeded"
    assert b.count(Event.CLAIM_NO_LONGER_HELD) == 0


@pytest.mark.parametrize(
    ("after", "state"),
    [(failure(FAR), "ready"), (failure(), "dead"), (SUCCESS, "succeeded")],
)
async def test_case_01_control_without_the_closing_the_result_settles_the_row(
    rig: Rig, after: Ran, state: str
) -> None:
    a, work, gate_a = await stalled(rig, after)
    await answered(a, gate_a)
    row = await rig.row(work)
    assert (row.state, row.claim, row.claimed_by) == (state, 1, None)
    first = await rig.attempt(work, 1)
    assert first is not None
    assert first.late_at is None
    assert a.count(Event.CLAIM_NO_LONGER_HELD) == 0


@pytest.mark.parametrize(
    ("after", "state"),
    [(failure(FAR), "ready"), (failure(), "dead"), (SUCCESS, "succeeded")],
)
async def test_case_02_a_late_result_settles_the_row_while_nobody_has_claimed_it(
    rig: Rig, after: Ran, state: str
) -> None:
    a, work, gate_a = await stalled(rig, after)
    await rig.bury(a)
    lost = await rig.row(work)
    assert (lost.state, lost.claimed_by, lost.losses) == ("ready", a.id, 1)
    await answered(a, gate_a)
    row = await rig.row(work)
    assert (row.state, row.claim, row.claimed_by) == (state, 1, None)
    assert row.failures == int(after is not SUCCESS)
    assert a.count(Event.CLAIM_NO_LONGER_HELD) == 0


@pytest.mark.parametrize("fault", [True, False], ids=["late", "control"])
async def test_case_16_a_late_failure_neither_ends_nor_counts_what_another_runs(
    rig: Rig, fault: bool
) -> None:
    a, work, gate_a = await stalled(rig, failure(reason="final"))
    b, gate_b = await taken_over(rig, a, failure(FAR, reason="503"))
    if fault:
        await answered(a, gate_a)
        held = await rig.row(work)
        assert (held.state, held.claim, held.claimed_by) == ("claimed", 2, b.id)
    await answered(b, gate_b)
    row = await rig.row(work)
    assert (row.state, row.due_at, row.reason) == ("ready", FAR, "503")
    assert (row.claim, row.tries, row.failures, row.losses) == (2, 1, 1, 1)
    second = await rig.attempt(work, 2)
    assert second is not None
    assert (second.number, second.outcome, second.late_at) == (2, "failed", None)
    gate_a.opened.set()


async def disabled(rig: Rig) -> int:
    return await rig.backend.read(
        lambda tx: tx.scalar("SELECT count(*) FROM setting WHERE name = 'disabled'")
    )


def disables(kind: Probe) -> None:
    """Let a failure do what a 410 does: write beside the row, in the same commit."""
    kind.effects_of = lambda item: [
        Write(
            stmt="INSERT INTO setting (name, value, updated_at)"
            " VALUES ('disabled', :value, 0)",
            params={"value": b"410"},
        )
    ]


async def test_case_02a_the_effects_of_a_late_result_do_not_happen(rig: Rig) -> None:
    a, work, gate_a = await stalled(rig, failure(reason="410"))
    disables(a.kind)
    b, gate_b = await taken_over(rig, a, SUCCESS)
    await answered(a, gate_a)
    assert await disabled(rig) == 0
    row = await rig.row(work)
    assert (row.state, row.claimed_by, row.failures) == ("claimed", b.id, 0)
    await answered(b, gate_b)


async def test_case_02a_control_the_effects_of_a_held_claim_happen(rig: Rig) -> None:
    a, _, gate_a = await stalled(rig, failure(reason="410"))
    disables(a.kind)
    await answered(a, gate_a)
    assert await disabled(rig) == 1


@pytest.mark.parametrize("fault", [True, False], ids=["lost", "control"])
async def test_case_02b_a_node_that_claims_its_own_lost_row_again_refuses_its_old_result(
    rig: Rig, fault: bool
) -> None:
    kind = Probe()
    first, second = Gate(), Gate()

    async def play(prepared: Prepared, guard: Guard) -> Ran:
        again = prepared.claimed.work.claim == 2
        await (second if again else first).pass_through()
        return SUCCESS if again else failure(FAR)

    kind.plays["m"] = play
    a = await rig.member(kind, slots=2)
    (work,) = await rig.submit(await rig.lane(), "m")
    await first.wait_entered()
    if fault:
        await rig.lose_alone(work)
        rig.wake()
        await second.wait_entered()
    first.opened.set()
    await until(lambda: (work, 1) not in a.loop.hand)
    row = await rig.row(work)
    assert a.count(Event.CLAIM_NO_LONGER_HELD) == int(fault)
    assert row.failures == int(not fault)
    assert row.state == ("claimed" if fault else "ready")
    if fault:
        second.opened.set()
        await rig.until_state(work, "succeeded")


@pytest.mark.parametrize("fault", [True, False], ids=["lost", "control"])
async def test_case_02c_a_result_is_refused_although_the_row_looks_as_it_did(
    rig: Rig, fault: bool
) -> None:
    a, work, gate_a = await stalled(rig, failure(FAR))
    if fault:
        b, gate_b = await taken_over(rig, a, failure(FAR))
        await answered(b, gate_b)
    before = await rig.row(work)
    await answered(a, gate_a)
    row = await rig.row(work)
    assert (row.state, row.failures, row.due_at) == ("ready", 1, FAR)
    assert (row == before) is fault
    assert a.count(Event.CLAIM_NO_LONGER_HELD) == int(fault)


async def test_case_02d_a_result_is_refused_after_its_lost_row_was_cancelled(
    rig: Rig,
) -> None:
    a, work, gate_a = await stalled(rig, SUCCESS)
    await rig.bury(a)
    await rig.backend.write(lambda tx: cancel(tx, [work], "operator"))
    await answered(a, gate_a)
    row = await rig.row(work)
    assert (row.state, row.reason) == ("cancelled", "operator")
    assert a.count(Event.CLAIM_NO_LONGER_HELD) == 1


async def test_case_02d_an_operators_replay_survives_a_result_from_before_it(
    rig: Rig,
) -> None:
    a, work, gate_a = await stalled(rig, SUCCESS)
    await rig.bury(a)
    await rig.backend.write(lambda tx: cancel(tx, [work], "operator"))
    await rig.backend.write(lambda tx: replay(tx, [work]))
    await answered(a, gate_a)
    assert a.count(Event.CLAIM_NO_LONGER_HELD) == 1
    b = await rig.member()
    row = await rig.until_state(work, "succeeded")
    assert row.claim == 2
    assert b.kind.requests("m") == 1


@pytest.mark.parametrize(
    ("after", "state"), [(SUCCESS, "succeeded"), (failure(FAR), "cancelled")]
)
async def test_case_02d_a_cancel_request_lets_the_running_attempt_settle(
    rig: Rig, after: Ran, state: str
) -> None:
    a, work, gate_a = await stalled(rig, after)
    await rig.backend.write(lambda tx: cancel(tx, [work], "operator"))
    assert (await rig.row(work)).state == "claimed"
    await answered(a, gate_a)
    assert (await rig.row(work)).state == state
    assert a.count(Event.CLAIM_NO_LONGER_HELD) == 0


@pytest.mark.parametrize("fault", [True, False], ids=["lost", "control"])
async def test_case_02e_one_lost_row_among_many_leaves_the_others_settled(
    rig: Rig, fault: bool
) -> None:
    kind = Probe()
    gate = asyncio.Event()

    async def play(prepared: Prepared, guard: Guard) -> Ran:
        await gate.wait()
        return SUCCESS

    kind.default = play
    a = await rig.member(kind, slots=32)
    works = [
        work for _ in range(8) for work in await rig.submit(await rig.lane(), *"abcd")
    ]
    await until(lambda: kind.running.total() == 32)
    b_kind = Probe()
    b_gate = b_kind.hold("a", failure(FAR))
    if fault:
        await rig.lose_alone(works[0])
        await rig.member(b_kind)
        await b_gate.wait_entered()
    gate.set()
    await until(lambda: not a.loop.hand)
    assert a.count(Event.CLAIM_NO_LONGER_HELD) == 0
    assert a.count(Event.LATE_SUCCESS_KEPT) == int(fault)
    assert (await rig.counts())["succeeded"] == 32 - int(fault)
    b_gate.opened.set()
    await rig.until_state(works[0], "succeeded")


async def test_case_02f_two_engines_in_one_process_are_two_nodes_and_one_holds(
    rig: Rig,
) -> None:
    kind = Probe()
    gate = kind.hold("m")
    old = await rig.member(kind)
    new = await rig.member(kind)
    assert old.id != new.id
    (work,) = await rig.submit(await rig.lane(), "m")
    await gate.wait_entered()
    rig.wake()
    holders = [member for member in (old, new) if member.loop.hand]
    assert len(holders) == 1
    assert (await rig.row(work)).claimed_by == holders[0].id
    gate.opened.set()
    await rig.until_state(work, "succeeded")
    assert kind.requests("m") == 1


@pytest.mark.parametrize("fault", [True, False], ids=["lost", "control"])
async def test_case_03_a_late_success_makes_the_next_claims_failure_a_success(
    rig: Rig, fault: bool
) -> None:
    a, work, gate_a = await stalled(rig, SUCCESS)
    b, gate_b = await taken_over(rig, a, failure(retry_at=0))
    if fault:
        await answered(a, gate_a)
        await answered(b, gate_b)
        row = await rig.row(work)
        assert (row.state, row.claim) == ("succeeded", 2)
        assert b.kind.requests("m") == 1
    else:  # A says nothing: the failure is a failure, and the row is sent again
        gate_b.opened.set()
        await rig.until_row(work, lambda row: row.claim > 2)
        b.kind.plays.clear()
        await answered(a, gate_a)


@pytest.mark.parametrize("fault", [True, False], ids=["stale read", "control"])
async def test_case_17_a_sweep_that_decided_from_an_old_read_takes_nothing_settled(
    rig: Rig, fault: bool
) -> None:
    a, work, gate_a = await stalled(rig, SUCCESS)

    def stall(tx: Tx) -> None:
        tx.run("UPDATE work SET deadline_at = 1 WHERE id = :id", {"id": work})
        tx.run("UPDATE node SET tick_at = 1")

    await rig.backend.write(stall)
    seen = await rig.backend.read(lambda tx: candidates(tx, SweepRule()))
    assert [candidate.work for candidate in seen] == [work]
    if fault:
        await answered(a, gate_a)
    taken = await rig.backend.write(lambda tx: lose(tx, seen))
    assert [row.work for row in taken] == ([] if fault else [work])
    assert (await rig.row(work)).state == ("succeeded" if fault else "ready")
    await answered(a, gate_a)
    assert (await rig.row(work)).state == "succeeded"


async def test_a_repeated_settlement_is_told_so_and_changes_nothing(rig: Rig) -> None:
    a, work, gate_a = await stalled(rig, failure(FAR))
    held = a.loop.hand[work, 1]
    said = a.loop._attempts.settlement(held, failure(FAR))
    await answered(a, gate_a)
    before = await rig.row(work)
    assert await a.loop._settler.settle(said) is Answer.ALREADY
    assert await rig.row(work) == before
