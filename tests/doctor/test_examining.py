from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tenure.clock import Clock, SettableClock
from tenure.doctor import (
    CHECKS,
    About,
    Grade,
    Report,
    examine,
    examine_snapshot,
    healing,
)
from tenure.doctor.model import Check, Suspect
from tenure.kernel.states import State
from tenure.limits import DOCTOR_SHOWN_MAX
from tenure.outbox.keyring import KeyRing, new_key
from tenure.store.backend import Backend
from tenure.store.tx import Tx
from tenure.work.filelock import FileLock
from tests.doctor.yard import BREAKS, Full, fill
from tests.outbox.world import run
from tests.store.yard import OK, Yard, answer, retry

PLAIN = About()
ELSEWHERE = {"node.lock", "deployment.identity", "deployment.ring", "endpoint.secrets"}
"""Checks of what lies outside of the database; tested beside them."""
SERVERS = {"database.pinned"}
"""Checks that one of the databases has no use for."""


class _Undo(Exception):
    pass


class AtOnce(SettableClock):
    """The second look comes at once."""

    async def sleep(self, seconds: float) -> None:
        del seconds


async def examined(
    backend: Backend, about: About = PLAIN, *, clock: Clock | None = None, **how: Any
) -> Report:
    return await examine(backend, about=about, clock=clock or AtOnce(), **how)


async def codes_after(backend: Backend, full: Full, statements: Any) -> set[str]:
    """Break something, see what is found, and take it back."""
    seen: set[str] = set()

    def look(tx: Tx) -> None:
        for statement in statements:
            used = {k: v for k, v in full.params.items() if f":{k}" in statement}
            tx.run(statement, used)
        seen.update(found.code for found in examine_snapshot(tx).findings)
        raise _Undo

    with pytest.raises(_Undo):
        await backend.write(look)
    return seen


async def test_a_database_with_some_of_everything_is_clean(backend: Backend):
    full = await fill(backend)
    about = About(ring=full.ring, deployment="")
    report = await examined(backend, about)
    assert report.findings == ()
    assert report.clean
    assert report.examined["work"] == 7
    assert report.examined["message"] == 2


async def test_each_check_finds_what_breaks_its_invariant(backend: Backend):
    full = await fill(backend)
    missed = {
        code
        for code, statements in BREAKS.items()
        if code not in await codes_after(backend, full, statements)
    }
    assert missed == set()
    assert {check.code for check in CHECKS} == set(BREAKS) | ELSEWHERE | SERVERS


async def test_pages_of_any_size_see_every_row_once(backend: Backend):
    await fill(backend)
    await run(backend, "UPDATE work SET settled_at = 1 WHERE state = 'ready'")
    reports = [await examined(backend, page_rows=rows) for rows in (1, 2, 6, 7)]
    assert [report.examined for report in reports] == [reports[0].examined] * 4
    assert reports[0].examined["work"] == 7
    wheres = [sorted(found.where for found in report.faults) for report in reports]
    assert wheres == [wheres[0]] * 4
    assert len(wheres[0]) == 5


async def test_a_row_that_is_right_at_the_second_look_is_no_fault(backend: Backend):
    full = await fill(backend)
    await run(backend, "UPDATE work SET settled_at = 1 WHERE id = :id", id=full.tried)

    class Mending(SettableClock):
        async def sleep(self, seconds: float) -> None:
            del seconds
            await run(backend, "UPDATE work SET settled_at = NULL")

    assert (await examined(backend)).clean is False
    assert (await examined(backend, clock=Mending())).findings == ()


async def test_what_is_safe_is_healed_and_said_to_be(backend: Backend):
    full = await fill(backend)
    for code in ("order.front", "work.asleep", "work.overdue"):
        for statement in BREAKS[code]:
            used = {k: v for k, v in full.params.items() if f":{k}" in statement}
            await run(backend, statement, **used)
    broken = await examined(backend)
    assert {f.code for f in broken.faults} == {
        "order.front",
        "work.asleep",
        "work.overdue",
    }
    healed = await examined(backend, heal=True)
    assert {f.code for f in healed.findings if f.healed} == {
        "order.front",
        "work.asleep",
        "work.overdue",
    }
    assert healed.clean
    assert (await examined(backend)).findings == ()


