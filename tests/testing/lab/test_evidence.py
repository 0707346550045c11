from tenure.store.backend import Backend
from tenure.store.claims import CERTAIN
from tenure.testing.lab.evidence import Evidence, Held
from tests.store.yard import Yard, answer

PID = 1  # of every node that the yard opens


async def test_what_a_dead_process_held_stays_known_when_it_is_taken_from_it(
    backend: Backend,
):
    yard, evidence = Yard(backend), Evidence(backend)
    lane = await yard.lane()
    await yard.submit(lane, 4)
    walker = await yard.walker()
    first, *_ = await yard.claim(walker)
    await yard.settle(answer(first))
    assert await evidence.held_by(PID) == Held(claimed=3, taken=0)
    assert await evidence.claimed() == 3
    assert not await evidence.settled()
    await yard.close(walker.node, CERTAIN)
    assert len(await yard.sweep()) == 3
    assert await evidence.held_by(PID) == Held(claimed=0, taken=3)
    assert await evidence.held_by(PID + 1) == Held(claimed=0, taken=0)


async def test_the_end_is_when_no_row_waits_or_runs(backend: Backend):
    yard, evidence = Yard(backend), Evidence(backend)
    await yard.submit(await yard.lane(), 2)
    claimed = await yard.claim(await yard.walker())
    await yard.settle(*(answer(each) for each in claimed))
    assert await evidence.settled()
    totals = await evidence.totals()
    assert (totals.succeeded, totals.unsettled, totals.parked) == (2, 0, 0)
    assert (totals.attempts, totals.attempts_lost, totals.messages) == (2, 0, 0)
    begun = await evidence.begun()
    assert [each.pid for each in begun] == [PID, PID]
    assert [each.at for each in begun] == sorted(each.at for each in begun)
