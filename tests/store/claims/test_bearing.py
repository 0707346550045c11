"""Rows that are inserted as their node's first claim, and those that must not be."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.ids import LaneId, NodeId
from tenure.kernel.commands import Answer
from tenure.kernel.states import Phase, State
from tenure.store import claims, lanes
from tenure.store.claims import Birth, Claimed
from tests.store.yard import OK, SECOND, Yard, answer, new_work


def offer(node: NodeId, **changes: Any) -> Birth:
    given: dict[str, Any] = {
        "serves": frozenset({"test"}),
        "count": 10,
        "lane_max": 10,
        "busy": {},
        "skip": frozenset[LaneId](),
    }
    return Birth(node=node, **{**given, **changes})


async def bear(
    yard: Yard, lane: LaneId, birth: Birth, count: int = 1, **rest: Any
) -> list[Claimed]:
    rows = [new_work(lane, **rest) for _ in range(count)]
    return await yard.do(lambda tx: claims.submit(tx, rows, birth=birth))


async def test_a_row_is_born_as_claim_one_of_the_node_that_offered(yard: Yard):
    lane, node = await yard.lane(deadline_us=15 * SECOND), await yard.node()
    (one,) = await bear(yard, lane, offer(node))
    assert (one.work.state, one.work.claim, one.number) == (State.CLAIMED, 1, 1)
    assert (one.work.claimed_by, one.lane_version) == (node, 1)
    assert one.work.claimed_at is not None
    assert one.work.deadline_at == one.work.claimed_at + 15 * SECOND
    assert await yard.row(one.work.id) == one.work, "what it returns is stored"


async def test_what_was_born_is_settled_like_any_claim_and_by_nobody_else(yard: Yard):
    lane, node = await yard.lane(), await yard.node()
    (one,) = await bear(yard, lane, offer(node))
    assert await yard.claim(await yard.walker()) == []
    assert await yard.settle(answer(one, OK)) == [Answer.APPLIED]
    assert await yard.settle(answer(one, OK)) == [Answer.ALREADY]
    assert (await yard.row(one.work.id)).state is State.SUCCEEDED
    assert len(await yard.attempts(one.work.id)) == 1


async def test_what_was_born_is_lost_with_its_node_and_tried_by_another(yard: Yard):
    lane, node = await yard.lane(), await yard.node()
    (one,) = await bear(yard, lane, offer(node))
    await yard.close(node, claims.CERTAIN)
    assert [lost.work for lost in await yard.sweep()] == [one.work.id]
    (again,) = await yard.claim(await yard.walker())
    assert (again.work.id, again.work.claim, again.number) == (one.work.id, 2, 2)


@pytest.mark.parametrize(
    "settings",
    [
        {"concurrency": 5},
        {"rate_per_second": 5},
        {"half_open": True},
        {"ordered": True},
        {"state": "paused"},
        {"state": "blocked"},
        {"state": "deleted"},
        {"breaker_until": 1 << 60},
        {"needs": "flow:7"},
    ],
    ids=lambda settings: next(iter(settings.items())).__repr__(),
)
async def test_a_lane_that_asks_for_a_claim_bears_nothing(
    yard: Yard, settings: dict[str, Any]
):
    lane, node = await yard.lane(**settings), await yard.node()
    assert await bear(yard, lane, offer(node), 2) == []
    found = await yard.do(lambda tx: tx.all("SELECT state, phase, claim FROM work"))
    assert [tuple(row) for row in found] == [("ready", "due", 0)] * 2


async def test_a_row_in_a_line_asleep_or_due_later_is_not_born(yard: Yard):
    lane, node = await yard.lane(), await yard.node()
    later = await yard.now() + 60 * SECOND
    cases: list[dict[str, Any]] = [
        {"order_key": "k"},
        {"asleep": True},
        {"due_at": later},
    ]
    for rest in cases:
        assert await bear(yard, lane, offer(node), **rest) == []
    found = await yard.do(lambda tx: tx.all("SELECT phase FROM work"))
    phases = {Phase.DUE, Phase.ASLEEP, Phase.LATER}
    assert {row[0] for row in found} == {str(phase) for phase in phases}


@pytest.mark.parametrize("why", ["closed", "draining", "unknown"])
async def test_a_node_that_is_not_open_is_given_nothing(yard: Yard, why: str):
    lane, node = await yard.lane(), await yard.node()
    if why == "unknown":
        node = NodeId(999_999)
    else:
        await yard.do(
            lambda tx: tx.run(
                "UPDATE node SET state = :why WHERE id = :id", {"why": why, "id": node}
            )
        )
    assert await bear(yard, lane, offer(node)) == []
    assert len(await yard.claim(await yard.walker())) == 1


async def test_no_more_are_born_than_the_node_offered_and_a_lane_may_hold(yard: Yard):
    first, second, slow = [await yard.lane() for _ in range(3)]
    node = await yard.node()
    birth = offer(node, lane_max=4, busy={first: 3}, skip=frozenset({slow}), count=3)
    assert len(await bear(yard, first, birth, 5)) == 1
    assert len(await bear(yard, second, birth, 5)) == 3
    assert await bear(yard, slow, birth, 5) == []
    rest = await yard.claim(await yard.walker(), 100)
    assert len(rest) == 4 + 2 + 5, "the others wait for a claim"


async def test_a_pause_that_committed_before_is_seen(yard: Yard):
    lane, node = await yard.lane(), await yard.node()
    assert len(await bear(yard, lane, offer(node))) == 1
    await yard.do(lambda tx: lanes.change_lane(tx, lane, state="paused"))
    assert await bear(yard, lane, offer(node)) == []
