from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tenure.ids import NodeId
from tenure.kernel.commands import Answer
from tenure.kernel.states import Phase, State
from tenure.store import claims
from tenure.store.claims import CERTAIN, Claimed, Walker, holding
from tenure.store.claims.holding import Claim
from tenure.store.tx import Tx
from tests.store.yard import SECOND, Yard, answer


async def held(yard: Yard, count: int) -> tuple[Walker, list[Claimed]]:
    await yard.submit(await yard.lane(), count)
    walker = await yard.walker()
    return walker, await yard.claim(walker)


async def test_what_is_released_is_due_again_uncharged(yard: Yard):
    walker, (one, two) = await held(yard, 2)
    keys = [(one.work.id, 1), (two.work.id, 1)]
    assert await yard.do(lambda tx: claims.release(tx, walker.node, keys)) == 2
    assert await yard.do(lambda tx: claims.release(tx, walker.node, keys)) == 0
    row = await yard.row(one.work.id)
    assert (row.phase, row.releases, row.failures) == (Phase.DUE, 1, 0)
    assert await yard.attempts(one.work.id) == []
    (again, _) = await yard.claim(walker)
    assert (again.work.claim, again.number) == (2, 1)


async def test_only_a_held_claim_can_be_released(yard: Yard):
    walker, (one,) = await held(yard, 1)
    other = await yard.walker()
    release = claims.release
    assert not await yard.do(lambda tx: release(tx, other.node, [(one.work.id, 1)]))
    assert not await yard.do(lambda tx: release(tx, walker.node, [(one.work.id, 2)]))
    await yard.settle(answer(one))
    assert not await yard.do(lambda tx: release(tx, walker.node, [(one.work.id, 1)]))
    assert (await yard.row(one.work.id)).state is State.SUCCEEDED


async def compare(
    yard: Yard, node: NodeId, mine: Sequence[Claim], before: Sequence[Claim] = ()
) -> claims.Reconciled:
    return await yard.do(
        lambda tx: claims.reconcile(
            tx, node, mine, 10 * SECOND, unheld_before=list(before)
        )
    )


async def test_a_node_that_forgot_a_claim_gives_it_back_once_it_is_old(yard: Yard):
    walker, (known, forgotten) = await held(yard, 2)
    mine, theirs = [(known.work.id, 1)], [(forgotten.work.id, 1)]
    first = await compare(yard, walker.node, mine)
    assert (first.released, first.unheld) == ([], theirs)
    second = await compare(yard, walker.node, mine, first.unheld)
    assert (second.released, second.unheld) == ([], theirs)
    yard.pass_time(11)
    third = await compare(yard, walker.node, mine, second.unheld)
    assert (third.released, third.unheld) == (theirs, [])
    assert (await yard.row(forgotten.work.id)).phase is Phase.DUE
    assert (await yard.row(known.work.id)).state is State.CLAIMED
    assert await yard.settle(answer(known)) == [Answer.APPLIED]


async def test_a_claim_that_one_comparison_alone_found_is_kept_however_old_it_looks(
    yard: Yard,
):
    """The clock is stepped by an hour while the claim is on its way into memory."""
    walker, (one, two) = await held(yard, 2)
    both = [(one.work.id, 1), (two.work.id, 1)]
    yard.pass_time(3600)
    first = await compare(yard, walker.node, [])
    assert (first.released, first.unheld) == ([], sorted(both))
    second = await compare(yard, walker.node, both[:1], first.unheld)
    assert second.released == both[1:]
    assert (await yard.row(one.work.id)).state is State.CLAIMED


@pytest.mark.parametrize("meanwhile", [True, False], ids=["settled", "control"])
async def test_only_what_was_really_given_back_is_said_to_be_released(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, meanwhile: bool
):
    """The row is settled between the comparison's read and its lock."""
    walker, (settled, forgotten) = await held(yard, 2)
    both = sorted([(settled.work.id, 1), (forgotten.work.id, 1)])
    yard.pass_time(11)
    decide_rows = holding.decide_rows

    def settle_first(tx: Tx, *rest: Any) -> Any:
        if meanwhile:
            claims.settle(tx, [answer(settled)], yard.kinds)
        return decide_rows(tx, *rest)

    monkeypatch.setattr(holding, "decide_rows", settle_first)
    found = await compare(yard, walker.node, [], both)
    kept = [(forgotten.work.id, 1)]
    assert sorted(found.released) == (kept if meanwhile else both)
    state = (await yard.row(settled.work.id)).state
    assert state is (State.SUCCEEDED if meanwhile else State.READY)


async def test_a_node_learns_which_claims_are_not_its_own_any_more(yard: Yard):
    walker, rows = await held(yard, 4)
    kept, settled, asked, lost = rows
    await yard.settle(answer(settled))
    await yard.do(lambda tx: claims.cancel(tx, [asked.work.id], "enough"))
    await yard.do(
        lambda tx: tx.run(
            "UPDATE work SET claim = 2 WHERE id = :id", {"id": lost.work.id}
        )
    )
    mine = [(one.work.id, 1) for one in rows]
    found = await compare(yard, walker.node, mine)
    assert found.gone == sorted([(settled.work.id, 1), (lost.work.id, 1)])
    assert found.cancel == [(asked.work.id, 1)]
    assert found.released == []
    assert (await yard.row(kept.work.id)).state is State.CLAIMED


async def test_other_nodes_claims_are_not_looked_at(yard: Yard):
    await held(yard, 2)
    stranger = await yard.walker()
    yard.pass_time(60)
    found = await compare(yard, stranger.node, [])
    assert found == claims.Reconciled(released=[], unheld=[], gone=[], cancel=[])


async def test_a_claim_runs_alone_until_others_run_beside_it(yard: Yard):
    walker, (one,) = await held(yard, 1)
    mine = (walker.node, one.work.id, 1)
    assert await yard.do(lambda tx: claims.isolate(tx, *mine))
    assert (await yard.row(one.work.id)).alone
    assert await yard.do(lambda tx: claims.mingle(tx, *mine))
    assert not (await yard.row(one.work.id)).alone


async def test_a_claim_that_is_gone_cannot_run_alone(yard: Yard):
    walker, (one,) = await held(yard, 1)
    await yard.close(walker.node, CERTAIN)
    await yard.sweep()
    mine = (walker.node, one.work.id, 1)
    assert not await yard.do(lambda tx: claims.isolate(tx, *mine))
    (again,) = await yard.claim(await yard.walker())
    assert not await yard.do(lambda tx: claims.isolate(tx, *mine))
    assert not again.work.alone
