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

from tenure.errors import BadRequest
from tenure.inbox import tables
from tenure.inbox.ledger.places import horizon
from tenure.inbox.ledger.reading import after_place, source_id

if TYPE_CHECKING:
    from tenure.ids import TenantId
    from tenure.inbox.model import Receipt
    from tenure.store.tx import Tx

__all__ = ["Cursor", "keep_cursor", "next_receipts", "open_cursor"]

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


def open_cursor(
    tx: Tx, tenant: TenantId, name: str | None, given: str | None
) -> Cursor:
    """Return the cursor that was given, the one kept under a name, or one at now.

    A name's first cursor is kept at once, so that nothing from now on is missed.
    Raises BadRequest for a name or a cursor that cannot be.
    """
    if name is not None and _NAME.fullmatch(name) is None:
        raise BadRequest("a listener's name is 1 to 100 letters, digits, . _ and -")
    if given is not None:
        return _given(tx, given)
    found = (
        None
        if name is None
        else tx.first(
            "SELECT place, receipt FROM listener"
            " WHERE tenant = :tenant AND name = :name",
            {"tenant": tenant, "name": name},
        )
    )
    if found is not None and found.place <= horizon(tx):
        return Cursor(place=found.place, receipt=found.receipt)
    # Just before the horizon: what is being committed now is still to come.
    now = Cursor(place=horizon(tx) - 1, receipt="~")
    if name is not None:
        keep_cursor(tx, tenant, name, now)
    return now


def _given(tx: Tx, text: str) -> Cursor:
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


def next_receipts(
    tx: Tx, tenant: TenantId, cursor: Cursor, *, source: str | None, limit: int
) -> list[Receipt]:
    """Return receipts after a cursor; raises NotFound for an unknown source."""
    named = None if source is None else source_id(tx, tenant, source)
    return after_place(
        tx, tenant, cursor.place, cursor.receipt, source=named, limit=limit
    )


def keep_cursor(tx: Tx, tenant: TenantId, name: str, cursor: Cursor) -> None:
    """Remember a listener's cursor."""
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
