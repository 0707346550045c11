"""Applications: `/api/v1/app`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from tenure.errors import Conflict
from tenure.server import wire
from tenure.server.auth import AppCaller, TenantCaller
from tenure.server.openapi import documented
from tenure.server.paging import Bool, Ordered, Single
from tenure.server.problems import NO_CONTENT, json_answer
from tenure.server.reading import Here, Once, body_of
from tenure.server.schemas import ApplicationOut, ListOf
from tenure.server.shapes import application_out, page_out

ROOT = "/api/v1/app"
ONE = ROOT + "/{app_id}"

In = Annotated[wire.ApplicationIn, Depends(body_of(wire.ApplicationIn))]
Patch = Annotated[wire.ApplicationPatch, Depends(body_of(wire.ApplicationPatch))]


async def list_all(caller: TenantCaller, here: Here, page: Ordered) -> Response:
    """List the applications, oldest first."""
    found = await here.outbox.list_applications(caller.tenant, page)
    return json_answer(page_out(found, application_out)).response()


async def create(
    caller: TenantCaller,
    here: Here,
    body: In,
    once: Once,
    get_if_exists: Annotated[Bool, Query()] = False,  # noqa: FBT002 -- a query parameter
    _once: None = Single,
) -> Response:
    """Create an application; with `get_if_exists` return the one of this uid."""
    made = await here.outbox.create_application(
        caller.tenant, body.value(), get_if_exists=get_if_exists, idempotency=once
    )
    status = 201 if made.created else 200
    return json_answer(application_out(made.value), status).response()


async def get(app_id: str, caller: AppCaller, here: Here) -> Response:
    """Return an application by its id or uid."""
    found = await here.outbox.get_application(caller.tenant, app_id)
    return json_answer(application_out(found)).response()


async def put(app_id: str, caller: TenantCaller, here: Here, body: In) -> Response:
    """Put an application in place; one that does not exist is created."""
    done = await here.outbox.update_application(caller.tenant, app_id, body.value())
    status = 201 if done.created else 200
    return json_answer(application_out(done.value), status).response()


async def patch(app_id: str, caller: TenantCaller, here: Here, body: Patch) -> Response:
    """Change some members of an application."""
    done = await here.outbox.patch_application(caller.tenant, app_id, body.value())
    return json_answer(application_out(done)).response()


async def delete(app_id: str, caller: TenantCaller, here: Here) -> Response:
    """Delete an application: what waits is cancelled, history stays.

    409 while sources make messages for it: they would have nowhere to go.
    """
    found = await here.outbox.get_application(caller.tenant, app_id)
    sources = await here.inbox.list_sources(caller.tenant, app=found.id)
    if sources.data:
        named = ", ".join(source.id for source in sources.data[:5])
        raise Conflict(f"sources receive for this application: delete {named} first")
    await here.outbox.delete_application(caller.tenant, app_id)
    return NO_CONTENT.response()


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Application"])
    one: dict[int, type[ApplicationOut] | None] = {200: ApplicationOut}
    both: dict[int, type[ApplicationOut] | None] = {
        200: ApplicationOut,
        201: ApplicationOut,
    }
    body = wire.ApplicationIn
    routes.get(ROOT, **documented({200: ListOf[ApplicationOut]}))(list_all)
    routes.post(ROOT, **documented(both, body=body))(create)
    routes.get(ONE, **documented(one))(get)
    routes.put(ONE, **documented(both, body=body))(put)
    routes.patch(ONE, **documented(one, body=wire.ApplicationPatch))(patch)
    routes.delete(ONE, **documented({204: None}))(delete)
    return routes
