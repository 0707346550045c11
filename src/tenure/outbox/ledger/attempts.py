"""Attempts as the Svix API lists them: the kernel's evidence joined with the exchange.

An attempt without an exchange never had one: it was lost with its node. It is shown as
failed, with that reason. A lost attempt whose holder answered after all shows what the
holder said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from tenure.errors import NotFound
from tenure.ids import AttemptId, EndpointId, MessageId, Prefix, TenantId, WorkId
from tenure.outbox import tables
from tenure.outbox.ledger import paging, rows
from tenure.outbox.ledger.applications import find_application
from tenure.outbox.ledger.endpoints import endpoint_row
from tenure.outbox.ledger.messages import as_read, matching, message_row
from tenure.outbox.model import (
    Attempt,
    AttemptedDestination,
    AttemptedMessage,
    AttemptFilter,
    AttemptStatus,
    Page,
    PageIn,
    Trigger,
)
from tenure.outbox.rules import (
    check_filter_types,
    check_page,
    delivery_status,
    findable,
    shown_url,
)
from tenure.store import schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.store.tx import Tx

_A: Final = schema.attempt
_W: Final = schema.work
_D: Final = tables.delivery
_E: Final = tables.endpoint
_M: Final = tables.message
_P: Final = tables.payload
_X: Final = tables.exchange
_OUTCOME: Final = sa.func.coalesce(_A.c.late_outcome, _A.c.outcome)
_SUCCEEDED: Final = "succeeded"


def list_attempts_by_endpoint(
    tx: Tx,
    tenant: TenantId,
    app_ref: str,
    endpoint_ref: str,
    page: PageIn,
    wanted: AttemptFilter,
) -> Page[Attempt]:
    """Return one page of an endpoint's attempts, newest first."""
    app = find_application(tx, tenant, app_ref)
    endpoint = endpoint_row(tx, tenant, app.id, endpoint_ref)
    return _list(tx, page, wanted, _A.c.lane == endpoint.lane)


def list_attempts_by_message(
    tx: Tx,
    tenant: TenantId,
    app_ref: str,
    message_ref: str,
    page: PageIn,
    wanted: AttemptFilter,
) -> Page[Attempt]:
    """Return one page of a message's attempts at all endpoints, newest first."""
    app = find_application(tx, tenant, app_ref)
    message = message_row(tx, tenant, app.id, message_ref)
    condition = _D.c.message == message.id
    if wanted.endpoint is not None:
        endpoint = endpoint_row(tx, tenant, app.id, wanted.endpoint, deleted_too=True)
        condition &= _D.c.endpoint == endpoint.id
    return _list(tx, page, wanted, condition)


def find_attempt(
    tx: Tx, tenant: TenantId, app_ref: str, message_ref: str, attempt: str
) -> Attempt:
    """Return one attempt with its response; raises NotFound."""
    return _as_attempt(_attempt_row(tx, tenant, app_ref, message_ref, attempt))


def expunge_attempt(
    tx: Tx, tenant: TenantId, app_ref: str, message_ref: str, attempt: str
) -> None:
    """Remove what the receiver answered in one attempt; raises NotFound."""
    found = _attempt_row(tx, tenant, app_ref, message_ref, attempt)
    tx.run(
        "UPDATE exchange SET response_body = NULL, response_headers = NULL,"
        " expunged_at = :now WHERE work = :work AND claim = :claim",
        {"work": found.work, "claim": found.claim, "now": tx.now},
    )


