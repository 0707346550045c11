"""Messages: `/api/v1/app/{app_id}/msg`. Creating one is `tenure.server.hot`."""

from fastapi import APIRouter, Response

from tenure.outbox.model import Message, MessageFilter
from tenure.server.auth import AnyCaller, AppCaller, AppOwner
from tenure.server.openapi import documented
from tenure.server.paging import Content, Paged, Single, Windowed
from tenure.server.problems import NO_CONTENT, json_answer
from tenure.server.reading import Here
from tenure.server.schemas import ExplanationOut, ListOf, MessageOut
from tenure.server.shapes import Json, explanation_out, message_out, page_out

ROOT = "/api/v1/app/{app_id}/msg"
ONE = ROOT + "/{msg_id}"


async def list_all(
    app_id: str,
    caller: AppCaller,
    here: Here,
    page: Paged,
    window: Windowed,
    with_content: Content = True,  # noqa: FBT002 -- a query parameter
) -> Response:
    """List an application's messages, newest first."""
    wanted = MessageFilter(
        channel=window.channel,
        tag=window.tag,
        event_types=window.event_types,
        before=window.before,
        after=window.after,
        with_content=with_content,
    )
    found = await here.outbox.list_messages(caller.tenant, app_id, page, wanted)

    def show(message: Message) -> Json:
        return message_out(message, with_content=with_content)

    return json_answer(page_out(found, show)).response()


async def get(
    app_id: str,
    msg_id: str,
    caller: AppCaller,
    here: Here,
    with_content: Content = True,  # noqa: FBT002 -- a query parameter
    _once: None = Single,
) -> Response:
    """Return a message by its id or eventId."""
    found = await here.outbox.get_message(
        caller.tenant, app_id, msg_id, with_content=with_content
    )
    return json_answer(message_out(found, with_content=with_content)).response()


async def expunge(app_id: str, msg_id: str, caller: AppOwner, here: Here) -> Response:
    """Remove a message's payload; it cannot be sent again."""
    await here.outbox.expunge_message(caller.tenant, app_id, msg_id)
    return NO_CONTENT.response()


async def explain(app_id: str, msg_id: str, caller: AppCaller, here: Here) -> Response:
    """Say why each endpoint matched or not, what came back, and why it waits."""
    found = await here.outbox.explain(caller.tenant, msg_id, app_ref=app_id)
    return json_answer(explanation_out(found)).response()


async def explain_any(
    ref: str, caller: AnyCaller, here: Here, _once: None = Single
) -> Response:
    """Explain a message or work row by its id, in whichever application it is."""
    found = await here.outbox.explain(caller.tenant, ref, app_ref=caller.app)
    return json_answer(explanation_out(found)).response()


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Message"])
    routes.get(ROOT, **documented({200: ListOf[MessageOut]}))(list_all)
    routes.get(ONE, **documented({200: MessageOut}))(get)
    routes.get(ONE + "/explain", **documented({200: ExplanationOut}))(explain)
    routes.get("/api/v1/explain/{ref}", **documented({200: ExplanationOut}))(
        explain_any
    )
    routes.delete(ONE + "/content", **documented({204: None}))(expunge)
    return routes
