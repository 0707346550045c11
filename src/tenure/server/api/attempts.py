"""Attempts: what came of a message, by endpoint and by message, and sending again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Response

from tenure.outbox.model import Attempt, AttemptedMessage, AttemptFilter, AttemptStatus
from tenure.server.auth import AppCaller, AppOwner
from tenure.server.openapi import ANY, documented
from tenure.server.paging import CodeClass, Content, Paged, Status, Text, Windowed
from tenure.server.problems import NO_CONTENT, json_answer
from tenure.server.reading import Here, Once
from tenure.server.schemas import (
    AttemptedDestinationOut,
    AttemptedMessageOut,
    AttemptOut,
    EmptyOut,
    ListOf,
)
from tenure.server.shapes import (
    Json,
    attempt_out,
    attempted_destination_out,
    attempted_message_out,
    page_out,
)

APP = "/api/v1/app/{app_id}"


def filter_in(
    window: Windowed,
    status: Status = None,
    status_code_class: CodeClass = None,
    with_content: Content = True,  # noqa: FBT002 -- a query parameter
) -> AttemptFilter:
    """Return which attempts the query asks for."""
    return AttemptFilter(
        status=status,
        status_class=None if status_code_class is None else int(status_code_class),
        channel=window.channel,
        tag=window.tag,
        event_types=window.event_types,
        before=window.before,
        after=window.after,
        with_content=with_content,
    )


def filter_of_endpoint(
    wanted: Annotated[AttemptFilter, Depends(filter_in)], endpoint_id: Text = None
) -> AttemptFilter:
    """Return the filter, of one endpoint if the query names one."""
    return replace(wanted, endpoint=endpoint_id)


Wanted = Annotated[AttemptFilter, Depends(filter_in)]
WantedOfEndpoint = Annotated[AttemptFilter, Depends(filter_of_endpoint)]


async def by_endpoint(
    app_id: str,
    endpoint_id: str,
    caller: AppCaller,
    here: Here,
    page: Paged,
    wanted: Wanted,
) -> Response:
    """List the attempts at an endpoint, newest first."""
    found = await here.outbox.list_attempts_by_endpoint(
        caller.tenant, app_id, endpoint_id, page, wanted
    )
    return json_answer(page_out(found, _shower(wanted))).response()


async def by_message(
    app_id: str,
    msg_id: str,
    caller: AppCaller,
    here: Here,
    page: Paged,
    wanted: WantedOfEndpoint,
) -> Response:
    """List the attempts to deliver a message, newest first."""
    found = await here.outbox.list_attempts_by_message(
        caller.tenant, app_id, msg_id, page, wanted
    )
    return json_answer(page_out(found, _shower(wanted))).response()


def _shower(wanted: AttemptFilter) -> Callable[[Attempt], Json]:
    def show(attempt: Attempt) -> Json:
        return attempt_out(attempt, with_content=wanted.with_content)

    return show


async def attempted_messages(
    app_id: str,
    endpoint_id: str,
    caller: AppCaller,
    here: Here,
    page: Paged,
    window: Windowed,
    status: Status = None,
    with_content: Content = True,  # noqa: FBT002 -- a query parameter
) -> Response:
    """List an endpoint's messages, newest first, with how each one stands."""
    wanted = _message_filter(window, status, with_content=with_content)
    found = await here.outbox.list_attempted_messages(
        caller.tenant, app_id, endpoint_id, page, wanted
    )

    def show(item: AttemptedMessage) -> Json:
        return attempted_message_out(item, with_content=with_content)

    return json_answer(page_out(found, show)).response()


def _message_filter(
    window: Windowed, status: AttemptStatus | None, *, with_content: bool
) -> AttemptFilter:
    return AttemptFilter(
        status=status,
        channel=window.channel,
        tag=window.tag,
        event_types=window.event_types,
        before=window.before,
        after=window.after,
        with_content=with_content,
    )


async def attempted_destinations(
    app_id: str, msg_id: str, caller: AppCaller, here: Here, page: Paged
) -> Response:
    """List a message's endpoints by id, with how each delivery stands."""
    found = await here.outbox.list_attempted_destinations(
        caller.tenant, app_id, msg_id, page
    )
    return json_answer(page_out(found, attempted_destination_out)).response()


async def get(
    app_id: str, msg_id: str, attempt_id: str, caller: AppCaller, here: Here
) -> Response:
    """Return one attempt with the response."""
    found = await here.outbox.get_attempt(caller.tenant, app_id, msg_id, attempt_id)
    return json_answer(attempt_out(found)).response()


async def expunge(
    app_id: str, msg_id: str, attempt_id: str, caller: AppOwner, here: Here
) -> Response:
    """Remove the stored response of one attempt."""
    await here.outbox.expunge_attempt(caller.tenant, app_id, msg_id, attempt_id)
    return NO_CONTENT.response()


async def resend(
    app_id: str,
    msg_id: str,
    endpoint_id: str,
    caller: AppCaller,
    here: Here,
    once: Once,
) -> Response:
    """Send a message to one endpoint again, whatever came of it before."""
    await here.outbox.resend(
        caller.tenant, app_id, msg_id, endpoint_id, idempotency=once
    )
    return json_answer({}, 202).response()


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Message Attempt"])
    attempts = documented({200: ListOf[AttemptOut]})
    routes.get(APP + "/attempt/endpoint/{endpoint_id}", **attempts)(by_endpoint)
    routes.get(APP + "/attempt/msg/{msg_id}", **attempts)(by_message)
    routes.get(
        APP + "/endpoint/{endpoint_id}/msg",
        **documented({200: ListOf[AttemptedMessageOut]}),
    )(attempted_messages)
    routes.get(
        APP + "/msg/{msg_id}/endpoint",
        **documented({200: ListOf[AttemptedDestinationOut]}),
    )(attempted_destinations)
    one = APP + "/msg/{msg_id}/attempt/{attempt_id}"
    routes.get(one, **documented({200: AttemptOut}))(get)
    routes.delete(one + "/content", **documented({204: None}))(expunge)
    routes.post(
        APP + "/msg/{msg_id}/endpoint/{endpoint_id}/resend",
        **documented({202: EmptyOut}, errors=(*ANY, 408, 409, 410, 413)),
    )(resend)
    return routes
