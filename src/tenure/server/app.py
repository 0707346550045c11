"""The ASGI application: one front that every request passes, FastAPI behind it.

The front does what must hold for every route alike, in this order: request id, trailing
slash, cross-origin answers, the hot route, the rest. It maps errors to answers exactly
once, and logs what nobody foresaw exactly once. `asgi` can be mounted inside of another
application: paths count from the mount point (`root_path`).
"""

from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Message, Receive, Scope, Send

from tenure.errors import BadRequest, MethodNotAllowed, NotFound, TenureError
from tenure.server import hot, metrics, openapi, receiving, requests, unoffered
from tenure.server.api import routers
from tenure.server.auth import Headers, KeyDoor, first_of_each
from tenure.server.bounds import ClientGone, check_headers
from tenure.server.dashboard import page
from tenure.server.paging import query_error
from tenure.server.problems import Answer, error_answer, internal_answer
from tenure.server.requests import HEADER
from tenure.server.site import Serves, Site
from tenure.telemetry.events import Event
from tenure.telemetry.logs import REQUEST_ID

MOUNT: Final = "tenure.mount"
REQUEST: Final = "tenure.request_id"
PREFLIGHT_SECONDS: Final = b"600"
METHODS: Final = b"DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"

App = Callable[[Scope, Receive, Send], Awaitable[None]]


def asgi(engine: Serves) -> "Front":
    """Return the whole HTTP surface of one engine as an ASGI application.

    The engine may be started later, by whoever owns its lifespan.
    """
    site = Site(engine=engine)
    door = KeyDoor(site)
    return Front(
        site,
        hot.MessageRoute(site, door),
        receiving.ReceiptRoute(site),
        control_plane(site, door),
    )


