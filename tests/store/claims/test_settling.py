from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy.exc import IntegrityError

from tenure.errors import InvariantViolated
from tenure.ids import NodeId, WorkId
from tenure.kernel.commands import Answer, Cut, Failed, Parked, Waiting
from tenure.kernel.states import AttemptOutcome, Phase, State
from tenure.store import claims, schema
from tenure.store.claims import (
    CERTAIN,
    Claimed,
    Effect,
    Insert,
    Settled,
    SweepRule,
    Walker,
    Write,
)
from tenure.store.claims.sweeping import candidates, lose
from tenure.store.tx import Tx
from tests.store.yard import DEAD, OK, SECOND, Quiet, Yard, answer, retry, statements


async def lost(yard: Yard, count: int = 1) -> tuple[Walker, list[Claimed]]:
    """Return a closed node with claims that were taken from it."""
    lane = await yard.lane()
    await yard.submit(lane, count)
    walker = await yard.walker()
    held = await yard.claim(walker)
    await yard.close(walker.node, CERTAIN)
    assert len(await yard.sweep()) == count
    return walker, held


async def test_each_answer_becomes_its_rows_outcome_and_its_evidence(yard: Yard):
    lane = await yard.lane()
    await yard.submit(lane, 5)
    held = await yard.claim(await yard.walker())
    at = await yard.now() + 60 * SECOND
    results = [OK, DEAD, retry(at), Parked(reason="undecodable"), Waiting(wakes=0)]
    answers = await yard.settle(
        *[answer(one, result) for one, result in zip(held, results, strict=True)]
    )
    assert answers == [Answer.APPLIED] * 5
    rows = await yard.rows([one.work.id for one in held])
    states = [(rows[one.work.id].state, rows[one.work.id].phase) for one in held]
    assert states == [
        (State.SUCCEEDED, None),
        (State.DEAD, None),
        (State.READY, Phase.LATER),
        (State.PARKED, None),
        (State.READY, Phase.ASLEEP),
    ]
    evidence = [(await yard.attempts(one.work.id))[0] for one in held]
    assert [one.outcome for one in evidence] == [
        AttemptOutcome.SUCCEEDED,
        AttemptOutcome.FAILED,
        AttemptOutcome.FAILED,
        AttemptOutcome.PARKED,
        AttemptOutcome.WAITING,
    ]
    assert evidence[2].next_due_at == at
    assert [one.number for one in evidence] == [1] * 5


async def test_a_batch_costs_as_many_statements_as_a_single_answer(yard: Yard):
    lane = await yard.lane()
    await yard.submit(lane, 101)
    first, *rest = await yard.claim(await yard.walker(), 101)

    def settle(tx: Tx) -> tuple[list[str], list[str]]:
        with statements(tx) as one:
            claims.settle(tx, [answer(first)], yard.kinds)
        with statements(tx) as many:
            claims.settle(tx, [answer(item) for item in rest], yard.kinds)
        return one, many

    one, many = await yard.do(settle)
    assert len(one) == len(many) <= 4
    assert len(await yard.rows([item.work.id for item in rest])) == 100


async def test_a_row_named_twice_is_settled_once(yard: Yard):
    lane = await yard.lane()
    await yard.submit(lane, 2)
    one, two = await yard.claim(await yard.walker())
    first = answer(one)
    answers = await yard.settle(first, answer(two), first, answer(one, DEAD))
    assert answers == [
        Answer.APPLIED,
        Answer.APPLIED,
        Answer.ALREADY,
        Answer.ALREADY,
    ]
    assert (await yard.row(one.work.id)).state is State.SUCCEEDED
    assert len(await yard.attempts(one.work.id)) == 1


async def test_a_repeated_answer_is_known_as_such(yard: Yard):
    await yard.submit(await yard.lane())
    (one,) = await yard.claim(await yard.walker())
    said = answer(one, retry(await yard.now()))
    assert await yard.settle(said) == [Answer.APPLIED]
    before = await yard.row(one.work.id)
    assert await yard.settle(said) == [Answer.ALREADY]
    assert await yard.row(one.work.id) == before


