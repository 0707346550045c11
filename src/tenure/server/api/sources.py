"""Sources: `/api/v1/source`, with secrets and what was refused. For tenants' keys."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from tenure.errors import Forbidden
from tenure.outbox.model import Caller, Scope
from tenure.server import inbound
from tenure.server.auth import TenantCaller
from tenure.server.openapi import documented
from tenure.server.paging import Ordered
from tenure.server.problems import NO_CONTENT, json_answer
from tenure.server.reading import Here, Once, body_of
from tenure.server.schemas import ListOf
from tenure.server.shapes import page_out

ROOT = "/api/v1/source"
ONE = ROOT + "/{source_id}"

In = Annotated[inbound.SourceIn, Depends(body_of(inbound.SourceIn))]
Patch = Annotated[inbound.SourcePatch, Depends(body_of(inbound.SourcePatch))]
Trigger = Annotated[inbound.TriggerIn, Depends(body_of(inbound.TriggerIn))]
Rotate = Annotated[inbound.RotateIn, Depends(body_of(inbound.RotateIn))]


def check_pull(caller: Caller, *, pulls: bool) -> None:
    """Raise Forbidden unless the key may let nodes dial a broker."""
    if pulls and caller.scope is not Scope.ADMIN:
        raise Forbidden("only an admin key may let a source pull from a broker")


async def list_all(caller: TenantCaller, here: Here, page: Ordered) -> Response:
    """List sources, oldest first."""
    found = await here.inbox.list_sources(caller.tenant, page)
    return json_answer(page_out(found, inbound.source_out)).response()


async def create(caller: TenantCaller, here: Here, body: In, once: Once) -> Response:
    """Create a source, and its application where it names none."""
    check_pull(caller, pulls=body.pull is not None)
    made = await here.inbox.create_source(caller.tenant, body.value(), idempotency=once)
    return json_answer(inbound.source_out(made.value), 201).response()


async def get(source_id: str, caller: TenantCaller, here: Here) -> Response:
    """Return a source by its id or uid."""
    found = await here.inbox.get_source(caller.tenant, source_id)
    return json_answer(inbound.source_out(found)).response()


async def put(source_id: str, caller: TenantCaller, here: Here, body: In) -> Response:
    """Put a source in place; its application and secrets stay."""
    check_pull(caller, pulls=body.pull is not None)
    done = await here.inbox.update_source(caller.tenant, source_id, body.value())
    status = 201 if done.created else 200
    return json_answer(inbound.source_out(done.value), status).response()


async def patch(
    source_id: str, caller: TenantCaller, here: Here, body: Patch
) -> Response:
    """Change some members of a source."""
    check_pull(caller, pulls=body.pull is not None)
    done = await here.inbox.patch_source(caller.tenant, source_id, body.value())
    return json_answer(inbound.source_out(done)).response()


async def delete(source_id: str, caller: TenantCaller, here: Here) -> Response:
    """Delete a source; what it accepted is delivered all the same."""
    await here.inbox.delete_source(caller.tenant, source_id)
    return NO_CONTENT.response()


async def rotate(
    source_id: str, caller: TenantCaller, here: Here, body: Rotate, once: Once
) -> Response:
    """Believe another secret, and the former ones until the grace ends."""
    done = await here.inbox.rotate_source_secret(
        caller.tenant,
        source_id,
        body.secret,
        grace_seconds=body.grace_period_seconds,
        idempotency=once,
    )
    return json_answer(inbound.source_out(done)).response()


async def remove_secret(
    source_id: str, number: int, caller: TenantCaller, here: Here
) -> Response:
    """Stop to believe one secret, counted from 0, the newest first."""
    done = await here.inbox.remove_source_secret(caller.tenant, source_id, number)
    return json_answer(inbound.source_out(done)).response()


async def trigger(
    source_id: str, caller: TenantCaller, here: Here, body: Trigger, once: Once
) -> Response:
    """Let a signed sample arrive, as the source's provider would send it."""
    del once  # two samples are two events
    told = await here.inbox.trigger(caller.tenant, source_id, body.event)
    shown = {
        "status": told.status,
        "receiptId": told.receipt,
        "body": told.body.decode("utf-8", "replace"),
    }
    return json_answer(shown).response()


async def refused(source_id: str, caller: TenantCaller, here: Here) -> Response:
    """Return what was refused: counts by reason, the newest requests and why."""
    found = await here.inbox.refusals(caller.tenant, source_id)
    return json_answer(inbound.refusals_out(found)).response()


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Source"])
    out, given = inbound.SourceOut, inbound.SourceIn
    routes.get(ROOT, **documented({200: ListOf[inbound.SourceOut]}))(list_all)
    routes.post(ROOT, **documented({201: out}, body=given))(create)
    routes.get(ONE, **documented({200: out}))(get)
    routes.put(ONE, **documented({200: out, 201: out}, body=given))(put)
    routes.patch(ONE, **documented({200: out}, body=inbound.SourcePatch))(patch)
    routes.delete(ONE, **documented({204: None}))(delete)
    secret = ONE + "/secret"
    routes.post(secret + "/rotate", **documented({200: out}, body=inbound.RotateIn))(
        rotate
    )
    routes.delete(secret + "/{number}", **documented({200: out}))(remove_secret)
    routes.post(
        ONE + "/trigger",
        **documented({200: inbound.TriggeredOut}, body=inbound.TriggerIn),
    )(trigger)
    routes.get(ONE + "/refused", **documented({200: inbound.RefusalsOut}))(refused)
    return routes
