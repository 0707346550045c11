"""Resend: one message to one endpoint again, whatever it matched.

By the state of its work row: terminal or parked starts over, ready goes now, claimed is
in flight and stays. Without a row one is made, past the endpoint's filters. A disabled
endpoint accepts the resend, and its lane says why it waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from tenure.errors import MissingPayload, NotFound
from tenure.ids import LaneId, TenantId, WorkId, new_work_id
from tenure.outbox import tables
from tenure.outbox.ledger.applications import find_application
from tenure.outbox.ledger.endpoints import KIND, endpoint_row
from tenure.outbox.ledger.messages import message_row
from tenure.outbox.model import Resent, Trigger, Written
from tenure.store import claims

if TYPE_CHECKING:
    from tenure.store.tx import Tx


def resend(
    tx: Tx, tenant: TenantId, app_ref: str, message_ref: str, endpoint_ref: str
) -> Written[Resent]:
    """Send a message to an endpoint again, as a full replay with fresh budgets.

    Raises NotFound, or MissingPayload when the payload was expunged or expired.
    """
    app = find_application(tx, tenant, app_ref)
    message = message_row(tx, tenant, app.id, message_ref)
    endpoint = endpoint_row(tx, tenant, app.id, endpoint_ref)
    if message.payload_gone:
        raise MissingPayload(
            f"the payload of message {message.id} was expunged or has expired;"
            " submit the message anew"
        )
    d = tables.delivery
    same = sa.select(d.c.work).where(
        d.c.message == message.id, d.c.endpoint == endpoint.id
    )
    work = tx.scalar(same)
    if work is None:
        _keep_message(tx, message.id)
        work = new_work_id()
        row = {
            "message": message.id,
            "endpoint": endpoint.id,
            "work": work,
            "app": app.id,
            "lane": endpoint.lane,
            "created_at": tx.now,
        }
        if tx.insert(d, [row], on_conflict="nothing"):
            claims.submit(tx, [_new_work(tenant, work, endpoint.lane, message.id)])
            return _said(work, "ready")
        work = tx.scalar(same)
    answers = claims.replay(tx, [WorkId(work)], trigger=Trigger.MANUAL)
    if work not in answers:
        raise NotFound(f"the delivery of message {message.id} was removed by retention")
    return _said(work, answers[work].name.lower())


def _keep_message(tx: Tx, message: str) -> None:
    """Hold the message until the commit, so that retention does not take it meanwhile."""
    lock = " FOR KEY SHARE" if tx.dialect == "postgresql" else ""
    there = tx.first(f"SELECT 1 FROM message WHERE id = :id{lock}", {"id": message})
    if there is None:
        raise NotFound(f"message {message!r} was removed by retention")


def _said(work: str, answer: str) -> Written[Resent]:
    return Written(value=Resent(work=WorkId(work), answer=answer), created=False)


def _new_work(
    tenant: TenantId, work: WorkId, lane: LaneId, message: str
) -> claims.NewWork:
    return claims.NewWork(
        id=work,
        lane=lane,
        kind=KIND,
        tenant=tenant,
        subject=message,
        trigger=Trigger.MANUAL,
    )
