"""One fire for each window, whoever ticks, loads, renames or dies in the middle.

Two nodes of two releases: the new one calls the job otherwise and has moved it to
another package. Their steps are run in every order; a step is cut at every statement;
and on PostgreSQL one step is let in between every two statements of another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.util import await_only

from tenure.schedules.ledger import controls, outcomes
from tenure.store.backend import Backend
from tenure.store.tx import Tx
from tests.databases import MakeBackend
from tests.schedules.fleet import TENANT, Fleet, definition, release

OLD = release(definition("app:report"))
NEW = release(definition("billing:statement", formerly=("app:report",)))


class Killed(Exception):
    """The process ended here: its transaction is rolled back."""


async def both(backend: Backend) -> Fleet:
    """Return a fleet whose old release has run for a while; its next window is due."""
    fleet = Fleet(backend)
    await fleet.start("old", OLD)
    await fleet.pass_to_next()
    assert (await fleet.tick("old")).fired == 1
    await settle(fleet)
    fleet.nodes["new"] = await backend.write(_open)
    fleet.releases["new"] = NEW
    await fleet.pass_to_next()
    return fleet


def _open(tx: Tx) -> Any:
    from tests.schedules.fleet import open_node

    return open_node(tx)


async def settle(fleet: Fleet) -> None:
    """Let every open run succeed, as its node would say."""

    def end(tx: Tx) -> None:
        now = tx.now
        rows = tx.all("SELECT r.id FROM job_run r WHERE r.state = 'open'")
        tx.run(
            "UPDATE work SET state = 'succeeded', phase = NULL, due_at = NULL,"
            " settled_at = :now WHERE kind = 'job' AND state = 'ready'",
            {"now": now},
        )
        outcomes.end(tx, [(row[0], "succeeded", None, now) for row in rows])

    await fleet.backend.write(end)


STEPS: dict[str, Callable[[Fleet], Any]] = {
    "old loads": lambda fleet: fleet.enrol("old"),
    "new loads and renames": lambda fleet: fleet.enrol("new"),
    "old ticks": lambda fleet: fleet.tick("old"),
    "new ticks": lambda fleet: fleet.tick("new"),
    "runs settle": settle,
}


@pytest.mark.parametrize("order", list(permutations(STEPS)), ids=", ".join)
async def test_every_order_of_steps_fires_the_window_once(
    backend: Backend, order: tuple[str, ...]
):
    fleet = await both(backend)
    for step in order:
        await STEPS[step](fleet)
    # Whatever came first, the fleet goes on from there.
    for step in ("new loads and renames", "new ticks", "old ticks"):
        await STEPS[step](fleet)
    assert await fleet.fired() == (2, 2, 2)
    (job,) = await fleet.rows("SELECT count(*) AS n FROM job")
    assert job == {"n": 1}
    # Back to the old release: it sees the windows under its own spelling.
    await fleet.stop("new")
    await fleet.enrol("old")
    assert (await fleet.tick("old")).fired == 0
    await settle(fleet)
    (run, *_) = await fleet.rows("SELECT id FROM job_run ORDER BY id DESC")
    with pytest.raises(Exception, match="has succeeded"):
        await backend.write(
            lambda tx: controls.replay_run(
                tx, TENANT, run["id"], force=False, actor="t", note=None
            )
        )


def cut(tx: Tx, at: int) -> Callable[[], int]:
    """Let the statement of this number raise; return how many there were."""
    seen = [0]

    def look(*_: object) -> None:
        if seen[0] == at:
            raise Killed
        seen[0] += 1

    event.listen(tx.conn, "before_cursor_execute", look)
    return lambda: seen[0]


@pytest.mark.parametrize(
    "step", ["old ticks", "new ticks", "old loads", "new loads and renames"]
)
async def test_a_crash_at_every_statement_neither_loses_nor_doubles_the_window(
    backend: Backend, step: str
):
    fleet = await both(backend)
    if step == "new ticks":
        await fleet.enrol("new")
    name, verb, *_ = step.split()
    act = fleet.tick_in if verb == "ticks" else fleet.enrol_in
    statements = 0
    while True:

        def cut_short(tx: Tx, at: int = statements) -> int:
            seen = cut(tx, at)
            act(tx, name)
            return seen()

        try:
            await backend.write(cut_short, retry=False)
        except Killed:
            assert await fleet.fired() == (1, 1, 1)
            statements += 1
            continue
        break
    assert statements > 4
    for after in ("new loads and renames", "new ticks", "old ticks"):
        await STEPS[after](fleet)
    assert await fleet.fired() == (2, 2, 2)


def between(tx: Tx, at: int, act: Callable[[], None]) -> Callable[[], int]:
    """Call `act` before the statement of this number; return how many there were."""
    seen = [0]

    def look(*_: object) -> None:
        now, seen[0] = seen[0], seen[0] + 1
        if now == at:
            act()

    event.listen(tx.conn, "before_cursor_execute", look)
    return lambda: seen[0]


PAIRS = [
    ("old", "tick", "new", "tick"),
    ("new", "tick", "old", "tick"),
    ("old", "tick", "new", "enrol"),
    ("new", "enrol", "old", "tick"),
    ("old", "enrol", "new", "enrol"),
    ("new", "enrol", "old", "enrol"),
]


@pytest.mark.parametrize("dialect", ["postgresql"])
@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
async def test_a_step_let_in_between_two_statements_of_another_fires_once(
    backend: Backend, make_backend: MakeBackend, pair: tuple[str, str, str, str]
):
    fleet = await both(backend)
    await fleet.enrol("new")
    first, verb, second, other_verb = pair
    other = Fleet(await make_backend(), fleet.nodes, fleet.releases)
    # First the control: nobody comes in between, and the statements are counted.
    at, total, windows = -1, 0, 1
    while at < total:
        other.backend.clock_offset_us = backend.clock_offset_us
        await fleet.pass_to_next()
        other.backend.clock_offset_us = backend.clock_offset_us
        let_in: list[asyncio.Task[Any]] = []

        def meet(tx: Tx, at: int = at, let_in: list[Any] = let_in) -> int:
            def come() -> None:
                act = other.tick if other_verb == "tick" else other.enrol
                let_in.append(asyncio.create_task(act(second)))
                await_only(asyncio.wait(let_in, timeout=0.05))

            seen = between(tx, at, come)
            (fleet.tick_in if verb == "tick" else fleet.enrol_in)(tx, first)
            return seen()

        total = max(total, await backend.write(meet))
        await asyncio.gather(*let_in)
        await fleet.tick("old")
        await fleet.tick("new")
        windows += 1
        assert await fleet.fired() == (windows, windows, windows), at
        await settle(fleet)
        at += 1
    assert at > 4
    (job,) = await fleet.rows("SELECT count(*) AS n FROM job")
    assert job == {"n": 1}


async def test_a_probe_that_starts_twice_writes_nothing_the_second_time(
    backend: Backend,
):
    fleet = await both(backend)
    await fleet.enrol("new")
    await fleet.tick("new")
    tables = ("job", "job_spelling", "job_definition", "job_window", "job_run")
    before = [await fleet.rows(f"SELECT * FROM {table}") for table in tables]
    await fleet.enrol("new")
    await fleet.tick("new")
    assert [await fleet.rows(f"SELECT * FROM {table}") for table in tables] == before
