"""Cases 2f, 19 and 19a, and a loop that stalls: nodes whose world misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tenure.clock import US, SystemClock
from tenure.errors import DatabaseUnavailable
from tenure.limits import Durations
from tenure.store import nodes
from tenure.store.backend import Backend
from tenure.telemetry.events import Event
from tenure.work.kinds import Guard, Prepared, Ran
from tenure.work.pauses import Point
from tests.databases import MakeBackend
from tests.work.rig import (
    SUCCESS,
    Held,
    Member,
    Probe,
    Rig,
    failure,
    rigged,
    until,
)

HOUR = 3_600.0
SOON_US = 300_000
FAST = Durations(20)
"""Beats four times a second; fence 1.25 s, dead after 2 s, a stalled loop's grace 3 s."""


class Stepped(SystemClock):
    """The wall clock of one machine, as its operator or NTP sets it."""

    __slots__ = ("step",)

    def __init__(self) -> None:
        self.step = 0.0

    def wall_us(self) -> int:
        return super().wall_us() + round(self.step * US)


@pytest_asyncio.fixture
async def stepped(make_backend: MakeBackend) -> AsyncIterator[tuple[Rig, Stepped]]:
    """A fleet whose nodes' machine may step its clock."""
    clock = Stepped()
    async with rigged(await make_backend(clock=clock)) as made:
        yield made, clock


async def beats(member: Member, count: int) -> None:
    """Wait until a node has beaten so often again."""
    before = member.node.beats.count
    await until(lambda: member.node.beats.count >= before + count, "beats")


async def everyone_is_open(rig: Rig, *members: Member) -> None:
    rows = await rig.backend.read(lambda tx: nodes.list_nodes(tx, closed=True))
    assert [(row.id, row.state) for row in rows] == [
        (member.id, "open") for member in members
    ]


async def play_slowly(begun: list[int], prepared: Prepared, guard: Guard) -> Ran:
    """Fail once with a retry soon after, then succeed; note when each was begun."""
    begun.append(guard.instant())
    if len(begun) == 1:
        return failure(retry_at=guard.instant() + SOON_US)
    return SUCCESS


@pytest.mark.parametrize("step", [-HOUR, HOUR, 0.0], ids=["back", "forward", "control"])
async def test_case_19_a_nodes_clock_that_is_stepped_makes_nothing_early_late_or_double(
    stepped: tuple[Rig, Stepped], dialect: str, step: float
) -> None:
    rig, clock = stepped
    if dialect == "sqlite" and step > 0:
        pytest.skip("on SQLite the host's clock is the database's: an hour has passed")
    kind, begun = Probe(), list[int]()

    async def play(prepared: Prepared, guard: Guard) -> Ran:
        return await play_slowly(begun, prepared, guard)

    kind.plays["m"] = play
    member = await rig.member(kind, clock=clock, durations=FAST)
    now = await rig.backend.read(lambda tx: tx.now)
    (work,) = await rig.submit(await rig.lane(600.0), "m", due_at=now + SOON_US)
    clock.step = step
    row = await rig.until_state(work, "succeeded")
    first, second = begun
    assert first >= now + SOON_US
    assert second >= first + SOON_US
    assert second < now + 60 * US  # and not an hour from now
    assert (row.failures, row.losses) == (1, 0)
    await beats(member, 2)
    await everyone_is_open(rig, member)


@pytest.mark.parametrize("step", [-60.0, 60.0], ids=["back", "forward"])
async def test_case_19a_a_database_whose_clock_is_stepped_declares_nobody_dead(
    rig: Rig, step: float
) -> None:
    kind, pauses = Probe(), Held()
    running = kind.hold("running")
    one = await rig.member(kind, durations=FAST, pauses=pauses)
    (begun,) = await rig.submit(await rig.lane(10.0), "running")
    await running.wait_entered()
    loaded = pauses.hold(Point.LOADED)
    (waiting,) = await rig.submit(await rig.lane(10.0), "waiting")
    await loaded.wait_entered()
    two = await rig.member(kind, durations=FAST, claims=False)
    rig.run(two)
    rig.backend.clock_offset_us += round(step * US)
    # Each compared its claims with memory, watched the other, and swept.
    await beats(one, 3)
    await beats(two, 3)
    loaded.opened.set()
    running.opened.set()
    for work in (begun, waiting):
        row = await rig.until_state(work, "succeeded")
        assert (row.claim, row.losses, row.failures, row.releases) == (1, 0, 0, 0)
    assert (kind.requests("running"), kind.requests("waiting")) == (1, 1)
    (later,) = await rig.submit(await rig.lane(), "later")
    await rig.until_state(later, "succeeded")
    await everyone_is_open(rig, one, two)
    assert one.count(Event.PEER_CLOSED) + two.count(Event.PEER_CLOSED) == 0


