from __future__ import annotations

from typing import Any

import pytest

from tenure.clock import US, SystemClock
from tenure.errors import DatabaseUnavailable
from tenure.limits import Durations
from tenure.store import nodes
from tenure.telemetry.events import Event
from tenure.work.pauses import Point
from tests.work.rig import QUICK, STILL, Held, Member, Rig, until, until_read

HOUR_US = 3_600 * US


class Jumping(SystemClock):
    """A process that was stopped: all its clocks run ahead at once."""

    __slots__ = ("stopped",)

    def __init__(self) -> None:
        self.stopped = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.stopped

    def boottime(self) -> float:
        return super().boottime() + self.stopped


async def beat(member: Member) -> None:
    """Beat now and wait until that beat and what it found are through."""
    before = member.node.beats.count
    member.node.beats.nudge()
    await until(lambda: member.node.beats.count > before, "another beat")


async def stood_still(rig: Rig, member: Member) -> float:
    """Return for how long the database says that a node's tick stood still."""
    rows = {row.id: row for row in await rig.backend.read(nodes.list_nodes)}
    row = rows[member.id]
    assert row.tick_at is not None
    return (row.beat_at - row.tick_at) / US


@pytest.mark.parametrize("fault", [True, False], ids=["stepped", "control"])
async def test_a_database_whose_clock_is_stepped_takes_nothing_from_a_slow_pass(
    rig: Rig, fault: bool
) -> None:
    pauses = Held()
    gate = pauses.hold(Point.CLAIMED)
    member = await rig.member(pauses=pauses, durations=QUICK, claims=False)
    sweeper = await rig.member(durations=QUICK, claims=False)
    (work,) = await rig.submit(await rig.lane(0.5), "m")
    rig.run(member)
    await gate.wait_entered()
    await beat(member)
    if fault:
        rig.backend.clock_offset_us += HOUR_US
    await beat(member)
    await beat(sweeper)
    await beat(member)
    assert await stood_still(rig, member) < QUICK.stall_grace_seconds
    gate.opened.set()
    row = await rig.until_state(work, "succeeded")
    assert row.losses == 0
    assert sweeper.count(Event.SWEPT) + member.count(Event.SWEPT) == 0


@pytest.mark.parametrize("fault", [True, False], ids=["stopped", "control"])
async def test_a_process_that_was_stopped_does_not_take_its_own_loop_for_dead(
    rig: Rig, fault: bool
) -> None:
    """Its beats may be the first to run again; it sweeps, being the only node."""
    clock = Jumping()
    member = await rig.member(clock=clock, claims=False)
    await beat(member)
    if fault:
        clock.stopped += 3_600
    await beat(member)
    assert await stood_still(rig, member) < STILL.stall_grace_seconds / 2


@pytest.mark.parametrize("fault", [True, False], ids=["stepped", "control"])
async def test_a_clock_stepped_while_a_claim_is_on_its_way_releases_nothing(
    rig: Rig, fault: bool
) -> None:
    pauses = Held()
    gate = pauses.hold(Point.CLAIMED)
    member = await rig.member(pauses=pauses, claims=False)
    (work,) = await rig.submit(await rig.lane(600.0), "m")
    rig.run(member)
    await gate.wait_entered()
    if fault:
        rig.backend.clock_offset_us += HOUR_US
    await beat(member)
    await beat(member)  # at once: the same comparison, not another one
    gate.opened.set()
    row = await rig.until_state(work, "succeeded")
    assert (row.claim, row.releases) == (1, 0)
    assert member.kind.requests("m") == 1


class Failing:
    """A database whose sweeps fail, and nothing else."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.sweeps = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write_blocking(self, fn: Any, *, retry: bool = True) -> Any:
        if getattr(fn, "__name__", "") == "_sweep_once":
            self.sweeps += 1
            raise DatabaseUnavailable("no sweeping")
        return self._inner.write_blocking(fn, retry=retry)


async def test_what_fails_at_every_beat_for_one_reason_is_told_once(rig: Rig) -> None:
    database: Any = Failing(rig.backend)
    member = await rig.member(backend=database, durations=Durations(50))
    await until(lambda: database.sweeps >= 4)
    assert member.count(Event.BEAT_FAILED) == 1
    assert member.node.beats.failing == "no sweeping"
    assert member.node.health().failing == "no sweeping"
    rows = await until_read(
        rig.backend, nodes.list_nodes, lambda rows: rows[0].beat > 4
    )
    assert rows[0].state == "open"
