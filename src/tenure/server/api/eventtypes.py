"""Event types: `/api/v1/event-type`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from tenure.outbox.model import EventType
from tenure.server import wire
from tenure.server.auth import AnyCaller, TenantCaller
from tenure.server.openapi import documented
from tenure.server.paging import Bool, Ordered, Single
from tenure.server.problems import NO_CONTENT, json_answer
from tenure.server.reading import Here, Once, body_of
from tenure.server.schemas import EventTypeOut, ListOf
from tenure.server.shapes import Json, event_type_out, page_out

ROOT = "/api/v1/event-type"
ONE = ROOT + "/{event_type_name}"

In = Annotated[wire.EventTypeIn, Depends(body_of(wire.EventTypeIn))]
Update = Annotated[wire.EventTypeUpdate, Depends(body_of(wire.EventTypeUpdate))]
Patch = Annotated[wire.EventTypePatch, Depends(body_of(wire.EventTypePatch))]


async def list_all(
    caller: AnyCaller,
    here: Here,
    page: Ordered,
    include_archived: Annotated[Bool, Query()] = False,  # noqa: FBT002 -- a query parameter
    with_content: Annotated[Bool, Query()] = False,  # noqa: FBT002 -- a query parameter
) -> Response:
    """List the event types by name; schemas are null unless content is asked for."""
    found = await here.outbox.list_event_types(
        caller.tenant, page, include_archived=include_archived
    )

    def show(item: EventType) -> Json:
        return event_type_out(item, with_content=with_content)

    return json_answer(page_out(found, show)).response()


async def create(caller: TenantCaller, here: Here, body: In, once: Once) -> Response:
    """Create an event type, or revive an archived one."""
    made = await here.outbox.create_event_type(
        caller.tenant, body.value(), idempotency=once
    )
    return json_answer(event_type_out(made.value), 201).response()


async def get(event_type_name: str, caller: AnyCaller, here: Here) -> Response:
    """Return an event type, archived ones too."""
    found = await here.outbox.get_event_type(caller.tenant, event_type_name)
    return json_answer(event_type_out(found)).response()


async def put(
    event_type_name: str, caller: TenantCaller, here: Here, body: Update
) -> Response:
    """Put an event type in place under the name of the path."""
    done = await here.outbox.update_event_type(
        caller.tenant, event_type_name, body.named(event_type_name)
    )
    status = 201 if done.created else 200
    return json_answer(event_type_out(done.value), status).response()


async def patch(
    event_type_name: str, caller: TenantCaller, here: Here, body: Patch
) -> Response:
    """Change some members of an event type."""
    done = await here.outbox.patch_event_type(
        caller.tenant, event_type_name, body.value()
    )
    return json_answer(event_type_out(done)).response()


async def delete(
    event_type_name: str,
    caller: TenantCaller,
    here: Here,
    expunge: Annotated[Bool, Query()] = False,  # noqa: FBT002 -- a query parameter
    _once: None = Single,
) -> Response:
    """Archive an event type; `expunge=true` removes it."""
    await here.outbox.delete_event_type(caller.tenant, event_type_name, expunge=expunge)
    return NO_CONTENT.response()


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Event Type"])
    out = EventTypeOut
    routes.get(ROOT, **documented({200: ListOf[EventTypeOut]}))(list_all)
    routes.post(ROOT, **documented({201: out}, body=wire.EventTypeIn))(create)
    routes.get(ONE, **documented({200: out}))(get)
    routes.put(ONE, **documented({200: out, 201: out}, body=wire.EventTypeUpdate))(put)
    routes.patch(ONE, **documented({200: out}, body=wire.EventTypePatch))(patch)
    routes.delete(ONE, **documented({204: None}))(delete)
    return routes