class Away:
    """A database that no node can reach for as long as `away` is set."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _look(self) -> None:
        if self.away:
            raise DatabaseUnavailable("away")

    async def write(self, fn: Any, *, retry: bool = True) -> Any:
        self._look()
        return await self._inner.write(fn, retry=retry)

    async def read(self, fn: Any) -> Any:
        self._look()
        return await self._inner.read(fn)

    def write_blocking(self, fn: Any, *, retry: bool = True) -> Any:
        self._look()
        return self._inner.write_blocking(fn, retry=retry)


@pytest.mark.parametrize("fault", [True, False], ids=["away", "control"])
async def test_case_19a_a_database_away_for_long_kills_nobody_and_charges_nothing(
    rig: Rig, fault: bool
) -> None:
    database: Any = Away(rig.backend)
    kind = Probe()
    gate = kind.hold("m")
    members = [
        await rig.member(kind, backend=database, durations=FAST) for _ in range(2)
    ]
    (work,) = await rig.submit(await rig.lane(600.0), "m")
    await gate.wait_entered()
    if fault:
        database.away = True
        for member in members:
            await until(lambda m=member: m.count(Event.FENCED) == 1, "a fence")
            await until(
                lambda m=member: m.node.health().beat_age > 2 * FAST.dead_after_seconds,
                "an outage longer than a silent node may live",
            )
        gate.opened.set()
        holder = next(member for member in members if member.loop.hand)
        await until(lambda: holder.count(Event.RESULT_WAITS) == 1, "a kept result")
        database.away = False
    gate.opened.set()
    row = await rig.until_state(work, "succeeded")
    assert (row.claim, row.losses, row.failures) == (1, 0, 0)
    assert kind.requests("m") == 1
    for member in members:
        await beats(member, 3)
    await everyone_is_open(rig, *members)
    (later,) = await rig.submit(await rig.lane(), "later")
    await rig.until_state(later, "succeeded")
    for member in members:
        assert member.count(Event.BEAT_FAILED) == int(fault)  # a line, not one a beat
        assert member.count(Event.CLAIM_FAILED) <= 1
        assert member.count(Event.PEER_CLOSED) == 0


async def test_a_loop_that_stalled_starts_nothing_when_it_comes_back(
    rig: Rig,
) -> None:
    pauses, kind = Held(), Probe()
    gate = pauses.hold(Point.CLAIMED)
    stalled = await rig.member(kind, pauses=pauses, durations=FAST, claims=False)
    (work,) = await rig.submit(await rig.lane(1.0), "m")
    rig.run(stalled)
    await gate.wait_entered()
    await until(lambda: stalled.node.beats.stalled, "a stalled loop")
    assert not stalled.node.health().good
    other = await rig.member(durations=FAST)
    await rig.until_state(work, "succeeded")
    assert other.kind.begun == [("m", 2)]
    attempt = await rig.attempt(work, 1)
    assert attempt is not None
    assert "stalled" in (attempt.reason or "")
    gate.opened.set()
    await until(lambda: not stalled.loop.hand and not stalled.loop.claiming_since)
    assert kind.begun == []
    row = await rig.row(work)
    assert (row.state, row.claim, row.losses, row.failures) == ("succeeded", 2, 1, 0)
    assert stalled.count(Event.STALLED) == 1


async def test_case_02f_at_a_reload_the_old_engine_drains_beside_the_new_one(
    rig: Rig,
) -> None:
    kind, fresh = Probe(), Probe()
    gate = kind.hold("m")
    old = await rig.member(kind, durations=FAST)
    (work,) = await rig.submit(await rig.lane(), "m")
    await gate.wait_entered()
    stopping = asyncio.create_task(old.stop())
    await until(lambda: old.count(Event.DRAINING), "a drain")
    new = await rig.member(fresh, durations=FAST)
    # Their locks are two, although they are of one process: nobody is taken for dead.
    await beats(new, 4)
    (next_one,) = await rig.submit(await rig.lane(), "next")
    await rig.until_state(next_one, "succeeded")
    row = await rig.row(work)
    assert (row.state, row.claimed_by, row.losses) == ("claimed", old.id, 0)
    gate.opened.set()
    assert (await stopping).finished == 1
    assert (await rig.row(work)).state == "succeeded"
    assert (kind.begun, fresh.begun) == ([("m", 1)], [("next", 1)])
    assert new.count(Event.PEER_CLOSED) + new.count(Event.SWEPT) == 0
