"""Who is dead is told by beat numbers: clocks that disagree close nobody."""

from __future__ import annotations

import pytest

from tenure.clock import US
from tenure.store import nodes
from tenure.telemetry.events import Event
from tests.work.rig import Member, Rig, until


async def beat(member: Member) -> None:
    before = member.node.beats.count
    member.node.beats.nudge()
    await until(lambda: member.node.beats.count > before, "another beat")


@pytest.mark.parametrize(
    "step", [3_600.0, -3_600.0, 0.0], ids=["forward", "back", "control"]
)
async def test_a_peer_whose_beats_look_an_hour_old_by_the_clock_is_not_closed(
    rig: Rig, step: float
) -> None:
    """The clock steps between the beats of two nodes, which beat only when told."""
    one, two = await rig.member(), await rig.member()
    rig.backend.clock_offset_us += round(step * US)
    for member in (two, one, two):
        await beat(member)
    rows = await rig.backend.read(lambda tx: nodes.list_nodes(tx, closed=True))
    assert [(row.id, row.state) for row in rows] == [(one.id, "open"), (two.id, "open")]
    assert one.count(Event.PEER_CLOSED) + two.count(Event.PEER_CLOSED) == 0
