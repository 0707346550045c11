"""Remove: what is over and old leaves the table, with its evidence, by state alone.

A row that is not terminal is never removed, whatever its age. Nor is one that stands in
front of others in its line: it is the reason why they wait, and the line would have no
head. The slice that has the rows says which are old enough, and removes its own first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.kernel.states import TERMINAL
from tenure.store.claims import ordering
from tenure.store.claims.rows import heads_of, lock

if TYPE_CHECKING:
    from collections.abc import Collection

    from tenure.ids import WorkId
    from tenure.kernel.states import Work
    from tenure.store.tx import Tx


def lock_ended(tx: Tx, ids: Collection[WorkId]) -> dict[WorkId, Work]:
    """Lock these rows; return those that are over and that nobody waits behind."""
    if not ids:
        return {}
    wanted = sorted(set(ids))
    ordering.lock_heads(tx, heads_of(tx, wanted))
    ended = {
        id_: work for id_, work in lock(tx, wanted).items() if work.state in TERMINAL
    }
    for id_ in _blocking(tx, ended.values()):
        del ended[id_]
    return ended


def remove(tx: Tx, ids: Collection[WorkId]) -> int:
    """Remove rows that `lock_ended` returned in this transaction; return how many."""
    if not ids:
        return 0
    asked, params = tx.rows("b", {"id": "text"}, [(id_,) for id_ in sorted(ids)])
    lines = (
        "SELECT o.lane, o.order_key, o.sequence"
        f" FROM {asked} JOIN work w ON w.id = b.id JOIN order_line o"
        " ON o.lane = w.lane AND o.order_key = w.order_key AND o.sequence = w.sequence"
        " AND o.work = w.id"
    )
    gone = tx.run(
        f"DELETE FROM order_line WHERE (lane, order_key, sequence) IN ({lines})", params
    )
    if gone:
        ordering.touch_heads(tx, heads_of(tx, sorted(ids)))
    tx.run(f"DELETE FROM attempt WHERE work IN (SELECT b.id FROM {asked})", params)
    return tx.run(f"DELETE FROM work WHERE id IN (SELECT b.id FROM {asked})", params)


def _blocking(tx: Tx, works: Collection[Work]) -> set[WorkId]:
    """Return those that still stand in their line with somebody behind them."""
    lines = [
        (work.id, work.lane, work.order_key, work.sequence)
        for work in works
        if work.order_key is not None
    ]
    if not lines:
        return set()
    asked, params = tx.rows(
        "b",
        {"id": "text", "lane": "bigint", "order_key": "text", "sequence": "bigint"},
        lines,
    )
    found = tx.all(
        f"SELECT b.id FROM {asked} JOIN order_line o ON o.lane = b.lane"
        " AND o.order_key = b.order_key AND o.sequence = b.sequence AND o.work = b.id"
        " WHERE EXISTS (SELECT 1 FROM order_line r WHERE r.lane = b.lane"
        " AND r.order_key = b.order_key AND r.sequence > b.sequence)",
        params,
    )
    return {row[0] for row in found}