def control_plane(site: Site, door: KeyDoor) -> FastAPI:
    """Return every route but the hot one."""
    app = FastAPI(
        title="Tenure",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.site = site
    app.state.door = door
    shown = routers()
    for router in shown:
        app.include_router(router)
    openapi.install(app)
    page.install(app)
    metrics.install(app)
    unoffered.install(app)
    app.state.routes = [route for router in shown for route in router.routes]
    app.add_exception_handler(TenureError, _refused)
    app.add_exception_handler(ClientGone, _cut_short)
    app.add_exception_handler(ClientDisconnect, _cut_short)
    app.add_exception_handler(Exception, _unforeseen)
    app.add_exception_handler(RequestValidationError, _unreadable)
    app.add_exception_handler(HTTPException, _no_route)
    return app


async def _refused(request: Request, error: Exception) -> Response:
    del request
    if not isinstance(error, TenureError) or error.status == 500:
        raise error
    return error_answer(error).response()


async def _cut_short(request: Request, error: Exception) -> Response:
    del request, error
    return error_answer(_ended_early()).response()


async def _unforeseen(request: Request, error: Exception) -> Response:
    """Answer; Starlette raises the error again, and the front logs it."""
    del error
    return internal_answer(request.scope[REQUEST]).response()


def _ended_early() -> BadRequest:
    # Nothing was stored; a client that only closed its half may still read this.
    return BadRequest("The request body ended before it was complete")


async def _unreadable(request: Request, error: Exception) -> Response:
    del request
    if not isinstance(error, RequestValidationError):
        raise error
    return error_answer(query_error(error.errors())).response()


async def _no_route(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 405:
        allowed = ", ".join(sorted(_methods(request)))
        refused = MethodNotAllowed(
            f"{request.method} is not possible here; {allowed} is"
        )
        response = error_answer(refused).response()
        response.headers["allow"] = allowed
        return response
    return error_answer(NotFound(f"No such route: {request.url.path}")).response()


def _methods(request: Request) -> set[str]:
    """Return every method that some route has for this path."""
    found: set[str] = set()
    app: FastAPI = request.app
    own: list[BaseRoute] = app.state.routes
    for route in (*own, *app.routes):
        if (
            isinstance(route, Route)
            and route.matches(request.scope)[0] is not Match.NONE
        ):
            found |= route.methods or set()
    if hot.match(request.scope["path"]) is not None:
        found.add("POST")
    return found


class Front:
    """What every request passes."""

    __slots__ = ("_messages", "_receipts", "_site", "control")

    def __init__(
        self,
        site: Site,
        messages: hot.MessageRoute,
        receipts: receiving.ReceiptRoute,
        control: FastAPI,
    ) -> None:
        self._site: Final = site
        self._messages: Final = messages
        self._receipts: Final = receipts
        self.control: Final = control

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; lifespan events belong to whoever owns the engine."""
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "lifespan":
                await _lifespan(receive, send)
            case _:
                await send({"type": "websocket.close", "code": 1000})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = _path(scope)
        headers = first_of_each(scope)
        request_id = requests.request_id(headers)
        outer = REQUEST_ID.set(request_id)
        reply = _Reply(send, _extra_headers(scope, headers, path, request_id))
        try:
            check_headers(scope)
            source = receiving.match(path)
            if source is not None:
                await reply.answer(await self._receipts.answer(scope, receive, source))
                return
            app_ref = hot.match(path) if scope["method"] == "POST" else None
            if app_ref is not None:
                if path != scope["path"]:  # the mount's scope is not ours to change
                    scope = {**scope, "path": path}
                await reply.answer(await self._accept(scope, headers, receive, app_ref))
                return
            if _is_preflight(scope, headers, path):
                await reply.answer(Answer(status=200, media_type=None))
                return
            scope = {
                **scope,
                "path": path,
                "root_path": "",
                MOUNT: _mount(scope),
                REQUEST: request_id,
            }
            await self.control(scope, receive, reply)
        except (ClientGone, ClientDisconnect):
            await reply.answer(error_answer(_ended_early()))
        except TenureError as error:
            if error.status == 500:
                await self._failed(reply, scope, request_id, error)
            else:
                await reply.answer(error_answer(error))
        except Exception as error:  # noqa: BLE001 -- the last one who can answer
            await self._failed(reply, scope, request_id, error)
        finally:
            REQUEST_ID.reset(outer)

    async def _failed(
        self, reply: "_Reply", scope: Scope, request_id: str, error: Exception
    ) -> None:
        """Write the one line of what nobody foresaw, and answer if nobody has."""
        self._site.engine.events.tell(
            Event.REQUEST_FAILED,
            error=error,
            request_id=request_id,
            method=scope["method"],
            path=scope["path"],
        )
        if not reply.begun:
            await reply.answer(internal_answer(request_id))

    async def _accept(
        self, scope: Scope, headers: Headers, receive: Receive, app_ref: str
    ) -> Answer:
        """Answer one message, and count how long that took."""
        counts = self._site.engine.metrics
        if counts is None:
            return await self._messages.answer(scope, headers, receive, app_ref)
        clock = self._site.clock
        started, status = clock.monotonic(), 500
        counts.accepting += 1
        try:
            answer = await self._messages.answer(scope, headers, receive, app_ref)
            status = answer.status
        except TenureError as error:
            status = error.status
            raise
        finally:
            counts.accepting -= 1
            counts.accepted(status, clock.monotonic() - started)
        return answer


class _Reply:
    """Sends, adding what every answer carries; knows whether one has begun."""

    __slots__ = ("_extra", "_send", "begun")

    def __init__(self, send: Send, extra: list[tuple[bytes, bytes]]) -> None:
        self._send: Final = send
        self._extra: Final = extra
        self.begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            message = {**message, "headers": [*message["headers"], *self._extra]}
        await self._send(message)

    async def answer(self, answer: Answer) -> None:
        """Send a whole answer."""
        self.begun = True
        headers = answer.raw_headers()
        headers += self._extra
        status = answer.status
        start = {"type": "http.response.start", "status": status, "headers": headers}
        await self._send(start)
        await self._send({"type": "http.response.body", "body": answer.body})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def _path(scope: Scope) -> str:
    """Return the path below the mount point, without its trailing slash."""
    path: str = scope["path"]
    root = _mount(scope)
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return path.rstrip("/") or "/"


def _mount(scope: Scope) -> str:
    """Return where this application is mounted, for links on pages."""
    root: str = scope.get("root_path", "")
    return root.rstrip("/")


def _extra_headers(
    scope: Scope, headers: Headers, path: str, request_id: str
) -> list[tuple[bytes, bytes]]:
    extra = [
        (HEADER, request_id.encode("latin-1")),
        (b"x-content-type-options", b"nosniff"),
    ]
    if b"origin" not in headers or not path.startswith("/api/"):
        return extra
    # Keys travel in a header that a script must set itself, never in a cookie: any
    # origin may ask. The pages at / are not for other origins.
    extra += [
        (b"access-control-allow-origin", b"*"),
        (b"access-control-expose-headers", b"*"),
        (b"vary", b"origin"),
    ]
    if _is_preflight(scope, headers, path):
        wanted = headers.get(b"access-control-request-headers")
        extra += [
            (b"access-control-allow-methods", METHODS),
            (b"access-control-max-age", PREFLIGHT_SECONDS),
        ]
        if wanted is not None:
            extra.append((b"access-control-allow-headers", wanted))
    return extra


def _is_preflight(scope: Scope, headers: Headers, path: str) -> bool:
    return (
        scope["method"] == "OPTIONS"
        and path.startswith("/api/")
        and b"access-control-request-method" in headers
        and b"origin" in headers
    )
