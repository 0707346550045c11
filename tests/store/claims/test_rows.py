from __future__ import annotations

import pytest
from msgspec.structs import replace
from sqlalchemy.exc import IntegrityError

from tenure.ids import WorkId
from tenure.kernel.commands import Answer
from tenure.kernel.states import State
from tenure.kernel.transitions import Change, Late
from tenure.store.claims import rows
from tenure.store.tx import Tx
from tests.store.yard import DEAD, Yard, answer, statements


async def test_every_column_survives_the_way_there_and_back(yard: Yard):
    (id_,) = await yard.submit(await yard.lane())
    written = replace(
        await yard.row(id_),
        claim=9,
        claimed_by=None,
        tries=1,
        failures=2,
        losses=3,
        releases=4,
        first_attempt_at=5,
        replay_claim=6,
        wakes=8,
        trigger=1,
        reason="größer, 日本, \N{PILE OF POO}, \"'",
        due_at=2**53 + 1,
    )
    await yard.do(lambda tx: tx.run("UPDATE work SET claim = 9"))
    await yard.do(lambda tx: rows.write(tx, [written]))
    assert await yard.row(id_) == written


async def test_rows_are_locked_in_the_order_of_their_ids(yard: Yard):
    ids = await yard.submit(await yard.lane(), 5)
    found = await yard.do(lambda tx: rows.lock(tx, [*reversed(ids), *ids]))
    assert list(found) == sorted(ids)


async def test_missing_rows_are_left_out(yard: Yard):
    (id_,) = await yard.submit(await yard.lane())
    asked = [WorkId("wrk_unknown"), id_]
    assert list(await yard.do(lambda tx: rows.read(tx, asked))) == [id_]
    assert await yard.do(lambda tx: rows.read(tx, [])) == {}


async def test_what_is_left_alone_is_not_written(yard: Yard):
    ids = await yard.submit(await yard.lane(), 3)

    def decide(tx: Tx) -> list[str]:
        with statements(tx) as seen:
            rows.decide_rows(tx, ids, lambda _: Change(work=None))
        return seen

    assert not any("UPDATE work" in text for text in await yard.do(decide))


async def test_a_claims_evidence_is_inserted_once(yard: Yard):
    await yard.submit(await yard.lane())
    (one,) = await yard.claim(await yard.walker())
    assert await yard.settle(answer(one, DEAD)) == [Answer.APPLIED]
    (attempt,) = await yard.attempts(one.work.id)
    with pytest.raises(IntegrityError):
        await yard.do(lambda tx: rows.insert_attempts(tx, [attempt]))


async def test_late_columns_are_filled_once(yard: Yard):
    await yard.submit(await yard.lane())
    (one,) = await yard.claim(await yard.walker())
    await yard.settle(answer(one, DEAD))
    (attempt,) = await yard.attempts(one.work.id)
    for at in (1, 2):
        late = Late(at=at, outcome=attempt.outcome, reason=f"answer {at}")
        key = (one.work.id, 1, late)
        await yard.do(lambda tx, key=key: rows.fill_late(tx, [key]))
    (filled,) = await yard.attempts(one.work.id)
    assert (filled.late_at, filled.late_reason) == (1, "answer 1")
    assert filled.state_after is State.DEAD
