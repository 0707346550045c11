"""Listeners: cursors that skip nothing, kept under a name.

A cursor is a place and the last receipt taken there (`tenure.inbox.ledger.places`); as
text `place.receipt`. What it was made on must be the same database server: a dump that
was restored elsewhere counts its transactions anew, so a cursor from the future is
refused instead of waiting for ever.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tenure.errors import BadRequest, NotFound
from tenure.inbox import tables
from tenure.inbox.ledger.places import horizon
from tenure.inbox.ledger.reading import after_place, source_id

if TYPE_CHECKING:
    from tenure.ids import TenantId
    from tenure.inbox.model import Receipt
    from tenure.store.tx import Tx

__all__ = [
    "Cursor",
    "cursor_now",
    "find_cursor",
    "keep_cursor",
    "next_receipts",
    "read_cursor",
]

_CURSOR: Final = re.compile(r"(\d{1,19})\.(rcpt_[0-9a-z]{26}|)")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Everything up to this receipt of this place was taken."""

    place: int
    receipt: str

    def __str__(self) -> str:
        return f"{self.place}.{self.receipt}"

    @classmethod
    def after(cls, receipt: Receipt) -> Cursor:
        """Return the cursor of who has taken a receipt."""
        return cls(place=receipt.place, receipt=receipt.id)


def cursor_now(tx: Tx) -> Cursor:
    """Return the cursor of who begins now: what is being committed is still to come."""
    return Cursor(place=horizon(tx) - 1, receipt="~")


def read_cursor(tx: Tx, text: str) -> Cursor:
    """Read a cursor as text; raises BadRequest for what is none of this database."""
    match = _CURSOR.fullmatch(text.replace("~", ""))
    if match is None:
        raise BadRequest(f"{text[:100]!r} is no cursor: leave it out to begin at now")
    place = int(match[1])
    if place > horizon(tx):
        raise BadRequest(
            "the cursor is ahead of this database: it was made on another one;"
            " leave it out to begin at now"
        )
    return Cursor(place=place, receipt=match[2] or "~")


def find_cursor(tx: Tx, tenant: TenantId, name: str) -> Cursor:
    """Return how far a named listener got; raises NotFound before it kept anything."""
    found = tx.first(
        "SELECT place, receipt FROM listener WHERE tenant = :tenant AND name = :name",
        {"tenant": tenant, "name": _checked(name)},
    )
    if found is None or found.place > horizon(tx):
        raise NotFound(f"listener {name[:100]!r} has kept no cursor here")
    return Cursor(place=found.place, receipt=found.receipt)


def _checked(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise BadRequest("a listener's name is 1 to 100 letters, digits, . _ and -")
    return name


def next_receipts(
    tx: Tx, tenant: TenantId, cursor: Cursor, *, source: str | None, limit: int
) -> list[Receipt]:
    """Return receipts after a cursor; raises NotFound for an unknown source."""
    named = None if source is None else source_id(tx, tenant, source)
    return after_place(
        tx, tenant, cursor.place, cursor.receipt, source=named, limit=limit
    )


def keep_cursor(tx: Tx, tenant: TenantId, name: str, text: str) -> Cursor:
    """Remember how far a listener has got; raises BadRequest for what is no cursor."""
    cursor, name = read_cursor(tx, text), _checked(name)
    row = {
        "tenant": tenant,
        "name": name,
        "place": cursor.place,
        "receipt": cursor.receipt,
        "created_at": tx.now,
        "updated_at": tx.now,
    }
    if not tx.insert(tables.listener, [row], on_conflict="nothing"):
        tx.run(
            "UPDATE listener SET place = :place, receipt = :receipt,"
            " updated_at = :now WHERE tenant = :tenant AND name = :name",
            {
                "place": cursor.place,
                "receipt": cursor.receipt,
                "now": tx.now,
                "tenant": tenant,
                "name": name,
            },
        )
    return cursor