async def test_one_lost_row_among_thirty_two_leaves_the_others_settled(yard: Yard):
    lane = await yard.lane()
    await yard.submit(lane, 32)
    first, second = await yard.walker(), await yard.walker()
    held = await yard.claim(first, 32)
    victim = held[17]
    await yard.close(first.node, CERTAIN)

    def lose_one(tx: Tx) -> None:
        lost = candidates(tx, SweepRule())
        lose(tx, [one for one in lost if one.work == victim.work.id])

    await yard.do(lose_one)
    (again,) = await yard.claim(second, 32)
    answers = await yard.settle(*[answer(one, DEAD) for one in held])
    assert answers.count(Answer.LOST) == 1
    assert answers[17] is Answer.LOST
    rows = await yard.rows([one.work.id for one in held if one is not victim])
    assert {row.state for row in rows.values()} == {State.DEAD}
    running = await yard.row(victim.work.id)
    assert (running.state, running.claim) == (State.CLAIMED, 2)
    assert await yard.settle(answer(again)) == [Answer.APPLIED]


async def test_a_lost_row_that_nobody_took_is_settled_by_its_holder(yard: Yard):
    _, (one,) = await lost(yard)
    assert await yard.settle(answer(one, DEAD)) == [Answer.APPLIED]
    row = await yard.row(one.work.id)
    assert (row.state, row.failures, row.losses) == (State.DEAD, 1, 1)
    (attempt,) = await yard.attempts(one.work.id)
    assert attempt.outcome is AttemptOutcome.LOST, "what was known then stays"
    assert attempt.late_outcome is AttemptOutcome.FAILED
    assert attempt.late_reason == "status_404"


async def test_a_late_answer_is_written_once_beside_the_loss(yard: Yard):
    _, (one,) = await lost(yard)
    (again,) = await yard.claim(await yard.walker())
    before = await yard.row(one.work.id)
    said = answer(one, DEAD)
    assert await yard.settle(said) == [Answer.LOST]
    assert await yard.settle(answer(one, Cut())) == [Answer.ALREADY]
    assert await yard.row(one.work.id) == before
    (attempt,) = await yard.attempts(one.work.id)
    assert attempt.late_outcome is AttemptOutcome.FAILED
    assert await yard.settle(answer(again)) == [Answer.APPLIED]


async def test_a_late_success_saves_the_row_from_a_later_failure(yard: Yard):
    _, (one,) = await lost(yard)
    (again,) = await yard.claim(await yard.walker())
    assert await yard.settle(answer(one)) == [Answer.LATE_KEPT]
    kept = await yard.row(one.work.id)
    assert (kept.state, kept.success_claim) == (State.CLAIMED, 1)
    failed = retry(await yard.now() + SECOND)
    assert await yard.settle(answer(again, failed)) == [Answer.APPLIED]
    row = await yard.row(one.work.id)
    assert (row.state, row.failures) == (State.SUCCEEDED, 0)


async def test_without_a_late_success_the_same_failure_is_retried(yard: Yard):
    await lost(yard)
    (again,) = await yard.claim(await yard.walker())
    failed = retry(await yard.now() + SECOND)
    await yard.settle(answer(again, failed))
    assert (await yard.row(again.work.id)).state is State.READY


async def test_a_wrong_number_node_or_row_is_refused(yard: Yard):
    await yard.submit(await yard.lane())
    (one,) = await yard.claim(await yard.walker())
    said = answer(one, DEAD)
    refused = [
        replace(said, claim=0),
        replace(said, claim=2),
        replace(said, node=NodeId(10**6)),
        replace(said, work=WorkId("wrk_unknown")),
    ]
    for wrong in refused:
        assert await yard.settle(wrong) == [Answer.LOST]
    assert (await yard.row(one.work.id)).state is State.CLAIMED
    assert await yard.settle(said) == [Answer.APPLIED]


async def test_an_operators_cancel_or_replay_survives_the_old_holder(yard: Yard):
    _, held = await lost(yard, 2)
    cancelled, replayed = held
    await yard.do(lambda tx: claims.cancel(tx, [cancelled.work.id], "enough"))
    await yard.settle(answer(replayed, DEAD))
    await yard.do(lambda tx: claims.replay(tx, [replayed.work.id]))
    before = await yard.rows([one.work.id for one in held])
    answers = await yard.settle(answer(cancelled), answer(replayed))
    assert answers == [Answer.LOST, Answer.ALREADY]
    assert await yard.rows([one.work.id for one in held]) == before


