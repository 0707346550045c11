from __future__ import annotations

from typing import Any

import pytest

from tenure.ids import NodeId
from tenure.kernel.commands import Answer
from tenure.kernel.states import AttemptOutcome, Phase, State
from tenure.store import claims, nodes
from tenure.store.claims import (
    CERTAIN,
    DRAINED,
    OPERATOR,
    SILENCE,
    Claimed,
    SweepRule,
    Walker,
)
from tenure.store.claims.sweeping import candidates, lose
from tests.store.yard import SECOND, Yard, answer


async def held(
    yard: Yard, count: int = 1, deadline_us: int = 15 * SECOND, **settings: Any
) -> tuple[Walker, list[Claimed]]:
    lane = await yard.lane(deadline_us=deadline_us, **settings)
    await yard.submit(lane, count)
    walker = await yard.walker()
    return walker, await yard.claim(walker)


async def test_an_open_or_draining_node_keeps_its_claims_past_every_deadline(
    yard: Yard,
):
    opened, (one,) = await held(yard)
    draining, (two,) = await held(yard)
    await yard.do(lambda tx: nodes.drain_node(tx, draining.node))
    for walker in (opened, draining):
        await yard.do(lambda tx, n=walker.node: nodes.beat(tx, n, tick=1))
    yard.pass_time(3600)
    for walker in (opened, draining):
        await yard.do(lambda tx, n=walker.node: nodes.beat(tx, n, tick=2))
    assert await yard.sweep() == []
    for item in (one, two):
        assert (await yard.row(item.work.id)).state is State.CLAIMED


@pytest.mark.parametrize("why", [SILENCE, OPERATOR])
async def test_a_request_that_may_be_on_the_wire_is_not_taken_before_its_deadline(
    yard: Yard, why: str
):
    walker, (one,) = await held(yard)
    await yard.close(walker.node, why)
    yard.pass_time(13)
    assert await yard.sweep() == []
    yard.pass_time(3)
    (row,) = await yard.sweep()
    assert (row.work, row.claim, row.node) == (one.work.id, 1, walker.node)
    assert why in row.reason


async def test_a_rate_limited_lane_with_the_longest_deadline_waits_for_it_too(
    yard: Yard,
):
    walker, _ = await held(yard, deadline_us=60 * SECOND, rate_per_second=1)
    await yard.close(walker.node, SILENCE)
    yard.pass_time(59)
    assert await yard.sweep() == []
    yard.pass_time(3)
    assert len(await yard.sweep()) == 1


async def test_a_long_deadline_is_not_waited_for(yard: Yard):
    walker, _ = await held(yard, deadline_us=3600 * SECOND)
    await yard.close(walker.node, SILENCE)
    assert len(await yard.sweep()) == 1


async def test_a_dead_process_loses_its_rows_at_once(yard: Yard):
    walker, (one,) = await held(yard)
    await yard.close(walker.node, CERTAIN)
    assert len(await yard.sweep()) == 1
    row = await yard.row(one.work.id)
    assert (row.phase, row.losses, row.claimed_by) == (Phase.DUE, 1, walker.node)
    (attempt,) = await yard.attempts(one.work.id)
    assert (attempt.outcome, attempt.node) == (AttemptOutcome.LOST, walker.node)


