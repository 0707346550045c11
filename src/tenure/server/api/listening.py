"""Listening: receipts as they arrive, in the order of their commits, none skipped.

`GET /api/v1/receipt/next` waits for the next ones; `GET /api/v1/receipt/listen` is the
same as a stream of server-sent events, whose ids are cursors. A listener may keep its
cursor under a name: what it was sent and did not keep comes again.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.responses import StreamingResponse

from tenure.ids import TenantId
from tenure.inbox.ledger.listening import Cursor
from tenure.inbox.model import ReceiptDetail
from tenure.limits import (
    LISTEN_BATCH,
    LISTEN_BEAT_SECONDS,
    LISTEN_POLL_SECONDS,
    LISTEN_WAIT_MAX_SECONDS,
    UID_MAX,
)
from tenure.server import inbound
from tenure.server.auth import TenantCaller
from tenure.server.openapi import documented
from tenure.server.problems import json_answer
from tenure.server.reading import Here, body_of
from tenure.server.site import Site

NEXT = "/api/v1/receipt/next"
LISTEN = "/api/v1/receipt/listen"
ONE = "/api/v1/listener/{name}"

Text = Annotated[str | None, Query(max_length=UID_MAX)]
Kept = Annotated[inbound.CursorIn, Depends(body_of(inbound.CursorIn))]
EVENTS = "text/event-stream"


async def wait_for_receipts(
    here: Site, tenant: TenantId, cursor: Cursor, source: str | None, seconds: float
) -> list[ReceiptDetail]:
    """Return the receipts after a cursor; none when that takes too long."""
    until = here.clock.monotonic() + seconds
    while True:
        found = await here.inbox.listen(
            tenant, cursor, source=source, limit=LISTEN_BATCH
        )
        left = until - here.clock.monotonic()
        if found or left <= 0 or here.engine.health().draining:
            return found
        await here.clock.sleep(min(LISTEN_POLL_SECONDS, left))


async def wait_next(
    caller: TenantCaller,
    here: Here,
    cursor: Text = None,
    source: Text = None,
    wait: Annotated[float, Query(ge=0, le=LISTEN_WAIT_MAX_SECONDS)] = 0,
) -> Response:
    """Return the receipts after a cursor, waiting up to `wait` seconds for one.

    Without a cursor nothing is returned but the one of now.
    """
    at = await here.inbox.cursor(cursor)
    if cursor is None:
        return json_answer({"cursor": str(at), "data": []}).response()
    with here.listeners:
        found = await wait_for_receipts(here, caller.tenant, at, source, wait)
    if found:
        at = Cursor.after(found[-1].receipt)
    shown = [inbound.listened_out(each) for each in found]
    return json_answer({"cursor": str(at), "data": shown}).response()


async def listen(
    caller: TenantCaller,
    here: Here,
    cursor: Text = None,
    source: Text = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """Stream receipts as server-sent events; `Last-Event-ID` goes on from there."""
    at = await here.inbox.cursor(last_event_id or cursor)
    stream = _events(here, caller.tenant, at, source)
    first = await anext(stream)  # what is refused is answered as such
    return StreamingResponse(_with(first, stream), media_type=EVENTS)


async def _with(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for each in rest:
        yield each


async def _events(
    here: Site, tenant: TenantId, cursor: Cursor, source: str | None
) -> AsyncIterator[bytes]:
    with here.listeners:
        found = await wait_for_receipts(here, tenant, cursor, source, 0)
        yield f"id: {cursor}\n: listening\n\n".encode()
        while not here.engine.health().draining:
            for each in found:
                cursor = Cursor.after(each.receipt)
                yield _event(cursor, inbound.listened_out(each))
            found = await wait_for_receipts(
                here, tenant, cursor, source, LISTEN_BEAT_SECONDS
            )
            if not found:
                yield b": still here\n\n"


def _event(cursor: Cursor, shown: dict[str, Any]) -> bytes:
    data = msgspec.json.encode(shown)
    return b"id: %b\nevent: receipt\ndata: %b\n\n" % (str(cursor).encode(), data)


async def find(name: str, caller: TenantCaller, here: Here) -> Response:
    """Return how far a named listener has got."""
    found = await here.inbox.listener(caller.tenant, name)
    return json_answer({"cursor": str(found)}).response()


async def keep(name: str, caller: TenantCaller, here: Here, body: Kept) -> Response:
    """Remember how far a named listener has got."""
    kept = await here.inbox.keep_listener(caller.tenant, name, body.cursor)
    return json_answer({"cursor": str(kept)}).response()


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Receipt"])
    routes.get(NEXT, **documented({200: inbound.NextOut}))(wait_next)
    routes.get(LISTEN, **documented({200: None}))(listen)
    routes.get(ONE, **documented({200: inbound.CursorOut}))(find)
    routes.put(ONE, **documented({200: inbound.CursorOut}, body=inbound.CursorIn))(keep)
    return routes