def list_attempted_messages(
    tx: Tx,
    tenant: TenantId,
    app_ref: str,
    endpoint_ref: str,
    page: PageIn,
    wanted: AttemptFilter,
) -> Page[AttemptedMessage]:
    """Return one page of the messages that an endpoint got or waits for."""
    app = find_application(tx, tenant, app_ref)
    endpoint = endpoint_row(tx, tenant, app.id, endpoint_ref)
    cursor = check_page(page, paging.valid_id(Prefix.MESSAGE))
    names = check_filter_types(wanted.event_types)
    gone = sa.or_(_P.c.body.is_(None), _P.c.expires_at <= tx.now)
    body = _P.c.body if wanted.with_content else sa.null().label("body")
    stmt = (
        sa.select(*_M.c, body, gone.label("payload_gone"), *_standing())
        .select_from(
            _D.join(_M, _M.c.id == _D.c.message)
            .join(_W, _W.c.id == _D.c.work)
            .outerjoin(_P, _P.c.message == _M.c.id)
        )
        .where(_D.c.endpoint == endpoint.id)
    )
    stmt = matching(tx, stmt, channel=wanted.channel, tag=wanted.tag, event_types=names)
    if wanted.status is not None:
        stmt = stmt.where(_stands(wanted.status))
    stmt = paging.between(
        stmt, _D.c.message, Prefix.MESSAGE, before=wanted.before, after=wanted.after
    )
    fetched = paging.fetch(
        tx,
        stmt,
        _D.c.message,
        cursor,
        limit=page.limit,
        descending=True,
        oldest_first=wanted.after is not None and wanted.before is None,
        body=_P.c.body if wanted.with_content else None,
    )
    return paging.page_of(
        fetched,
        lambda row: AttemptedMessage(
            message=as_read(row, with_content=wanted.with_content),
            status=delivery_status(row.work_state, row.attempts),
            next_attempt_at=row.next_at,
        ),
        lambda row: row.id,
    )


def list_attempted_destinations(
    tx: Tx, tenant: TenantId, app_ref: str, message_ref: str, page: PageIn
) -> Page[AttemptedDestination]:
    """Return one page of the endpoints that a message is for, deleted ones included."""
    app = find_application(tx, tenant, app_ref)
    message = message_row(tx, tenant, app.id, message_ref)
    cursor = check_page(page, paging.valid_id(Prefix.ENDPOINT))
    stmt = (
        sa.select(*_E.c, *_standing())
        .select_from(
            _D.join(_E, _E.c.id == _D.c.endpoint).join(_W, _W.c.id == _D.c.work)
        )
        .where(_D.c.message == message.id)
    )
    fetched = paging.fetch(
        tx, stmt, _D.c.endpoint, cursor, limit=page.limit, descending=False
    )
    return paging.page_of(
        fetched,
        lambda row: AttemptedDestination(
            endpoint=rows.as_endpoint(row),
            status=delivery_status(row.work_state, row.attempts),
            next_attempt_at=row.next_at,
        ),
        lambda row: row.id,
    )


def _standing() -> Sequence[sa.ColumnElement[Any]]:
    """Columns that tell how a delivery stands."""
    waits = sa.case((_W.c.state == "ready", _W.c.due_at))
    return (
        _W.c.state.label("work_state"),
        (_W.c.claim - _W.c.releases).label("attempts"),
        waits.label("next_at"),
    )


def _stands(status: AttemptStatus) -> sa.ColumnElement[bool]:
    """The condition that `delivery_status` gives this status."""
    attempted = _W.c.claim > _W.c.releases
    ready = _W.c.state == "ready"
    match status:
        case AttemptStatus.SUCCESS:
            return _W.c.state == "succeeded"
        case AttemptStatus.FAIL:
            return _W.c.state.in_(("dead", "cancelled", "parked"))
        case AttemptStatus.SENDING:
            return sa.or_(_W.c.state == "claimed", sa.and_(ready, attempted))
        case AttemptStatus.PENDING:
            return sa.and_(ready, ~attempted)


