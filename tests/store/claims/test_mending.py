"""Lines in which a row was stranded go on; lines that are right stay as they are."""

from __future__ import annotations

from tenure.ids import WorkId
from tenure.kernel.states import Phase
from tenure.store.backend import Backend
from tenure.store.claims.mending import mend_lines, wake_stranded
from tests.outbox.world import count, run
from tests.store.yard import Yard


async def test_the_front_of_a_line_is_woken_and_nobody_else(backend: Backend):
    yard = Yard(backend)
    lane = await yard.lane()
    first, second = await yard.submit(lane, 2, order_key="k")
    await run(backend, "UPDATE work SET phase = 'asleep', due_at = NULL")
    assert await yard.do(lambda tx: mend_lines(tx, [(lane, "k")])) == 1
    rows = await yard.rows([first, second])
    assert [rows[id_].phase for id_ in (first, second)] == [Phase.DUE, Phase.ASLEEP]


async def test_what_has_ended_or_is_gone_leaves_its_line(backend: Backend):
    yard = Yard(backend)
    lane = await yard.lane()
    first, second, third = await yard.submit(lane, 3, order_key="k")
    await run(backend, "DELETE FROM work WHERE id = :id", id=first)
    await run(
        backend,
        "UPDATE work SET state = 'cancelled', phase = NULL, due_at = NULL,"
        " settled_at = 1 WHERE id = :id",
        id=second,
    )
    assert await yard.do(lambda tx: mend_lines(tx, [(lane, "k")])) == 3
    assert (await yard.row(third)).phase is Phase.DUE
    assert await count(backend, "order_line") == 1


async def test_a_line_that_is_right_is_left_alone(backend: Backend):
    yard = Yard(backend)
    lane = await yard.lane()
    first, second = await yard.submit(lane, 2, order_key="k")
    before = await yard.rows([first, second])
    assert await yard.do(lambda tx: mend_lines(tx, [(lane, "k")])) == 0
    assert await yard.do(lambda tx: mend_lines(tx, [])) == 0
    assert await yard.do(lambda tx: wake_stranded(tx, [first, second])) == 0
    assert await yard.rows([first, second]) == before


async def test_a_sleeper_that_stands_in_no_line_is_made_due(backend: Backend):
    yard = Yard(backend)
    lane = await yard.lane()
    _, second = await yard.submit(lane, 2, order_key="k")
    await run(backend, "DELETE FROM order_line WHERE work = :id", id=second)
    woken = await yard.do(lambda tx: wake_stranded(tx, [second, WorkId("wrk_gone")]))
    assert woken == 1
    assert (await yard.row(second)).phase is Phase.DUE
