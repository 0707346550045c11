"""Receipts: `/api/v1/receipt`: listed, shown whole, handed on again."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from tenure.inbox.model import ReceiptFilter
from tenure.limits import UID_MAX
from tenure.server import inbound
from tenure.server.auth import TenantCaller
from tenure.server.openapi import documented
from tenure.server.paging import Bound, EventTypes, Paged
from tenure.server.problems import json_answer
from tenure.server.reading import Here, Once, body_of
from tenure.server.schemas import ListOf
from tenure.server.shapes import page_out

ROOT = "/api/v1/receipt"
ONE = ROOT + "/{receipt_id}"

Replay = Annotated[inbound.ReplayIn, Depends(body_of(inbound.ReplayIn, optional=True))]


async def list_all(
    caller: TenantCaller,
    here: Here,
    page: Paged,
    event_types: EventTypes,
    before: Bound = None,
    after: Bound = None,
    source: Annotated[str | None, Query(max_length=UID_MAX)] = None,
) -> Response:
    """List receipts, newest first; `source` narrows it to one."""
    wanted = ReceiptFilter(
        source=source,
        event_types=event_types,
        before=before,
        after=after,
    )
    found = await here.inbox.list_receipts(caller.tenant, page, wanted)
    return json_answer(page_out(found, inbound.receipt_out)).response()


async def get(receipt_id: str, caller: TenantCaller, here: Here) -> Response:
    """Return a receipt with its header lines, bytes and messages."""
    found = await here.inbox.get_receipt(caller.tenant, receipt_id)
    return json_answer(inbound.receipt_detail_out(found)).response()


async def replay(
    receipt_id: str, caller: TenantCaller, here: Here, body: Replay, once: Once
) -> Response:
    """Hand a receipt on again, to all that would get it now, or to one endpoint."""
    done = await here.inbox.replay_receipt(
        caller.tenant, receipt_id, endpoint=body.endpoint_id, idempotency=once
    )
    shown = [{"workId": each.work, "answer": each.answer} for each in done]
    return json_answer({"data": shown}, 202).response()


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Receipt"])
    routes.get(ROOT, **documented({200: ListOf[inbound.ReceiptOut]}))(list_all)
    routes.get(ONE, **documented({200: inbound.ReceiptDetailOut}))(get)
    routes.post(
        ONE + "/replay",
        **documented(
            {202: inbound.ReplayedOut}, body=inbound.ReplayIn, body_required=False
        ),
    )(replay)
    return routes
