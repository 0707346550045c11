"""Mending ordered queues in which a row was stranded; nothing else ever needs it.

Every verb locks the head of a row's queue before the row, so whoever holds the head
decides about everybody in that queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tenure.ids import WorkId
from tenure.kernel.states import Phase, Work
from tenure.kernel.transitions import Change, stands_in_line
from tenure.store.claims import ordering
from tenure.store.claims.ordering import Head
from tenure.store.claims.rows import decide_rows, lock, write

if TYPE_CHECKING:
    from tenure.store.tx import Tx

__all__ = ["mend_lines", "wake_stranded"]


def mend_lines(tx: Tx, heads: Iterable[Head]) -> int:
    """Remove from queues what has succeeded, was cancelled or is gone; wake fronts.

    Returns how many rows were removed or woken.
    """
    wanted = sorted(set(heads))
    if not wanted:
        return 0
    ordering.lock_heads(tx, wanted)
    asked, params = tx.rows("b", {"lane": "bigint", "order_key": "text"}, wanted)
    gone = tx.run(
        "DELETE FROM order_line WHERE (lane, order_key) IN"
        f" (SELECT b.lane, b.order_key FROM {asked}) AND NOT EXISTS"
        " (SELECT 1 FROM work w WHERE w.id = order_line.work"
        " AND w.state NOT IN ('succeeded', 'cancelled'))",
        params,
    )
    if gone:
        ordering.touch_heads(tx, wanted)
    fronts = dict(ordering.fronts(tx, wanted).values())
    locked = lock(tx, fronts)
    asleep = [row for row in locked.values() if stands_in_line(row)]
    write(tx, [ordering.woken(row, fronts[row.id], tx.now) for row in asleep])
    return gone + len(asleep)


def wake_stranded(tx: Tx, ids: Sequence[WorkId]) -> int:
    """Make rows due that sleep as if in line and stand in none; return how many."""
    standing = {
        row[0]
        for id_ in ids
        for row in tx.all(
            "SELECT o.work FROM order_line o JOIN work w ON w.lane = o.lane"
            " AND w.order_key = o.order_key AND w.sequence = o.sequence"
            " WHERE w.id = :id AND o.work = w.id",
            {"id": id_},
        )
    }

    def decide(work: Work) -> Change | None:
        if work.id in standing or not stands_in_line(work):
            return None
        woken = replace(
            work, phase=Phase.DUE, due_at=tx.now, reason=None, wakes=work.wakes + 1
        )
        return Change(work=woken)

    return len(decide_rows(tx, ids, decide))
