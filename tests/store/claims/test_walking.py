from __future__ import annotations

from collections import Counter
from math import ceil

import pytest

from tenure.ids import LaneId, new_work_id
from tenure.limits import WALK_LANES
from tenure.store import schema
from tenure.store.claims import Walker
from tenure.store.claims.walking import GROUPS_PER_STEP, Places, walk
from tenure.store.tx import Tx
from tests.store.yard import DEADLINE_US, TENANT, Yard


def lanes_with_work(groups: dict[int, int], rows: int = 1) -> list[LaneId]:
    """Name the lanes of these groups: so many in each."""
    return [
        LaneId((group << 24) | number)
        for group, count in groups.items()
        for number in range(1, count + 1)
    ]


async def fill(yard: Yard, groups: dict[int, int], rows: int = 1) -> list[LaneId]:
    lanes = lanes_with_work(groups)

    def insert(tx: Tx) -> None:
        tx.insert(
            schema.lane,
            [
                {
                    "id": lane,
                    "kind": "test",
                    "tenant": TENANT,
                    "subject": "ep_1",
                    "needs": "test",
                    "deadline_us": DEADLINE_US,
                    "created_at": tx.now,
                }
                for lane in lanes
            ],
        )
        tx.insert(
            schema.work,
            [
                {
                    "id": new_work_id(),
                    "lane": lane,
                    "kind": "test",
                    "tenant": TENANT,
                    "subject": "msg_1",
                    "state": "ready",
                    "phase": "due",
                    "due_at": tx.now,
                    "created_at": tx.now,
                }
                for lane in lanes
                for _ in range(rows)
            ],
        )

    await yard.do(insert)
    return lanes


async def walked(yard: Yard, places: Places, most: int = WALK_LANES) -> list[LaneId]:
    """Walk one step as if all of its lanes were offered."""

    def step(tx: Tx) -> list[LaneId]:
        found = walk(tx, places, most)
        places.passed(found, len(found.lanes))
        return [*found.lanes]

    return await yard.do(step)


async def test_nothing_due_is_an_empty_walk(yard: Yard):
    places = Places()
    assert await walked(yard, places) == []
    assert await yard.do(lambda tx: walk(tx, places).more) is False


async def test_a_step_visits_one_lane_of_each_group_in_turn(yard: Yard):
    await fill(yard, {1: 3, 2: 1, 7: 2})
    lanes = await walked(yard, Places())
    assert [lane >> 24 for lane in lanes] == [1, 2, 7, 1, 7, 1]
    assert len(set(lanes)) == 6


async def test_a_step_visits_at_most_its_bound_and_goes_on_from_there(yard: Yard):
    lanes = await fill(yard, {1: 1_000})
    places = Places()
    seen: set[LaneId] = set()
    for _ in range(ceil(1_000 / WALK_LANES)):
        step = await walked(yard, places)
        assert len(step) == WALK_LANES
        seen.update(step)
    assert seen == set(lanes)


async def test_the_bound_of_a_step_is_shared_among_its_groups(yard: Yard):
    await fill(yard, {1: 120, 2: 120, 3: 120})
    lanes = await walked(yard, Places())
    assert len(lanes) <= WALK_LANES
    assert Counter(lane >> 24 for lane in lanes) == dict.fromkeys((1, 2, 3), 85)


async def test_every_lane_is_served_within_one_circle(yard: Yard):
    lanes = await fill(yard, {1: 1_000}, rows=3)
    walker = await yard.walker()
    served: set[LaneId] = set()
    for _ in range(ceil(1_000 / WALK_LANES) + 1):
        claimed = await yard.claim(walker, WALK_LANES)
        assert len(claimed) == WALK_LANES
        served.update(one.work.lane for one in claimed)
    assert served == set(lanes)


@pytest.mark.parametrize(
    "groups",
    [{1: 12}, {1: 6, 2: 6}, dict.fromkeys(range(1, 36), 1), {1: 9, 9: 1, 10: 1}],
    ids=["one group", "two groups", "many groups", "two lone lanes"],
)
async def test_a_node_with_one_free_slot_serves_every_lane_in_turn(
    yard: Yard, groups: dict[int, int]
):
    lanes = await fill(yard, groups, rows=20)
    walker = await yard.walker()
    served: list[LaneId] = []
    for _ in range(len(groups) * max(groups.values()) + 1):
        served += [one.work.lane for one in await yard.claim(walker, 1)]
    assert set(served) == set(lanes)