async def test_a_kind_that_nobody_registered_is_refused(yard: Yard):
    await yard.submit(await yard.lane())
    (one,) = await yard.claim(await yard.walker())
    with pytest.raises(InvariantViolated, match="teleport"):
        await yard.settle(answer(one, kind="teleport"))


NOTES = sa.Table(
    "setting", sa.MetaData(), *[column._copy() for column in schema.setting.columns]
)


NAMES = ("name", "value", "updated_at")


@dataclass(slots=True)
class Noting(Quiet):
    """Writes a row for each piece of evidence, and one for each effect."""

    fail: bool = False

    def evidence(self, items: Sequence[Settled]) -> Sequence[Effect]:
        rows = self._rows("evidence", items)
        return [Insert(table=NOTES, names=NAMES, rows=rows, ignore=True)]

    def effects(self, items: Sequence[Settled]) -> Sequence[Effect]:
        again: list[Effect] = [
            Insert(table=NOTES, names=NAMES, rows=[row], ignore=False)
            for row in self._rows("effect", items)
            for _ in range(1 + self.fail)
        ]
        return [*again, Write(stmt="UPDATE setting SET updated_at = 7")]

    def _rows(
        self, what: str, items: Sequence[Settled]
    ) -> list[tuple[str, bytes, int]]:
        return [
            (
                f"{what} {item.settlement.work} {item.settlement.claim}",
                b"",
                0,
            )
            for item in items
        ]


async def noted(yard: Yard) -> list[str]:
    found = await yard.do(lambda tx: tx.all("SELECT name FROM setting ORDER BY name"))
    return [row[0] for row in found if row[0].startswith(("effect", "evidence"))]


async def test_evidence_is_kept_for_late_answers_and_effects_are_not(yard: Yard):
    yard.kinds = {"test": Noting()}
    _, (one,) = await lost(yard)
    (again,) = await yard.claim(await yard.walker())
    await yard.settle(answer(one, DEAD))
    assert await noted(yard) == [f"evidence {one.work.id} 1"]
    await yard.settle(answer(again))
    assert await noted(yard) == [
        f"effect {one.work.id} 2",
        f"evidence {one.work.id} 1",
        f"evidence {one.work.id} 2",
    ]
    await yard.settle(answer(again))
    assert len(await noted(yard)) == 3, "a repetition adds nothing"


async def test_an_effect_that_fails_leaves_the_row_unsettled(yard: Yard):
    yard.kinds = {"test": Noting(fail=True)}
    await yard.submit(await yard.lane())
    (one,) = await yard.claim(await yard.walker())
    with pytest.raises(IntegrityError):
        await yard.settle(answer(one))
    assert (await yard.row(one.work.id)).state is State.CLAIMED
    assert await yard.attempts(one.work.id) == []
    assert await noted(yard) == []


async def test_a_kind_sees_the_row_before_and_after(yard: Yard):
    kind = Quiet()
    yard.kinds = {"test": kind}
    await yard.submit(await yard.lane())
    (one,) = await yard.claim(await yard.walker())
    failed = Failed(retry_at=None, charged=True, counts_try=True, reason="status_410")
    await yard.settle(answer(one, failed, evidence="response"))
    (item,) = kind.effective
    assert item.before.state is State.CLAIMED
    assert item.after is not None
    assert (item.after.state, item.after.failures) == (State.DEAD, 1)
    assert item.settlement.evidence == "response"
    assert [item.answer for item in kind.evident] == [Answer.APPLIED]


@pytest.mark.parametrize(
    ("once", "begun", "state"),
    [(True, 1, State.DEAD), (True, None, State.READY), (False, 1, State.READY)],
)
async def test_what_was_cut_after_it_had_begun_is_not_done_again_at_most_once(
    yard: Yard, once: bool, begun: int | None, state: State
):
    lane = await yard.lane(at_most_once=once)
    await yard.submit(lane)
    (one,) = await yard.claim(await yard.walker())
    said = replace(answer(one, Cut()), begun_at=begun)
    assert await yard.settle(said) == [Answer.APPLIED]
    row = await yard.row(one.work.id)
    assert (row.state, row.failures, row.losses) == (state, 0, 0)
    if state is State.DEAD:
        assert row.reason == "outcome unknown"
    (attempt,) = await yard.attempts(one.work.id)
    assert (attempt.outcome, attempt.state_after) == (AttemptOutcome.CUT, state)
