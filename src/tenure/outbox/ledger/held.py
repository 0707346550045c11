"""Deliveries held in an adopted copy: counted, let go or cancelled, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tenure.ids import WorkId
from tenure.limits import HOLD_BATCH_ROWS
from tenure.store import claims

if TYPE_CHECKING:
    from tenure.store.tx import Tx

CANCELLED = "cancelled: held in a restored copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFilter:
    """Which held deliveries are meant; None = all. Ids, not uids."""

    app: str | None = None
    endpoint: str | None = None
    event_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRow:
    """One held delivery."""

    work: WorkId
    message: str | None
    app: str | None
    endpoint: str | None
    event_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPage:
    """Held deliveries among the rows looked at; `place` None says that all were."""

    rows: Sequence[HeldRow]
    place: str | None


def page_held(tx: Tx, place: str, wanted: HeldFilter) -> HeldPage:
    """Look at the next rows after `place` and return those that are held and meant."""
    params = {"place": place, "limit": HOLD_BATCH_ROWS}
    upto = tx.scalar(
        "SELECT max(x.id) FROM (SELECT id FROM work WHERE id > :place"
        " ORDER BY id LIMIT :limit) x",
        params,
    )
    if upto is None:
        return HeldPage(rows=(), place=None)
    found = tx.all(
        "SELECT w.id, d.message, d.app, d.endpoint, m.event_type FROM work w"
        " LEFT JOIN delivery d ON d.work = w.id LEFT JOIN message m ON m.id = d.message"
        " WHERE w.id > :place AND w.id <= :upto AND w.state = 'parked'"
        " AND w.reason = :held ORDER BY w.id",
        {"place": place, "upto": upto, "held": claims.HELD},
    )
    rows = [
        HeldRow(
            work=row.id,
            message=row.message,
            app=row.app,
            endpoint=row.endpoint,
            event_type=row.event_type,
        )
        for row in found
    ]
    return HeldPage(rows=[row for row in rows if _is_meant(row, wanted)], place=upto)


def _is_meant(row: HeldRow, wanted: HeldFilter) -> bool:
    return (
        wanted.app in {None, row.app}
        and wanted.endpoint in {None, row.endpoint}
        and wanted.event_type in {None, row.event_type}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDone:
    """What one batch changed, and after which key to go on; None = done."""

    count: int
    place: str | None


def end_held(
    tx: Tx, place: str, wanted: HeldFilter, verb: Literal["release", "cancel"]
) -> HeldDone:
    """Let go or cancel what is held and meant among the next rows."""
    page = page_held(tx, place, wanted)
    ids = [row.work for row in page.rows]
    count = (
        claims.let_go(tx, ids)
        if verb == "release"
        else claims.cancel_held(tx, ids, CANCELLED)
    )
    return HeldDone(count=count, place=page.place)