async def test_what_cannot_be_mended_is_left_as_it_is(backend: Backend):
    full = await fill(backend)
    await run(backend, "DELETE FROM attempt WHERE work = :id", id=full.tried)
    report = await examined(backend, heal=True)
    (fault,) = report.faults
    assert (fault.code, fault.where, fault.healed) == (
        "work.evidence",
        (full.tried,),
        False,
    )
    assert fault.todo
    assert "1 claims, 0 running, 0 attempts" in fault.what


async def test_of_many_faults_some_are_listed_and_the_rest_is_counted(
    backend: Backend,
):
    await fill(backend)
    count = DOCTOR_SHOWN_MAX + 5
    await run(
        backend,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :n)"
        " INSERT INTO unmatched (message, reasons) SELECT 'msg_' || i, '{}' FROM n",
        n=count,
    )
    report = await examined(backend)
    assert len(report.faults) == DOCTOR_SHOWN_MAX
    assert report.more == {"unmatched.message": 5}


async def test_without_history_only_what_is_cheap_is_looked_at(backend: Backend):
    full = await fill(backend)
    await run(backend, "DELETE FROM attempt WHERE work = :id", id=full.tried)
    report = await examined(backend, deep=False)
    assert report.clean
    assert report.examined == {}


async def test_a_ring_that_does_not_open_the_secrets_is_found(backend: Backend):
    full = await fill(backend)
    other = KeyRing([new_key()])
    report = await examined(backend, About(ring=other))
    assert [f.code for f in report.faults] == ["endpoint.secrets"]
    right = About(ring=full.ring, ring_fault="no ring")
    report = await examined(backend, right)
    assert [f.code for f in report.faults] == ["deployment.ring"]


async def test_a_node_whose_lock_is_free_is_closed_and_what_it_held_goes_on(
    backend: Backend, tmp_path: Path
):
    full = await fill(backend)
    lock = await asyncio.to_thread(FileLock.take, tmp_path / "node.lock")
    assert lock is not None
    await run(
        backend, "UPDATE node SET host = 'here', lock_path = :p", p=str(lock.path)
    )
    here = About(host="here")
    assert await asyncio.to_thread(_locks, backend, here) == []
    await asyncio.to_thread(lock.release, keep_file=True)
    assert await asyncio.to_thread(_locks, backend, here) == [str(full.node)]

    def heal(tx: Tx) -> None:
        healing.close_dead(tx, [Suspect(key=(full.node,), what="")], here)

    await asyncio.to_thread(backend.write_blocking, heal)
    assert await asyncio.to_thread(_locks, backend, here) == []
    rows = await backend.read(
        lambda tx: tx.all("SELECT closed_why FROM node WHERE closed_why <> 'test'")
    )
    assert [row[0] for row in rows] == ["its lock was free"]
    assert (await Yard(backend).row(full.held)).state is State.READY


def _locks(backend: Backend, about: About) -> list[str]:
    report = backend.read_blocking(lambda tx: examine_snapshot(tx, about))
    return [f.where[0] for f in report.findings if f.code == "node.lock"]


async def test_findings_that_wait_for_an_operator_break_nothing(backend: Backend):
    full = await fill(backend)
    for statement in BREAKS["order.blocked"]:
        await run(backend, statement, first=full.line[0])
    report = await examined(backend)
    assert [f.grade for f in report.findings] == [Grade.ATTENTION]
    assert report.clean
    shown = report.as_json()
    assert shown["clean"] is True
    assert shown["findings"][0]["code"] == "order.blocked"


def test_every_check_says_what_must_hold_and_what_to_do():
    codes = [check.code for check in CHECKS]
    assert len(set(codes)) == len(codes)

    def told(check: Check) -> bool:
        return bool(check.invariant and check.todo)

    assert [check.code for check in CHECKS if not told(check)] == []


async def test_a_database_at_work_shows_no_fault_that_is_none(backend: Backend):
    yard = Yard(backend)
    lane = await yard.lane()
    walker = await yard.walker()

    async def work() -> None:
        for turn in range(12):
            await yard.submit(lane, 4)
            await yard.submit(lane, 3, order_key=f"k{turn % 2}")
            taken = await yard.claim(walker)
            for claimed in taken:
                result = retry(await yard.now()) if turn % 3 == 0 else OK
                await yard.settle(answer(claimed, result))

    reports: list[Report] = []
    async with asyncio.TaskGroup() as group:
        working = group.create_task(work())
        while not working.done():
            reports.append(await examined(backend, page_rows=5))
    assert [found for report in reports for found in report.findings] == []
    assert len(reports) > 1
    assert (await examined(backend)).examined["work"] == 84
