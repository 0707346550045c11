"""Receipts in the order of their commits, for readers that must not skip one.

Ids and clocks do not say it: a transaction that began earlier may commit later, and its
receipts would appear behind a reader who had passed. A receipt's place is its
transaction's own number. Below the horizon every transaction has ended, so a reader who
stops there has seen everything up to it, for good.

SQLite has one writer at a time: there places count on, and every visible one is final.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

if TYPE_CHECKING:
    from tenure.store.tx import Tx

__all__ = ["horizon", "next_place"]

_OURS: Final = "SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint)"
_OLDEST: Final = (
    "SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)"
)
_NEXT: Final = "SELECT coalesce(max(place), 0) + 1 FROM receipt"


def next_place(tx: Tx) -> int:
    """Return the place of what this transaction inserts; it must write."""
    match tx.dialect:
        case "postgresql":
            place: int = tx.scalar(_OURS)
        case "sqlite":
            place = tx.scalar(_NEXT)
        case never:
            assert_never(never)
    return place


def horizon(tx: Tx) -> int:
    """Return the place from which on rows may still appear: read below it only."""
    match tx.dialect:
        case "postgresql":
            place: int = tx.scalar(_OLDEST)
        case "sqlite":
            place = tx.scalar(_NEXT)
        case never:
            assert_never(never)
    return place
