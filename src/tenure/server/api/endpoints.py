"""Endpoints: `/api/v1/app/{app_id}/endpoint`, with headers, secret and statistics."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from tenure.clock import US
from tenure.errors import InvalidRange
from tenure.limits import CLOCK_SKEW_SECONDS, DAY_SECONDS, STATS_DAYS_MAX
from tenure.outbox.model import Caller, Scope
from tenure.server import wire
from tenure.server.auth import AppCaller
from tenure.server.openapi import documented
from tenure.server.paging import Ordered, Single, When
from tenure.server.problems import NO_CONTENT, json_answer
from tenure.server.reading import Here, Once, body_of
from tenure.server.schemas import (
    EndpointHeadersOut,
    EndpointOut,
    EndpointSecretOut,
    EndpointStatsOut,
    ListOf,
)
from tenure.server.shapes import endpoint_out, headers_out, page_out, stats_out

ROOT = "/api/v1/app/{app_id}/endpoint"
ONE = ROOT + "/{endpoint_id}"

In = Annotated[wire.EndpointIn, Depends(body_of(wire.EndpointIn))]
Update = Annotated[wire.EndpointUpdate, Depends(body_of(wire.EndpointUpdate))]
Patch = Annotated[wire.EndpointPatch, Depends(body_of(wire.EndpointPatch))]
Headers = Annotated[wire.EndpointHeadersIn, Depends(body_of(wire.EndpointHeadersIn))]
HeadersPatch = Annotated[
    wire.EndpointHeadersPatchIn, Depends(body_of(wire.EndpointHeadersPatchIn))
]
Rotate = Annotated[
    wire.EndpointSecretRotateIn,
    Depends(body_of(wire.EndpointSecretRotateIn, optional=True)),
]


def is_operator(caller: Caller) -> bool:
    """Tell whether a key may open networks to an endpoint."""
    return caller.scope is Scope.ADMIN and caller.app is None


def check_range(since: int | None, until: int | None, now: int) -> None:
    """Raise InvalidRange beyond 28 days (and 5 minutes of clocks), or ahead of now."""
    end = now if until is None else until
    longest = round(STATS_DAYS_MAX * DAY_SECONDS + CLOCK_SKEW_SECONDS) * US
    if end > now + round(CLOCK_SKEW_SECONDS) * US:
        raise InvalidRange("`until` lies in the future")
    if since is not None and end - since > longest:
        raise InvalidRange(f"give at most {STATS_DAYS_MAX} days from since to until")


async def list_all(
    app_id: str, caller: AppCaller, here: Here, page: Ordered
) -> Response:
    """List an application's endpoints, newest first."""
    found = await here.outbox.list_endpoints(caller.tenant, app_id, page)
    return json_answer(page_out(found, endpoint_out)).response()


async def create(
    app_id: str, caller: AppCaller, here: Here, body: In, once: Once
) -> Response:
    """Create an endpoint."""
    made = await here.outbox.create_endpoint(
        caller.tenant,
        app_id,
        body.value(),
        operator=is_operator(caller),
        idempotency=once,
    )
    return json_answer(endpoint_out(made.value), 201).response()


async def get(app_id: str, endpoint_id: str, caller: AppCaller, here: Here) -> Response:
    """Return an endpoint by its id or uid."""
    found = await here.outbox.get_endpoint(caller.tenant, app_id, endpoint_id)
    return json_answer(endpoint_out(found)).response()


async def put(
    app_id: str, endpoint_id: str, caller: AppCaller, here: Here, body: Update
) -> Response:
    """Put an endpoint in place; its secret and headers stay."""
    done = await here.outbox.update_endpoint(
        caller.tenant,
        app_id,
        endpoint_id,
        body.value(),
        operator=is_operator(caller),
    )
    status = 201 if done.created else 200
    return json_answer(endpoint_out(done.value), status).response()


async def patch(
    app_id: str, endpoint_id: str, caller: AppCaller, here: Here, body: Patch
) -> Response:
    """Change some members of an endpoint."""
    done = await here.outbox.patch_endpoint(
        caller.tenant,
        app_id,
        endpoint_id,
        body.value(),
        operator=is_operator(caller),
    )
    return json_answer(endpoint_out(done)).response()


