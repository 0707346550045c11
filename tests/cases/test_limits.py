"""Case 25: a stop with a hundred requests in flight stays inside its budget."""

from __future__ import annotations

import asyncio
from collections import Counter

from tenure.ids import WorkId
from tenure.telemetry.events import Event
from tenure.work.kinds import Guard, Prepared, Ran
from tenure.work.pauses import Point
from tests.work.rig import SUCCESS, Held, Probe, Rig, until

ENDS, HANGS, WAITS = 60, 30, 10


async def test_case_25_of_a_hundred_in_flight_none_is_lost_charged_or_kept_too_long(
    rig: Rig,
) -> None:
    kind, pauses, answered = Probe(), Held(), asyncio.Event()

    async def ends(prepared: Prepared, guard: Guard) -> Ran:
        await answered.wait()
        return SUCCESS

    async def hangs(prepared: Prepared, guard: Guard) -> Ran:
        await asyncio.Event().wait()
        return SUCCESS

    kind.plays = {"ends": ends, "hangs": hangs}
    member = await rig.member(kind, slots=128, pauses=pauses, drain_seconds=1.0)
    lanes = [await rig.lane() for _ in range(10)]

    async def submit(subject: str, count: int) -> list[WorkId]:
        each = [subject] * (count // len(lanes))
        return [work for lane in lanes for work in await rig.submit(lane, *each)]

    works = {"ends": await submit("ends", ENDS), "hangs": await submit("hangs", HANGS)}
    await until(lambda: kind.running.total() == ENDS + HANGS)
    loaded = pauses.hold(Point.LOADED)
    works["waits"] = await submit("waits", WAITS)
    await loaded.wait_entered()
    await until(lambda: len(member.loop.hand) == ENDS + HANGS + WAITS)
    stopping = asyncio.create_task(member.stop())
    await until(lambda: member.count(Event.DRAINING))
    answered.set()
    drained = await stopping
    assert (drained.finished, drained.cut, drained.released) == (ENDS, HANGS, WAITS)
    assert drained.unwritten == 0
    assert drained.took_seconds < drained.budget_seconds + drained.settle_seconds

    async def kept(subject: str) -> Counter[tuple[str, str | None, int, int, int]]:
        found = [await rig.row(work) for work in works[subject]]
        return Counter(
            (str(row.state), row.phase, row.failures, row.losses, row.releases)
            for row in found
        )

    assert await kept("ends") == {("succeeded", None, 0, 0, 0): ENDS}
    assert await kept("hangs") == {("ready", "due", 0, 0, 0): HANGS}, "due at once"
    assert await kept("waits") == {("ready", "due", 0, 0, 1): WAITS}
    outcomes = await rig.backend.read(
        lambda tx: tx.all("SELECT outcome, count(*) FROM attempt GROUP BY outcome")
    )
    assert {row[0]: row[1] for row in outcomes} == {"succeeded": ENDS, "cut": HANGS}
