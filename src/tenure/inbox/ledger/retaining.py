"""What the inbox keeps for a time: receipts, keys, listeners nobody uses.

A receipt goes when it is old and the work of all its messages is over; its messages stay
for as long as their application keeps them, with the header lines they were received
with. The newest receipt always stays: on SQLite, places count on from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.clock import US
from tenure.ids import Prefix, id_floor
from tenure.limits import (
    DAY_SECONDS,
    LISTENER_DAYS,
    RECEIPT_DAYS,
    RETENTION_ROWS,
)
from tenure.outbox.ledger.retaining import Keep, Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.outbox.ledger.retaining import Stepping
    from tenure.store.tx import Tx

__all__ = ["STEPS", "remove_keys", "remove_listeners", "remove_receipts"]

_DAY_US: Final = round(DAY_SECONDS * US)
_OPEN: Final = "w.state IN ('ready', 'claimed', 'parked')"


def remove_receipts(tx: Tx, place: str, keep: Keep) -> Step:
    """Look at the next receipts past their time; remove those whose work is over."""
    del keep
    cutoff = id_floor(Prefix.RECEIPT, tx.now - RECEIPT_DAYS * _DAY_US)
    found = tx.all(
        "SELECT id FROM receipt WHERE id > :place AND id < :cutoff"
        " ORDER BY id LIMIT :limit",
        {"place": place, "cutoff": cutoff, "limit": RETENTION_ROWS},
    )
    if not found:
        return Step(removed=0, place=None)
    asked, params = tx.rows("b", {"id": "text"}, [(row.id,) for row in found])
    gone = tx.all(
        f"DELETE FROM receipt WHERE id IN (SELECT b.id FROM {asked})"
        " AND place < (SELECT max(r.place) FROM receipt r)"
        " AND NOT EXISTS (SELECT 1 FROM delivery d JOIN work w ON w.id = d.work"
        f" WHERE d.message = receipt.message AND {_OPEN})"
        " AND NOT EXISTS (SELECT 1 FROM receipt_part p"
        " JOIN delivery d ON d.message = p.message JOIN work w ON w.id = d.work"
        f" WHERE p.receipt = receipt.id AND {_OPEN}) RETURNING id",
        params,
    )
    if gone:
        asked, params = tx.rows("b", {"id": "text"}, [(row.id,) for row in gone])
        for table in ("receipt_part", "receipt_body"):
            tx.run(
                f"DELETE FROM {table} WHERE receipt IN (SELECT b.id FROM {asked})",
                params,
            )
    last = found[-1].id if len(found) == RETENTION_ROWS else None
    return Step(removed=len(gone), place=last)


def remove_keys(tx: Tx, place: str, keep: Keep) -> Step:
    """Remove event ids and nonces whose window is over."""
    del place, keep
    gone = tx.run(
        "DELETE FROM receipt_key WHERE (source, key) IN (SELECT source, key"
        " FROM receipt_key WHERE expires_at <= :now ORDER BY expires_at"
        " LIMIT :limit)",
        {"now": tx.now, "limit": RETENTION_ROWS},
    )
    return Step(removed=gone, place="" if gone == RETENTION_ROWS else None)


def remove_listeners(tx: Tx, place: str, keep: Keep) -> Step:
    """Forget listeners that nobody has used for a long time."""
    del place, keep
    gone = tx.run(
        "DELETE FROM listener WHERE updated_at < :before",
        {"before": tx.now - LISTENER_DAYS * _DAY_US},
    )
    return Step(removed=gone, place=None)


STEPS: Final[Mapping[str, Stepping]] = {
    "receipts": remove_receipts,
    "receipt keys": remove_keys,
    "listeners": remove_listeners,
}
"""Chores of the inbox, as `tenure.outbox.retention` runs them."""
