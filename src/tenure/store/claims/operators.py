"""The verbs of operators and of other slices: wake, cancel, replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenure.ids import LaneId, WorkId
from tenure.kernel import transitions
from tenure.kernel.commands import Replayed
from tenure.kernel.states import Work
from tenure.kernel.transitions import Change
from tenure.store.claims.rows import decide_rows

if TYPE_CHECKING:
    from tenure.store.tx import Tx


def wake(tx: Tx, ids: Sequence[WorkId]) -> int:
    """Make ready rows due now; return how many rows took notice."""
    decided = decide_rows(tx, ids, lambda work: transitions.wake(work, tx.now))
    return sum(change.work is not None for _, change in decided.values())


def cancel(tx: Tx, ids: Sequence[WorkId], reason: str) -> dict[WorkId, Work]:
    """Cancel ready and parked rows, ask the holders of claimed ones.

    Returns the rows that changed, as they are now.
    """
    decided = decide_rows(
        tx, ids, lambda work: transitions.cancel(work, reason, tx.now)
    )
    return {
        id_: change.work
        for id_, (_, change) in decided.items()
        if change.work is not None
    }


def cancel_lane(tx: Tx, lane: LaneId, reason: str, limit: int) -> int:
    """Cancel up to `limit` rows of a lane that are due, claimed or stand in line.

    Returns how many changed; call again until it returns 0. Rows due later, asleep for
    another reason or parked are in no index of their lane: the slice that has the
    lane finds them through rows of its own, and those due later when they come due.
    """
    found: list[WorkId] = []
    for source in _OPEN_IN_LANE:
        if len(found) < limit:
            left = {"lane": lane, "limit": limit - len(found)}
            found += [row[0] for row in tx.all(source, left)]
    return len(cancel(tx, found, reason))


_OPEN_IN_LANE = (
    """
    SELECT w.id FROM work w WHERE w.lane = :lane AND w.phase = 'due' LIMIT :limit
    """,
    """
    SELECT w.id FROM work w WHERE w.lane = :lane AND w.state = 'claimed'
    AND w.cancel_requested_at IS NULL LIMIT :limit
    """,
    """
    SELECT w.id FROM order_line o JOIN work w ON w.id = o.work
    WHERE o.lane = :lane AND w.state IN ('ready', 'parked') LIMIT :limit
    """,
)


def replay(
    tx: Tx, ids: Sequence[WorkId], *, trigger: int = 1
) -> dict[WorkId, Replayed]:
    """Do rows again; say of each whether it is ready, was woken, or is in flight.

    Attempts, claim numbers and message ids stay; missing rows are left out.
    """
    answers: dict[WorkId, Replayed] = {}

    def decide(work: Work) -> Change:
        change, answers[work.id] = transitions.replay(work, trigger, tx.now)
        return change

    decide_rows(tx, ids, decide)
    return answers
