from __future__ import annotations

import pytest

from tenure.errors import InvariantViolated
from tenure.ids import LaneId
from tenure.store import lanes
from tests.store.yard import SECOND, TENANT, Yard


async def test_a_lanes_id_carries_its_group(yard: Yard):
    first, second = await yard.group(), await yard.group()
    made = [await yard.lane(group) for group in (first, second, first)]
    assert first != second
    assert [lane >> 24 for lane in made] == [first, second, first]
    assert len(set(made)) == 3


async def test_a_lane_starts_open_with_its_settings(yard: Yard):
    lane = await yard.lane(concurrency=3, rate_per_second=10, ordered=True)
    row = await yard.do(lambda tx: lanes.lane_row(tx, lane))
    assert row is not None
    assert (row.state, row.concurrency, row.rate_per_second) == ("open", 3, 10)
    assert (bool(row.ordered), row.order_policy, row.version) == (True, "block", 1)
    assert (row.tenant, row.subject, row.needs) == (TENANT, "ep_1", "test")
    assert row.deadline_us == 15 * SECOND
    assert row.created_at <= await yard.now()


async def test_every_change_raises_the_version(yard: Yard):
    lane = await yard.lane()
    change = lanes.change_lane
    assert await yard.do(lambda tx: change(tx, lane, state="paused")) == 2
    assert await yard.do(lambda tx: change(tx, lane, concurrency=None)) == 3
    row = await yard.do(lambda tx: lanes.lane_row(tx, lane))
    assert row is not None
    assert (row.state, row.version) == ("paused", 3)


async def test_what_is_not_a_setting_is_refused(yard: Yard):
    lane = await yard.lane()
    for name in ("tat", "version", "id", "colour"):
        with pytest.raises(InvariantViolated, match=name):
            await yard.do(
                lambda tx, name=name: lanes.change_lane(tx, lane, **{name: 1})
            )
    with pytest.raises(InvariantViolated, match="colour"):
        await yard.lane(colour="red")


async def test_lanes_and_groups_that_do_not_exist_are_refused(yard: Yard):
    with pytest.raises(InvariantViolated, match="lane 77"):
        await yard.do(lambda tx: lanes.change_lane(tx, LaneId(77), state="open"))
    with pytest.raises(InvariantViolated, match="group 77"):
        await yard.lane(77)
    assert await yard.do(lambda tx: lanes.lane_row(tx, LaneId(77))) is None


async def test_a_full_group_is_refused_instead_of_running_into_the_next(yard: Yard):
    group = await yard.group()
    await yard.do(lambda tx: tx.run(f"UPDATE lane_group SET next_lane = {1 << 24}"))
    with pytest.raises(InvariantViolated, match="full"):
        await yard.lane(group)
