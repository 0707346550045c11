"""Messages as they are read, listed and emptied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from tenure.errors import NotFound
from tenure.ids import Prefix, TenantId, WorkId
from tenure.limits import CANCEL_BATCH_ROWS
from tenure.outbox import tables
from tenure.outbox.ledger import paging, rows
from tenure.outbox.ledger.applications import find_application
from tenure.outbox.model import Message, MessageFilter, Page, PageIn
from tenure.outbox.rules import (
    check_filter_name,
    check_filter_types,
    check_page,
    findable,
)
from tenure.store import claims

if TYPE_CHECKING:
    from tenure.store.tx import Tx

_M: Final = tables.message
_P: Final = tables.payload
EXPUNGED: Final = "payload expunged"


def find_message(
    tx: Tx, tenant: TenantId, app_ref: str, ref: str, *, with_content: bool = True
) -> Message:
    """Return the message of this id or event id; raises NotFound."""
    app = find_application(tx, tenant, app_ref)
    return as_read(message_row(tx, tenant, app.id, ref), with_content=with_content)


def message_row(tx: Tx, tenant: TenantId, app: str, ref: str) -> sa.Row[Any]:
    """Return the message's row with its payload's; raises NotFound."""
    by_id = ref.startswith(f"{Prefix.MESSAGE}_")
    stmt = _with_payload(tx).where(
        _M.c.tenant == tenant,
        _M.c.app == app,
        (_M.c.id if by_id else _M.c.event_id) == ref,
    )
    found = tx.first(stmt) if findable(ref) else None
    if found is None:
        raise NotFound(f"message {ref[:100]!r} was not found")
    return found


def messages_by_id(tx: Tx, ids: Sequence[str]) -> dict[str, Message]:
    """Return messages with their bodies, whoever they belong to."""
    found = tx.all(_with_payload(tx).where(_M.c.id.in_(ids)))
    return {row.id: as_read(row, with_content=True) for row in found}


def list_messages(
    tx: Tx, tenant: TenantId, app_ref: str, page: PageIn, wanted: MessageFilter
) -> Page[Message]:
    """Return one page of an application's messages, newest first."""
    app = find_application(tx, tenant, app_ref)
    cursor = check_page(page, paging.valid_id(Prefix.MESSAGE))
    names = check_filter_types(wanted.event_types)
    stmt = _with_payload(tx) if wanted.with_content else _without_payload()
    stmt = stmt.where(_M.c.app == app.id)
    stmt = matching(tx, stmt, channel=wanted.channel, tag=wanted.tag, event_types=names)
    stmt = paging.between(
        stmt, _M.c.id, Prefix.MESSAGE, before=wanted.before, after=wanted.after
    )
    fetched = paging.fetch(
        tx,
        stmt,
        _M.c.id,
        cursor,
        limit=page.limit,
        descending=True,
        oldest_first=wanted.after is not None and wanted.before is None,
        body=_P.c.body if wanted.with_content else None,
    )
    return paging.page_of(
        fetched,
        lambda row: as_read(row, with_content=wanted.with_content),
        lambda row: row.id,
    )


def matching(
    tx: Tx,
    stmt: sa.Select[Any],
    *,
    channel: str | None,
    tag: str | None,
    event_types: Sequence[str] | None,
) -> sa.Select[Any]:
    """Narrow a list that selects from `message` by what the message says of itself."""
    check_filter_name(channel, "channel")
    check_filter_name(tag, "tag")
    if channel is not None:
        stmt = stmt.where(rows.contains_name(tx, _M.c.channels, channel))
    if tag is not None:
        stmt = stmt.where(rows.contains_name(tx, _M.c.tags, tag))
    if event_types is not None:
        stmt = stmt.where(_M.c.event_type.in_(event_types))
    return stmt


def expunge_message(tx: Tx, tenant: TenantId, app_ref: str, ref: str) -> None:
    """Remove a message's payload; what has not been sent yet never will be.

    A send in flight finishes. Raises NotFound.
    """
    app = find_application(tx, tenant, app_ref)
    message = message_row(tx, tenant, app.id, ref)
    work = tx.execute(
        sa.select(tables.delivery.c.work).where(tables.delivery.c.message == message.id)
    ).scalars()
    ids = [WorkId(id_) for id_ in work]
    for at in range(0, len(ids), CANCEL_BATCH_ROWS):
        claims.cancel(tx, ids[at : at + CANCEL_BATCH_ROWS], EXPUNGED)
    tx.run(
        "UPDATE payload SET body = NULL, expunged_at = :now"
        " WHERE message = :message AND expunged_at IS NULL",
        {"message": message.id, "now": tx.now},
    )


def expire_payloads(tx: Tx, place: str, limit: int) -> tuple[int, str | None]:
    """Empty payloads past their time among the next `limit` after a place.

    A payload stays while a work row of its message is open; so a place is kept, or a
    large backlog that waits would be looked at again each time. Returns how many were
    emptied, and the next place, None when all were looked at.
    """
    at, _, message = place.partition(" ")
    found = tx.all(
        "SELECT message, expires_at FROM payload WHERE expunged_at IS NULL"
        " AND expires_at <= :now AND expires_at >= :at"
        " AND (expires_at > :at OR message > :message)"
        " ORDER BY expires_at, message LIMIT :limit",
        {"now": tx.now, "at": int(at or 0), "message": message, "limit": limit},
    )
    if not found:
        return 0, None
    asked, params = tx.rows("b", {"id": "text"}, [(row.message,) for row in found])
    emptied = tx.run(
        "UPDATE payload SET body = NULL, expunged_at = :now WHERE expunged_at IS NULL"
        f" AND message IN (SELECT b.id FROM {asked}) AND NOT EXISTS ("
        " SELECT 1 FROM delivery d JOIN work w ON w.id = d.work"
        " WHERE d.message = payload.message"
        " AND w.state IN ('ready', 'claimed', 'parked'))",
        {**params, "now": tx.now},
    )
    last = found[-1]
    return emptied, f"{last.expires_at} {last.message}" if len(found) == limit else None


def as_read(row: sa.Row[Any], *, with_content: bool) -> Message:
    """Build a message from a row of these lists; an expired payload is gone."""
    gone = row.payload_gone if with_content else False
    body = row.body if with_content and not gone else None
    return rows.as_message(row, body=body, expunged=bool(gone))


def _with_payload(tx: Tx) -> sa.Select[Any]:
    gone = sa.or_(_P.c.body.is_(None), _P.c.expires_at <= tx.now)
    return sa.select(*_M.c, _P.c.body, gone.label("payload_gone")).select_from(
        _M.outerjoin(_P, _P.c.message == _M.c.id)
    )


def _without_payload() -> sa.Select[Any]:
    return sa.select(*_M.c)
