"""Case 9: one endpoint that takes long for every request, and two hundred that do not."""

from __future__ import annotations

import pytest

from tenure.clock import US
from tenure.ids import new_work_id
from tenure.store.claims import NewWork, submit
from tenure.store.lanes import add_lane
from tenure.store.tx import Tx
from tenure.work.kinds import Guard, Prepared, Ran
from tests.work.rig import PROBE, SUCCESS, TENANT, Gate, Probe, Rig, until

OTHERS = 200
SLOTS = 40
LANE_MAX = 5  # an eighth of the slots


def quick_lanes(tx: Tx, group: int | None) -> None:
    """Make the other endpoints, each with one row that is due."""
    assert group is not None
    made = [
        add_lane(
            tx,
            group=group,
            kind=PROBE,
            tenant=TENANT,
            subject="lane",
            needs=PROBE,
            deadline_us=60 * US,
        )
        for _ in range(OTHERS)
    ]
    submit(
        tx,
        [
            NewWork(
                id=new_work_id(),
                lane=lane,
                kind=PROBE,
                tenant=TENANT,
                subject="quick",
            )
            for lane in made
        ],
    )


@pytest.mark.parametrize("fault", [True, False], ids=["slow", "control"])
async def test_case_09_one_endpoint_that_never_answers_keeps_no_other_from_starting(
    rig: Rig, fault: bool
) -> None:
    """Its requests are under way all the time: its whole deadline has not passed."""
    kind, gate = Probe(), Gate()

    async def hang(prepared: Prepared, guard: Guard) -> Ran:
        await gate.pass_through()
        return SUCCESS

    kind.plays["slow"] = hang
    slow = await rig.lane(60.0)
    member = await rig.member(kind, slots=SLOTS)
    if fault:
        await rig.submit(slow, *["slow"] * SLOTS)
        await until(lambda: kind.running[slow] == LANE_MAX)
    await rig.backend.write(lambda tx: quick_lanes(tx, rig.group))
    rig.wake()
    await until(lambda: kind.requests("quick") == OTHERS, "every other endpoint's")
    await until(lambda: len(member.loop.hand) == (LANE_MAX if fault else 0))
    assert kind.most[slow] == (LANE_MAX if fault else 0)
    assert not gate.opened.is_set()
    gate.opened.set()
    if fault:
        await until(lambda: kind.requests("slow") == SLOTS, "the slow ones in the end")
