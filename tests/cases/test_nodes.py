"""Cases 4 to 9, 18 and 25: slow receivers, poison, bad rows, lost answers, drains."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tenure.clock import SystemClock
from tenure.errors import DatabaseUnavailable
from tenure.ids import WorkId
from tenure.store.backend import Backend, CommitUnknown
from tenure.store.claims import Effect, Settled, Write
from tenure.store.tx import Tx
from tenure.telemetry.events import Event
from tenure.work.kinds import Guard, Prepared, Ran
from tenure.work.pauses import Point
from tests.work.rig import (
    QUICK,
    SUCCESS,
    Held,
    Member,
    Probe,
    Rig,
    failure,
    until,
)


@pytest.mark.parametrize("seconds", [0.7, 4.5])
async def test_case_04_a_slow_receiver_among_three_nodes_gets_one_request(
    rig: Rig, seconds: float
) -> None:
    # 7 s and 45 s against a deadline of 60 s, divided by the factor of `QUICK`.
    kind = Probe()

    async def play(prepared: Prepared, guard: Guard) -> Ran:
        await asyncio.sleep(seconds)
        return SUCCESS

    kind.plays["m"] = play
    members = [await rig.member(kind, durations=QUICK) for _ in range(3)]
    (work,) = await rig.submit(await rig.lane(6.0), "m")
    row = await rig.until_state(work, "succeeded")
    assert kind.requests("m") == 1
    assert (row.claim, row.losses) == (1, 0)
    assert sum(m.count(Event.CLAIM_NO_LONGER_HELD) for m in members) == 0


async def test_case_05_a_row_that_kills_its_node_is_quarantined_and_spares_others(
    rig: Rig,
) -> None:
    lane, slow_lane = await rig.lane(), await rig.lane()
    works: dict[str, WorkId] = {}
    for life in (1, 2):
        kind = Probe()
        gate, slow = kind.hold("poison"), kind.hold("slow")
        member = await rig.member(kind, durations=QUICK)
        if life == 1:
            (works["poison"],) = await rig.submit(lane, "poison")
            (works["slow"],) = await rig.submit(slow_lane, "slow")
        await gate.wait_entered()
        await slow.wait_entered()
        await member.kill()
    third = Probe()
    gate = third.hold("poison")
    third.answer("slow", SUCCESS)
    member = await rig.member(third, durations=QUICK)
    await gate.wait_entered()
    alone = await rig.row(works["poison"])
    assert (alone.losses, alone.alone, alone.failures) == (2, True, 0)
    await member.kill()
    last = await rig.member(Probe(), durations=QUICK)
    parked = await rig.until_state(works["poison"], "parked")
    assert (parked.reason, parked.losses, parked.failures) == ("quarantined", 3, 0)
    delivered = await rig.until_state(works["slow"], "succeeded")
    assert delivered.losses <= 2
    (other,) = await rig.submit(lane, "other")
    await rig.until_state(other, "succeeded")
    assert last.kind.requests("poison") == 0


async def test_case_05_control_without_the_kills_nothing_is_quarantined(
    rig: Rig,
) -> None:
    member = await rig.member(durations=QUICK)
    (work,) = await rig.submit(await rig.lane(), "poison")
    row = await rig.until_state(work, "succeeded")
    assert row.losses == 0
    assert member.count(Event.SUSPECT) == 0


@pytest.mark.parametrize("fault", [True, False], ids=["undecodable", "control"])
async def test_case_06_a_row_that_cannot_be_decoded_is_parked_and_no_other(
    rig: Rig, fault: bool
) -> None:
    kind = Probe()
    kind.undecodable = {"c"} if fault else set()
    member = await rig.member(kind, claims=False)
    works = dict(zip("abcd", await rig.submit(await rig.lane(), *"abcd"), strict=True))
    rig.run(member)
    for name in "abd":
        await rig.until_state(works[name], "succeeded")
    row = await rig.until_state(works["c"], "parked" if fault else "succeeded")
    if fault:
        assert row.reason == "cannot be loaded: UnicodeDecodeError"
    assert kind.requests("c") == int(not fault)


def keeps(item: Settled, value: bytes | None) -> list[Effect]:
    return [
        Write(
            stmt="INSERT INTO setting (name, value, updated_at) VALUES (:n, :v, 0)",
            params={"n": f"evidence {item.before.subject}", "v": value},
        )
    ]


async def evidence(rig: Rig) -> list[str]:
    rows = await rig.backend.read(
        lambda tx: tx.all(
            "SELECT name FROM setting WHERE name LIKE 'evidence %' ORDER BY name"
        )
    )
    return [row[0].removeprefix("evidence ") for row in rows]


async def batch_settled(rig: Rig, kind: Probe) -> tuple[Member, dict[str, WorkId]]:
    """Run four rows whose results are written together."""
    gate = asyncio.Event()

    async def play(prepared: Prepared, guard: Guard) -> Ran:
        await gate.wait()
        return SUCCESS

    kind.default = play
    member = await rig.member(kind)
    works = dict(zip("abcd", await rig.submit(await rig.lane(), *"abcd"), strict=True))
    await until(lambda: kind.running.total() == 4)
    gate.set()
    for work in works.values():
        await rig.until_state(work, "succeeded")
    return member, works


@pytest.mark.parametrize("fault", [True, False], ids=["refused", "control"])
async def test_case_07_a_result_that_cannot_be_stored_is_stored_without_its_evidence(
    rig: Rig, fault: bool
) -> None:
    kind = Probe()
    kind.evidence_of = lambda item: keeps(
        item, None if fault and item.before.subject == "b" else b"x"
    )
    member, _ = await batch_settled(rig, kind)
    assert await evidence(rig) == (["a", "c", "d"] if fault else ["a", "b", "c", "d"])
    assert sorted(kind.begun) == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]
    assert member.count(Event.RESULT_REFUSED) == (2 if fault else 0)


async def test_a_row_whose_effects_fail_is_parked_and_never_sent_again(
    rig: Rig,
) -> None:
    kind = Probe()
    kind.effects_of = lambda item: keeps(item, None)
    kind.answer("m", failure())
    await rig.member(kind)
    (work,) = await rig.submit(await rig.lane(), "m")
    row = await rig.until_state(work, "parked")
    assert row.reason == "effects failed"
    assert kind.requests("m") == 1


class Interrupted:
    """A database whose answers to settlements can be lost on their way."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.lose: list[str] = []
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, fn: Callable[[Tx], Any], *, retry: bool = True) -> Any:
        if fn.__name__ not in {"together", "alone"} or not self.lose:
            return await self._inner.write(fn, retry=retry)
        how = self.lose.pop(0)
        self.lost += 1
        match how:
            case "after":
                await self._inner.write(fn, retry=retry)
                raise CommitUnknown("the answer was lost")
            case "before":
                raise CommitUnknown("the request was lost")
            case _:
                raise DatabaseUnavailable("away")