async def test_a_group_with_thousands_of_busy_lanes_hides_no_lone_lane(yard: Yard):
    *_, lone = await fill(yard, {1: 5_000, 2: 1})
    walker = await yard.walker()
    first = await yard.claim(walker, 20)
    assert lone in {one.work.lane for one in first}


async def test_more_groups_than_a_step_holds_are_reached_in_the_next(yard: Yard):
    count = GROUPS_PER_STEP + 5
    lanes = await fill(yard, dict.fromkeys(range(1, count + 1), 1))
    places = Places()
    first, second = [set(await walked(yard, places)) for _ in range(2)]
    assert len(first) == GROUPS_PER_STEP
    assert first | second == set(lanes)


async def test_blocked_lanes_are_passed_and_the_walk_says_that_it_goes_on(yard: Yard):
    blocked = await fill(yard, {1: 600})
    await yard.do(lambda tx: tx.run("UPDATE lane SET state = 'blocked'"))
    open_lane = (await fill(yard, {2: 1}))[0]
    await yard.do(
        lambda tx: tx.run(
            "UPDATE work SET lane = :to WHERE lane = :lane",
            {"to": blocked[-1], "lane": open_lane},
        )
    )
    await yard.do(
        lambda tx: tx.run(
            "UPDATE lane SET state = 'open' WHERE id = :id", {"id": blocked[-1]}
        )
    )
    walker = await yard.walker()
    results = [await yard.claim_result(walker, 10)]
    while not results[-1].claimed:
        assert results[-1].hit_bound
        results.append(await yard.claim_result(walker, 10))
    assert len(results) <= ceil(600 / WALK_LANES)
    assert {one.work.lane for one in results[-1].claimed} == {blocked[-1]}


async def test_a_circle_that_found_everything_closed_says_so(yard: Yard):
    await fill(yard, {1: 10})
    await yard.do(lambda tx: tx.run("UPDATE lane SET state = 'paused'"))
    result = await yard.claim_result(await yard.walker(), 10)
    assert (result.claimed, result.hit_bound) == ([], False)


@pytest.mark.parametrize(
    ("groups", "steps"),
    [
        ({1: 600}, 3),
        ({1: 300, 2: 300}, 3),
        (dict.fromkeys(range(1, 41), 10), 4),
        ({**dict.fromkeys(range(1, 41), 1), 50: 300}, 100),
    ],
    ids=["one group", "two groups", "many groups", "one large among many"],
)
async def test_a_circle_over_more_closed_lanes_than_a_step_visits_ends(
    yard: Yard, groups: dict[int, int], steps: int
):
    lanes = await fill(yard, groups)
    await yard.do(lambda tx: tx.run("UPDATE lane SET state = 'paused'"))
    walker = await yard.walker()
    for start in (Places(), Places(group=2, lanes={1: lanes[5] + 1})):
        walker.places = start
        seen = 0
        while (await yard.claim_result(walker, 10)).hit_bound:
            seen += 1
            assert seen < steps, "it never ends"
    await yard.do(
        lambda tx: tx.run(
            "UPDATE lane SET state = 'open' WHERE id = :id", {"id": lanes[-1]}
        )
    )
    results = [await yard.claim_result(walker, 10)]
    while results[-1].hit_bound and not results[-1].claimed:
        results.append(await yard.claim_result(walker, 10))
    assert [one.work.lane for one in results[-1].claimed] == [lanes[-1]]


async def test_places_are_hints_that_any_node_may_lack(yard: Yard):
    lanes = await fill(yard, {1: 5}, rows=2)
    walker = await yard.walker()
    walker.places = Places(group=99, lanes={1: (1 << 24) | 4, 50: 7})
    claimed = await yard.claim(walker, 5)
    assert {one.work.lane for one in claimed} == set(lanes)


async def test_what_a_node_remembers_is_bounded(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tenure.store.claims.walking.WALK_PLACES_MAX", 3)
    await fill(yard, dict.fromkeys(range(1, 11), 2), rows=5)
    walker = Walker(node=await yard.node(), serves=frozenset({"test"}))
    for _ in range(20):
        await yard.claim(walker, 1)
        assert len(walker.places.lanes) <= 4
