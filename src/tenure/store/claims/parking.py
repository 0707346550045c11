"""Hold what waits in a restored copy, and let it go again, in batches along the key.

Rows that were open at one instant are parked with one reason; what is submitted later
goes out as ever, except behind held rows of its own ordered line. Letting go is replay:
budgets start anew, because the time that passed since the backup is nobody's failure;
the order of a line is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tenure.ids import LaneId, WorkId, new_attempt_id
from tenure.kernel import transitions
from tenure.kernel.states import State, Work
from tenure.kernel.transitions import Change
from tenure.store.claims import ordering
from tenure.store.claims.rows import decide_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.store.tx import Tx

HELD: Final = "held: restored copy"
"""Why rows wait that were open when a copy was adopted held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBatch:
    """How many rows one batch changed, and after which key to go on; None = done."""

    count: int
    place: WorkId | None


def hold_open(tx: Tx, place: str, before_at: int, limit: int) -> HeldBatch:
    """Park the open ones of the next `limit` rows that were created up to `before_at`."""
    rows = tx.all(
        "SELECT id, state, created_at FROM work WHERE id > :place"
        " ORDER BY id LIMIT :limit",
        {"place": place, "limit": limit},
    )
    waiting = [
        WorkId(row.id)
        for row in rows
        if row.state in {State.READY, State.CLAIMED} and row.created_at <= before_at
    ]
    decided = decide_rows(
        tx,
        waiting,
        lambda work: transitions.hold(work, HELD, new_attempt_id(), tx.now),
    )
    changed = sum(change.work is not None for _, change in decided.values())
    return HeldBatch(
        count=changed, place=rows[-1].id if len(rows) == limit and rows else None
    )


def let_go(tx: Tx, ids: Sequence[WorkId]) -> int:
    """Make held rows ready; those behind another in their line sleep till it is passed.

    Returns how many were let go; rows that are not held are left as they are.
    """
    standing: dict[WorkId, bool] | None = None

    def decide(work: Work) -> Change | None:
        nonlocal standing
        if work.state is not State.PARKED or work.reason != HELD:
            return None
        if standing is None:  # asked under the locks of the lines
            standing = _standing(tx, ids)
        change, _ = transitions.replay(work, 0, tx.now)
        if change.work is None or standing.get(work.id, True):
            return change
        return Change(work=transitions.asleep(change.work, "head of line"))

    return len(decide_rows(tx, ids, decide))


def cancel_held(tx: Tx, ids: Sequence[WorkId], reason: str) -> int:
    """Cancel held rows; returns how many; rows that are not held are left."""

    def decide(work: Work) -> Change | None:
        if work.state is not State.PARKED or work.reason != HELD:
            return None
        return transitions.cancel(work, reason, tx.now)

    return len(decide_rows(tx, ids, decide))


def _standing(tx: Tx, ids: Sequence[WorkId]) -> dict[WorkId, bool]:
    """Say of each row that stands in a line whether it is in front."""
    asked, params = tx.rows("b", {"id": "text"}, [(id_,) for id_ in ids])
    lines = tx.all(
        f"SELECT o.work, o.lane, o.order_key FROM {asked} JOIN work w ON w.id = b.id"
        " JOIN order_line o ON o.lane = w.lane AND o.order_key = w.order_key"
        " AND o.sequence = w.sequence AND o.work = w.id",
        params,
    )
    heads = {(LaneId(row.lane), str(row.order_key)) for row in lines}
    front = {work for work, _ in ordering.fronts(tx, heads).values()}
    return {row.work: row.work in front for row in lines}