@pytest.mark.parametrize(
    "lose", [[], ["after"], ["before"], ["after", "before", "after"], ["away"] * 4]
)
async def test_case_08_a_result_whose_commit_is_unknown_is_asked_again(
    rig: Rig, lose: list[str]
) -> None:
    database = Interrupted(rig.backend)
    database.lose = list(lose)
    kind = Probe()
    kind.answer("m", failure(retry_at=4_000_000_000_000_000))
    backend: Any = database
    member = await rig.member(kind, backend=backend)
    (work,) = await rig.submit(await rig.lane(), "m")
    row = await rig.until_row(work, lambda row: row.failures > 0)
    await until(lambda: not member.loop.hand)
    assert database.lost == len(lose)
    assert await rig.row(work) == row
    assert (row.state, row.failures, row.tries, row.claim) == ("ready", 1, 1, 1)
    assert kind.requests("m") == 1
    assert member.count(Event.CLAIM_NO_LONGER_HELD) == 0


async def test_case_09_hung_receivers_never_keep_the_others_from_starting(
    rig: Rig,
) -> None:
    # Four lanes of four fill the node, so that each is known to be slow afterwards.
    kind, slow = Probe(), [await rig.lane(1.0) for _ in range(4)]
    beside: list[int] = []

    async def hang(prepared: Prepared, guard: Guard) -> Ran:
        beside.append(sum(kind.running[lane] for lane in slow))
        await asyncio.sleep(guard.deadline - SystemClock().monotonic())
        return failure(retry_at=guard.instant(), reason="timeout")

    kind.plays.update(dict.fromkeys((f"h{n}" for n in range(8)), hang))
    await rig.member(kind, slots=16, durations=QUICK)
    for lane in slow:
        await rig.submit(lane, *(f"h{n}" for n in range(8)))
    await until(lambda: len(beside) >= 16)  # the first fill may take every slot
    others = [
        work for _ in range(20) for work in await rig.submit(await rig.lane(), *"abcde")
    ]
    for work in others:
        await rig.until_state(work, "succeeded")
    await until(lambda: len(beside) >= 32)
    assert max(beside[:16]) > 8
    assert max(beside[16:]) <= 8