async def delete(
    app_id: str, endpoint_id: str, caller: AppCaller, here: Here
) -> Response:
    """Delete an endpoint: what waits is cancelled, history stays."""
    await here.outbox.delete_endpoint(caller.tenant, app_id, endpoint_id)
    return NO_CONTENT.response()


async def get_headers(
    app_id: str, endpoint_id: str, caller: AppCaller, here: Here
) -> Response:
    """Return the custom headers; sensitive ones by name only."""
    found = await here.outbox.endpoint_headers(caller.tenant, app_id, endpoint_id)
    return json_answer(headers_out(found)).response()


async def put_headers(
    app_id: str, endpoint_id: str, caller: AppCaller, here: Here, body: Headers
) -> Response:
    """Replace every custom header."""
    await here.outbox.put_endpoint_headers(
        caller.tenant, app_id, endpoint_id, body.headers
    )
    return NO_CONTENT.response()


async def patch_headers(
    app_id: str, endpoint_id: str, caller: AppCaller, here: Here, body: HeadersPatch
) -> Response:
    """Set some custom headers; null, or a name in `deleteHeaders`, removes one."""
    await here.outbox.patch_endpoint_headers(
        caller.tenant, app_id, endpoint_id, body.headers, delete=body.delete_headers
    )
    return NO_CONTENT.response()


async def get_secret(
    app_id: str, endpoint_id: str, caller: AppCaller, here: Here
) -> Response:
    """Return the signing secret, or the public key of an ed25519 one."""
    key = await here.outbox.endpoint_secret(caller.tenant, app_id, endpoint_id)
    return json_answer({"key": key}).response()


async def rotate_secret(
    app_id: str,
    endpoint_id: str,
    caller: AppCaller,
    here: Here,
    body: Rotate,
    once: Once,
) -> Response:
    """Change the signing secret; the old one signs on until its grace ends."""
    outbox = here.outbox
    await outbox.rotate_endpoint_secret(
        caller.tenant, app_id, endpoint_id, body.value(), idempotency=once
    )
    key = await outbox.endpoint_secret(caller.tenant, app_id, endpoint_id)
    return json_answer({"key": key}).response()


async def get_stats(
    app_id: str,
    endpoint_id: str,
    caller: AppCaller,
    here: Here,
    since: Annotated[When | None, Query()] = None,
    until: Annotated[When | None, Query()] = None,
    _once: None = Single,
) -> Response:
    """Count attempts by what came of them, by default over the last 28 days."""
    check_range(since, until, here.clock.wall_us())
    found = await here.outbox.endpoint_stats(
        caller.tenant, app_id, endpoint_id, since=since, until=until
    )
    return json_answer(stats_out(found)).response()


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Endpoint"])
    out = EndpointOut
    routes.get(ROOT, **documented({200: ListOf[EndpointOut]}))(list_all)
    routes.post(ROOT, **documented({201: out}, body=wire.EndpointIn))(create)
    routes.get(ONE, **documented({200: out}))(get)
    routes.put(ONE, **documented({200: out, 201: out}, body=wire.EndpointUpdate))(put)
    routes.patch(ONE, **documented({200: out}, body=wire.EndpointPatch))(patch)
    routes.delete(ONE, **documented({204: None}))(delete)
    at = ONE + "/headers"
    routes.get(at, **documented({200: EndpointHeadersOut}))(get_headers)
    routes.put(at, **documented({204: None}, body=wire.EndpointHeadersIn))(put_headers)
    routes.patch(at, **documented({204: None}, body=wire.EndpointHeadersPatchIn))(
        patch_headers
    )
    routes.get(ONE + "/secret", **documented({200: EndpointSecretOut}))(get_secret)
    routes.post(
        ONE + "/secret/rotate",
        **documented(
            {200: EndpointSecretOut},
            body=wire.EndpointSecretRotateIn,
            body_required=False,
        ),
    )(rotate_secret)
    routes.get(ONE + "/stats", **documented({200: EndpointStatsOut}))(get_stats)
    return routes