def _list(
    tx: Tx, page: PageIn, wanted: AttemptFilter, condition: sa.ColumnElement[bool]
) -> Page[Attempt]:
    cursor = check_page(page, paging.valid_id(Prefix.ATTEMPT))
    names = check_filter_types(wanted.event_types)
    stmt = _select(with_content=wanted.with_content).where(condition)
    if wanted.channel is not None or wanted.tag is not None or names is not None:
        stmt = matching(
            tx, stmt, channel=wanted.channel, tag=wanted.tag, event_types=names
        )
    match wanted.status:
        case None:
            pass
        case AttemptStatus.SUCCESS:
            stmt = stmt.where(_OUTCOME == _SUCCEEDED)
        case AttemptStatus.FAIL:
            stmt = stmt.where(_OUTCOME != _SUCCEEDED)
        case AttemptStatus.PENDING | AttemptStatus.SENDING:
            stmt = stmt.where(sa.false())  # an attempt is listed once it has ended
    if wanted.status_class is not None:
        low = wanted.status_class
        code = sa.func.coalesce(_X.c.status_code, 0)
        stmt = stmt.where(code >= low, code <= low + 99)
    stmt = paging.between(
        stmt, _A.c.id, Prefix.ATTEMPT, before=wanted.before, after=wanted.after
    )
    fetched = paging.fetch(
        tx,
        stmt,
        _A.c.id,
        cursor,
        limit=page.limit,
        descending=True,
        oldest_first=wanted.after is not None and wanted.before is None,
    )
    return paging.page_of(fetched, _as_attempt, lambda row: row.id)


def _select(*, with_content: bool) -> sa.Select[Any]:
    body = _X.c.response_body if with_content else sa.null().label("response_body")
    return sa.select(
        *_A.c,
        _D.c.message,
        _D.c.endpoint,
        _E.c.url.label("endpoint_url"),
        _E.c.userinfo.is_not(None).label("has_userinfo"),
        _X.c.url.label("sent_url"),
        _X.c.status_code,
        _X.c.cause,
        body,
        _X.c.response_headers,
        _X.c.request_headers,
        _X.c.truncated,
        _X.c.expunged_at,
        _X.c.duration_us,
        _X.c.address,
        _X.c.tls_version,
    ).select_from(
        _A.join(_D, _D.c.work == _A.c.work)
        .join(_E, _E.c.id == _D.c.endpoint)
        .join(_M, _M.c.id == _D.c.message)
        .outerjoin(_X, sa.and_(_X.c.work == _A.c.work, _X.c.claim == _A.c.claim))
    )


def _attempt_row(
    tx: Tx, tenant: TenantId, app_ref: str, message_ref: str, attempt: str
) -> sa.Row[Any]:
    app = find_application(tx, tenant, app_ref)
    message = message_row(tx, tenant, app.id, message_ref)
    stmt = _select(with_content=True).where(
        _D.c.message == message.id, _A.c.id == attempt
    )
    found = tx.first(stmt) if findable(attempt) else None
    if found is None:
        raise NotFound(f"attempt {attempt[:100]!r} was not found")
    return found


def _as_attempt(row: sa.Row[Any]) -> Attempt:
    outcome = row.late_outcome or row.outcome
    own_url = shown_url(row.endpoint_url, userinfo=row.has_userinfo)
    return Attempt(
        id=AttemptId(row.id),
        work=WorkId(row.work),
        claim=row.claim,
        number=row.number,
        message=MessageId(row.message),
        endpoint=EndpointId(row.endpoint),
        url=row.sent_url or own_url,
        status=(AttemptStatus.SUCCESS if outcome == _SUCCEEDED else AttemptStatus.FAIL),
        outcome=outcome,
        reason=row.late_reason if row.late_outcome else row.reason,
        status_code=row.status_code or 0,
        cause=row.cause,
        response_body=row.response_body,
        response_headers=rows.pairs_of(row.response_headers),
        request_headers=rows.pairs_of(row.request_headers),
        truncated=bool(row.truncated),
        expunged=row.expunged_at is not None,
        duration_us=row.duration_us or 0,
        address=row.address,
        tls_version=row.tls_version,
        trigger=Trigger(row.trigger),
        begun_at=row.begun_at,
        ended_at=row.ended_at,
        next_due_at=row.next_due_at,
        node=row.node,
    )