class Jumping(SystemClock):
    """A machine that was suspended: its boottime runs ahead, the rest does not."""

    __slots__ = ("slept",)

    def __init__(self) -> None:
        self.slept = 0.0

    def boottime(self) -> float:
        return super().boottime() + self.slept


@pytest.mark.parametrize("fault", [True, False], ids=["paused", "control"])
async def test_case_18_a_node_that_was_paused_starts_nothing_under_an_old_claim(
    rig: Rig, fault: bool
) -> None:
    clock, pauses = Jumping(), Held()
    gate = pauses.hold(Point.LOADED)
    member = await rig.member(clock=clock, pauses=pauses)
    (work,) = await rig.submit(await rig.lane(), "m")
    await gate.wait_entered()
    if fault:
        clock.slept = 3600.0
        assert not member.loop.hand[work, 1].may_begin()
    gate.opened.set()
    if not fault:
        await rig.until_state(work, "succeeded")
        return
    # A claim that was under way as the node paused is given back like the first.
    row = await rig.until_row(
        work, lambda row: row.releases > 0 and row.state == "ready"
    )
    assert (row.losses, row.failures) == (0, 0)
    assert member.kind.begun == []


async def test_case_25_a_drain_records_what_ends_cuts_what_does_not_releases_the_rest(
    rig: Rig,
) -> None:
    kind, pauses = Probe(), Held()
    ends, hangs = kind.hold("ends"), kind.hold("hangs")
    member = await rig.member(kind, pauses=pauses, durations=QUICK, drain_seconds=0.3)
    lane = await rig.lane()
    (ended,) = await rig.submit(lane, "ends")
    (hung,) = await rig.submit(lane, "hangs")
    await ends.wait_entered()
    await hangs.wait_entered()
    loaded = pauses.hold(Point.LOADED)
    (waiting,) = await rig.submit(lane, "waits")
    await loaded.wait_entered()
    stopping = asyncio.create_task(member.stop())
    await until(lambda: member.count(Event.DRAINING))
    ends.opened.set()
    drained = await stopping
    assert (drained.finished, drained.cut, drained.released) == (1, 1, 1)
    assert drained.unwritten == 0
    assert drained.took_seconds < drained.budget_seconds + drained.settle_seconds
    assert (await rig.row(ended)).state == "succeeded"
    cut = await rig.row(hung)
    assert (cut.state, cut.phase, cut.failures, cut.losses) == ("ready", "due", 0, 0)
    attempt = await rig.attempt(hung, 1)
    assert attempt is not None
    assert attempt.outcome == "cut"
    released = await rig.row(waiting)
    assert (released.state, released.releases) == ("ready", 1)
    assert await rig.attempt(waiting, 1) is None
    state = await rig.backend.read(lambda tx: tx.scalar("SELECT state FROM node"))
    assert state == "closed"


async def test_case_25_control_a_drain_with_nothing_in_flight_ends_at_once(
    rig: Rig,
) -> None:
    member = await rig.member()
    drained = await member.stop()
    assert (drained.finished, drained.cut, drained.released) == (0, 0, 0)
    assert drained.budget_seconds == 0


async def test_a_second_signal_cuts_what_is_in_flight(rig: Rig) -> None:
    kind = Probe()
    gate = kind.hold("m")
    member = await rig.member(kind)
    (work,) = await rig.submit(await rig.lane(), "m")
    await gate.wait_entered()
    stopping = asyncio.create_task(member.stop())
    await until(lambda: member.count(Event.DRAINING))
    assert not stopping.done()
    member.drain.hurry()
    assert (await stopping).cut == 1
    assert (await rig.row(work)).state == "ready"
