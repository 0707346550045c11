"""Two transactions that meet at the worst moment: what the order of locks is for.

Each script has a control that shows what the order keeps away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.util import await_only

from tenure.ids import WorkId
from tenure.store.backend import RowsLocked
from tenure.store.claims import Walker, rows
from tenure.store.tx import Tx
from tests.databases import MakeBackend
from tests.store.yard import Yard

pytestmark = pytest.mark.parametrize("dialect", ["postgresql"])
PATIENCE = 10.0
WAITING = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


async def until_waiting(yard: Yard, count: int) -> None:
    """Return when so many sessions of the database wait for a lock."""
    async with asyncio.timeout(PATIENCE):
        while await yard.backend.read(lambda tx: tx.scalar(WAITING)) < count:  # noqa: ASYNC110 - a server
            await asyncio.sleep(0.005)


def stepping_in(tx: Tx, words: str, act: Callable[[], None]) -> Callable[[], bool]:
    """Call `act` just before the first statement with these words; tell if it did."""
    done: list[bool] = []

    def look(
        conn: object, cursor: object, statement: str, parameters: Any, *rest: object
    ) -> None:
        if words in statement and not done:
            done.append(True)
            act()

    event.listen(tx.conn, "before_cursor_execute", look)
    return lambda: bool(done)


@pytest.mark.parametrize("between", [True, False], ids=["between", "control"])
async def test_a_claim_that_commits_just_before_a_lanes_lock_is_counted_under_it(
    yard: Yard, make_backend: MakeBackend, between: bool
) -> None:
    """Counted in the statement that locks, or before, six would run in place of three."""
    await yard.submit(await yard.lane(concurrency=3), 10)
    other, third = Yard(await make_backend()), await yard.walker()

    def claim(tx: Tx, walker: Walker) -> int:
        return len(walker.claim(tx, 10, busy={}, lane_max=10).claimed)

    def claim_after_it(tx: Tx, walker: Walker) -> int:
        taken: list[int] = []

        def step_in() -> None:
            if between:
                taken.append(await_only(other.do(lambda tx: claim(tx, third))))

        stepped_in = stepping_in(tx, "FOR NO KEY UPDATE OF l SKIP LOCKED", step_in)
        mine = claim(tx, walker)
        assert stepped_in(), "the statement that locks lanes reads otherwise now"
        assert taken == ([3] if between else [])
        return mine

    walker = await yard.walker()
    mine = await yard.do(lambda tx: claim_after_it(tx, walker))
    assert mine == (0 if between else 3)


def as_asked(tx: Tx, ids: list[WorkId]) -> None:
    for id_ in ids:
        tx.all("SELECT 1 FROM work WHERE id = :id FOR NO KEY UPDATE", {"id": id_})


def as_the_store_does(tx: Tx, ids: list[WorkId]) -> None:
    assert sorted(rows.lock(tx, ids)) == sorted(ids)


@pytest.mark.parametrize(
    ("lock", "deadlocks"),
    [(as_the_store_does, 0), (as_asked, 1)],
    ids=["by id", "control"],
)
async def test_rows_that_two_transactions_ask_for_in_opposite_order_deadlock_nobody(
    yard: Yard,
    make_backend: MakeBackend,
    lock: Callable[[Tx, list[WorkId]], None],
    deadlocks: int,
) -> None:
    """A third holds the middle one, so that each of the two has one end when it goes on."""
    first, middle, last = sorted(await yard.submit(await yard.lane(), 3))
    yards = [Yard(await make_backend()) for _ in range(3)]
    holds, go = asyncio.Event(), asyncio.Event()

    def hold(tx: Tx) -> None:
        rows.lock(tx, [middle])
        holds.set()
        await_only(go.wait())

    def take(tx: Tx, ids: list[WorkId]) -> None:
        tx.run("SET LOCAL lock_timeout = '10s'")
        lock(tx, ids)

    async def taking(other: Yard, *ids: WorkId) -> None:
        # No second try: it would hide the deadlock.
        await other.backend.write(lambda tx: take(tx, [*ids]), retry=False)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(yards[0].do(hold))
        await holds.wait()
        both = [
            asyncio.create_task(taking(yards[1], first, middle, last)),
            asyncio.create_task(taking(yards[2], last, middle, first)),
        ]
        await until_waiting(yard, 2)
        go.set()
        ended = await asyncio.gather(*both, return_exceptions=True)
    failed = [each for each in ended if each is not None]
    assert [type(each) for each in failed] == [RowsLocked] * deadlocks