async def test_rows_that_wait_for_their_deadline_hide_no_others(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tenure.store.claims.sweeping.SWEEP_ROWS", 3)
    silent, _ = await held(yard, 5)
    dead, (one,) = await held(yard)
    await yard.close(silent.node, SILENCE)
    await yard.close(dead.node, CERTAIN)
    assert [row.work for row in await yard.sweep()] == [one.work.id]


@pytest.mark.parametrize("why", [OPERATOR, DRAINED])
async def test_who_went_on_purpose_is_charged_nothing(yard: Yard, why: str):
    walker, (one,) = await held(yard)
    await yard.close(walker.node, why)
    yard.pass_time(20)
    await yard.sweep()
    row = await yard.row(one.work.id)
    assert (row.losses, row.failures, row.phase) == (0, 0, Phase.DUE)


async def test_an_unknown_node_holds_nothing(yard: Yard):
    walker, (one,) = await held(yard)
    await yard.do(lambda tx: tx.run("DELETE FROM node"))
    (row,) = await yard.sweep()
    assert (row.work, row.node) == (one.work.id, walker.node)


async def test_a_stalled_loop_loses_its_rows_a_minute_after_their_deadline(yard: Yard):
    walker, (one,) = await held(yard)

    still = 0
    for seconds, taken in [(30, 0), (44, 0), (3, 1)]:
        yard.pass_time(seconds)
        still += seconds * SECOND
        await yard.do(
            lambda tx: nodes.beat(tx, walker.node, tick=7, still_us=still)  # noqa: B023
        )
        assert len(await yard.sweep()) == taken, seconds
    row = await yard.row(one.work.id)
    assert (row.losses, row.state) == (1, State.READY)
    (attempt,) = await yard.attempts(one.work.id)
    assert attempt.reason is not None
    assert "stalled" in attempt.reason


async def test_after_an_outage_no_node_looks_stalled(yard: Yard):
    """No beat arrives for 90 s; the first sweep comes before the first beat."""
    walker, (one,) = await held(yard)
    await yard.do(lambda tx: nodes.beat(tx, walker.node, tick=7))
    yard.pass_time(90)
    assert await yard.sweep() == []
    await yard.do(lambda tx: nodes.beat(tx, walker.node, tick=8))
    assert await yard.sweep() == []
    assert await yard.settle(answer(one)) == [Answer.APPLIED]


async def test_a_stale_decision_takes_nothing(yard: Yard):
    """What was read before is settled, or claimed anew, before the loss is written."""
    walker, (settled, again, kept) = await held(yard, 3)
    await yard.close(walker.node, CERTAIN)
    stale = await yard.do(lambda tx: candidates(tx, SweepRule()))
    assert len(stale) == 3
    await yard.settle(answer(settled))
    await yard.do(
        lambda tx: claims.release(tx, walker.node, [(again.work.id, again.work.claim)])
    )
    (newer,) = await yard.claim(await yard.walker())
    assert newer.work.id == again.work.id
    taken = await yard.do(lambda tx: lose(tx, stale))
    assert [row.work for row in taken] == [kept.work.id]
    assert (await yard.row(settled.work.id)).state is State.SUCCEEDED
    running = await yard.row(again.work.id)
    assert (running.state, running.claim, running.losses) == (State.CLAIMED, 2, 0)


async def test_the_same_decision_acted_on_at_once_takes_all(yard: Yard):
    walker, _ = await held(yard, 3)
    await yard.close(walker.node, CERTAIN)
    stale = await yard.do(lambda tx: candidates(tx, SweepRule()))
    assert len(await yard.do(lambda tx: lose(tx, stale))) == 3


async def kill(yard: Yard, *, alone: bool = False) -> None:
    """Claim everything with a fresh node and kill it."""
    yard.pass_time(11)
    walker = await yard.walker()
    for one in await yard.claim(walker):
        if alone and one.work.losses >= 2:
            key = (walker.node, one.work.id, one.work.claim)
            assert await yard.do(lambda tx, k=key: claims.isolate(tx, *k))
    await yard.close(walker.node, CERTAIN)
    await yard.sweep()


async def test_poison_is_quarantined_at_its_third_loss_alone(yard: Yard):
    (poison,) = await yard.submit(await yard.lane())
    for _ in range(3):
        await kill(yard, alone=True)
    row = await yard.row(poison)
    assert (row.state, row.reason) == (State.PARKED, "quarantined")
    assert (row.losses, row.failures) == (3, 0)
    assert len(await yard.attempts(poison)) == 3


async def test_a_bystander_is_parked_at_its_fifth_loss_only(yard: Yard):
    (bystander,) = await yard.submit(await yard.lane())
    states: list[State] = []
    for _ in range(5):
        await kill(yard)
        states.append((await yard.row(bystander)).state)
    assert states == [State.READY] * 4 + [State.PARKED]


async def test_a_row_that_may_run_once_only_is_dead_when_it_is_lost(yard: Yard):
    walker, (one,) = await held(yard, at_most_once=True)
    await yard.close(walker.node, CERTAIN)
    await yard.sweep()
    row = await yard.row(one.work.id)
    assert (row.state, row.reason) == (State.DEAD, "outcome unknown")
    assert await yard.settle(answer(one)) == [Answer.APPLIED]
    assert (await yard.row(one.work.id)).state is State.SUCCEEDED


async def test_a_quarantined_head_lets_a_skipping_line_go_on(yard: Yard):
    lane = await yard.lane(ordered=True, order_policy="skip")
    head, second = await yard.submit(lane, 2, order_key="k")
    for _ in range(3):
        await kill(yard, alone=True)
    assert (await yard.row(head)).state is State.PARKED
    assert (await yard.row(second)).phase is Phase.DUE


async def test_a_sweep_takes_a_bounded_number_of_rows(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tenure.store.claims.sweeping.SWEEP_ROWS", 2)
    walker, _ = await held(yard, 5)
    await yard.close(walker.node, CERTAIN)
    assert [len(await yard.sweep()) for _ in range(4)] == [2, 2, 1, 0]


async def test_a_node_that_never_was_is_no_excuse_for_open_ones(yard: Yard):
    _, (one,) = await held(yard)
    await yard.close(await yard.node(), CERTAIN)
    assert await yard.sweep() == []
    assert (await yard.row(one.work.id)).claimed_by != NodeId(0)
