"""Receipts and refusals as people and listeners read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from tenure.errors import NotFound
from tenure.ids import AppId, MessageId, Prefix, ReceiptId, SourceId, TenantId, is_id
from tenure.inbox import tables
from tenure.inbox.ledger.places import horizon
from tenure.inbox.model import Receipt, ReceiptDetail, ReceiptFilter, Refusals, Refused
from tenure.limits import REFUSED_KEPT
from tenure.outbox import relayed
from tenure.outbox.ledger import paging, rows
from tenure.outbox.ledger.resending import resend
from tenure.outbox.model import Page, PageIn
from tenure.outbox.rules import check_filter_types, check_page, findable

if TYPE_CHECKING:
    from tenure.outbox.model import Resent
    from tenure.store.tx import Tx

__all__ = [
    "after_place",
    "find_receipt",
    "list_receipts",
    "receipt_row",
    "refusals",
    "replay_receipt",
    "source_id",
]

_T: Final = tables.receipt


def source_id(tx: Tx, tenant: TenantId, ref: str) -> SourceId:
    """Return the id of the source of this id or uid, deleted ones by id only."""
    found = (
        tx.first(
            "SELECT id FROM source WHERE tenant = :tenant AND (id = :ref"
            " OR (uid = :ref AND deleted_at IS NULL))",
            {"tenant": tenant, "ref": ref},
        )
        if findable(ref)
        else None
    )
    if found is None:
        raise NotFound(f"source {ref[:100]!r} was not found")
    return SourceId(found.id)


def list_receipts(
    tx: Tx, tenant: TenantId, page: PageIn, wanted: ReceiptFilter
) -> Page[Receipt]:
    """Return one page of receipts, newest first."""
    cursor = check_page(page, paging.valid_id(Prefix.RECEIPT))
    stmt = sa.select(_T).where(_T.c.tenant == tenant)
    if wanted.source is not None:
        stmt = stmt.where(_T.c.source == source_id(tx, tenant, wanted.source))
    names = check_filter_types(wanted.event_types)
    if names is not None:
        stmt = stmt.where(_T.c.event_type.in_(names))
    stmt = paging.between(
        stmt, _T.c.id, Prefix.RECEIPT, before=wanted.before, after=wanted.after
    )
    fetched = paging.fetch(tx, stmt, _T.c.id, cursor, limit=page.limit, descending=True)
    return paging.page_of(fetched, as_receipt, lambda row: row.id)


def receipt_row(tx: Tx, tenant: TenantId, ref: str) -> Any:
    """Return the row of this receipt; raises NotFound."""
    found = (
        tx.first(sa.select(_T).where(_T.c.tenant == tenant, _T.c.id == ref))
        if is_id(ref, Prefix.RECEIPT)
        else None
    )
    if found is None:
        raise NotFound(f"receipt {ref[:100]!r} was not found")
    return found


def find_receipt(tx: Tx, tenant: TenantId, ref: str) -> ReceiptDetail:
    """Return a receipt whole; raises NotFound."""
    row = receipt_row(tx, tenant, ref)
    found = tx.first(
        "SELECT m.relay, p.body FROM message m"
        " LEFT JOIN payload p ON p.message = m.id WHERE m.id = :message"
        if row.message is not None
        else "SELECT relay, body FROM receipt_body WHERE receipt = :receipt",
        {"message": row.message} if row.message is not None else {"receipt": row.id},
    )
    relay = None if found is None or found.relay is None else relayed.shown(found.relay)
    return ReceiptDetail(
        receipt=as_receipt(row),
        query="" if relay is None else relay.query,
        headers=() if relay is None else relay.headers,
        body=None if found is None or found.body is None else bytes(found.body),
        made=_made(tx, row),
    )


def _made(tx: Tx, row: Any) -> tuple[MessageId, ...]:
    if row.message is not None:
        return (MessageId(row.message),)
    found = tx.all(
        "SELECT message FROM receipt_part WHERE receipt = :id ORDER BY position",
        {"id": row.id},
    )
    return tuple(MessageId(each.message) for each in found)


def replay_receipt(
    tx: Tx, tenant: TenantId, ref: str, *, endpoint: str | None = None
) -> list[Resent]:
    """Hand on a receipt's messages again: to one endpoint, or to all there are now.

    Endpoints whose filters do not match are left out unless named, and those with an
    expression that did not get it before. Raises NotFound, or
    MissingPayload when the bytes are gone.
    """
    row = receipt_row(tx, tenant, ref)
    done: list[Resent] = []
    for message in _made(tx, row):
        wanted = [endpoint] if endpoint is not None else _targets(tx, row.app, message)
        done += [resend(tx, tenant, row.app, message, each).value for each in wanted]
    return done


def _targets(tx: Tx, app: str, message: str) -> list[str]:
    """Return the endpoints that got a message, and those made since that would."""
    made = tx.all(
        "SELECT e.id, e.event_types, e.channels, e.settings, d.work, m.event_type FROM endpoint e"
        " JOIN message m ON m.id = :message"
        " LEFT JOIN delivery d ON d.message = m.id AND d.endpoint = e.id"
        " WHERE e.app = :app AND e.deleted_at IS NULL ORDER BY e.id",
        {"app": app, "message": message},
    )
    found: list[str] = []
    for row in made:
        types = rows.texts(row.event_types)
        fits = (
            row.channels is None
            and (types is None or row.event_type in types)
            and rows.filter_of(row.settings) is None
        )
        if row.work is not None or fits:
            found.append(row.id)
    return found


def after_place(
    tx: Tx,
    tenant: TenantId,
    place: int,
    receipt: str,
    *,
    source: str | None,
    limit: int,
) -> list[Receipt]:
    """Return the receipts after a cursor in the order of their commits.

    Only what is behind the horizon: nothing can appear before what this returns.
    """
    stmt = sa.select(_T).where(
        _T.c.tenant == tenant,
        _T.c.place >= place,
        sa.or_(_T.c.place > place, _T.c.id > receipt),
        _T.c.place < horizon(tx),
    )
    if source is not None:
        stmt = stmt.where(_T.c.source == source)
    stmt = stmt.order_by(_T.c.place, _T.c.id).limit(limit)
    return [as_receipt(row) for row in tx.all(stmt)]


def refusals(tx: Tx, tenant: TenantId, ref: str) -> Refusals:
    """Return what a source refused: counts by reason, the newest ones whole."""
    source = source_id(tx, tenant, ref)
    counts = tx.all(
        "SELECT reason, count FROM refusal_count WHERE source = :source"
        " ORDER BY count DESC, reason",
        {"source": source},
    )
    t = tables.refused
    kept = tx.all(
        sa.select(t)
        .where(t.c.source == source)
        .order_by(t.c.id.desc())
        .limit(REFUSED_KEPT)
    )
    return Refusals(
        counts={row[0]: row[1] for row in counts},
        kept=tuple(_as_refused(row) for row in kept),
    )


def _as_refused(row: Any) -> Refused:
    return Refused(
        id=row.id,
        source=SourceId(row.source),
        reason=row.reason,
        detail=row.detail,
        status=row.status,
        method=row.method,
        query=row.query,
        address=row.address,
        headers=rows.pairs_of(row.headers),
        body=bytes(row.body),
        size=row.size,
        received_at=row.received_at,
    )


def as_receipt(row: Any) -> Receipt:
    """Build a receipt from its row."""
    return Receipt(
        id=ReceiptId(row.id),
        source=SourceId(row.source),
        app=AppId(row.app),
        message=None if row.message is None else MessageId(row.message),
        messages=row.messages,
        event_type=row.event_type,
        event_id=row.event_id,
        method=row.method,
        address=row.address,
        size=row.size,
        received_at=row.received_at,
        place=row.place,
    )
