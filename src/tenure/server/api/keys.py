"""API keys: `/api/v1/key`. Only an admin key of the whole tenant reaches them."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from tenure.outbox.model import Scope
from tenure.server import wire
from tenure.server.auth import AdminCaller, KeyDoor
from tenure.server.openapi import documented
from tenure.server.paging import Ordered
from tenure.server.problems import NO_CONTENT, json_answer
from tenure.server.reading import Here, body_of
from tenure.server.schemas import KeyOut, ListOf, NewKeyOut
from tenure.server.shapes import key_out, page_out

ROOT = "/api/v1/key"
ONE = ROOT + "/{key_id}"

In = Annotated[wire.KeyIn, Depends(body_of(wire.KeyIn))]


async def list_all(caller: AdminCaller, here: Here, page: Ordered) -> Response:
    """List the tenant's keys; never a token."""
    found = await here.outbox.list_api_keys(caller.tenant, page)
    return json_answer(page_out(found, key_out)).response()


async def create(caller: AdminCaller, here: Here, body: In) -> Response:
    """Make a key; its token is shown this once, so an answer is never replayed."""
    made = await here.outbox.create_api_key(
        caller.tenant,
        name=body.name,
        scope=Scope(body.scope),
        app_ref=body.app_id,
        expires_at=body.expires_at,
    )
    shown = key_out(made.key) | {"token": made.token}
    return json_answer(shown, 201, {"cache-control": "no-store"}).response()


async def revoke(
    key_id: str, caller: AdminCaller, here: Here, request: Request
) -> Response:
    """Revoke a key: at once here, within two seconds on every other node."""
    await here.outbox.revoke_api_key(caller.tenant, key_id)
    door: KeyDoor = request.app.state.door
    door.forget()
    return NO_CONTENT.response()


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Key"])
    routes.get(ROOT, **documented({200: ListOf[KeyOut]}))(list_all)
    routes.post(ROOT, **documented({201: NewKeyOut}, body=wire.KeyIn))(create)
    routes.delete(ONE, **documented({204: None}))(revoke)
    return routes
