"""The pages at `/`: rendered here, readable without script, for whoever holds a key.

HTTP Basic with an API key as the password. A page shows what its key may see and no
secret; it only reads, so a request from elsewhere could change nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any, Final

from fastapi import FastAPI, Request, Response

from tenure import __version__
from tenure.clock import US, to_rfc3339
from tenure.errors import AuthenticationFailed, NotFound, TenureError
from tenure.limits import LIST_MAX, OVERVIEW_CACHE_MAX, OVERVIEW_CACHE_SECONDS
from tenure.outbox.model import AttemptFilter, Caller, PageIn
from tenure.server.auth import KeyDoor, basic, check_app
from tenure.server.dashboard import jobs, receipts
from tenure.server.dashboard.assets import MEDIA_TYPES, STATIC, environment
from tenure.server.dashboard.figures import Overview, read_overview
from tenure.server.problems import shown_message, wait_headers
from tenure.server.site import Site

MOUNT: Final = "tenure.mount"
PAYLOAD_SHOWN: Final = 16 * 1024
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}

Page = Callable[[Request, Caller], Awaitable[Response]]


class Pages:
    """The pages of one engine."""

    __slots__ = ("_environment", "_held", "_reading", "_site")

    def __init__(self, site: Site) -> None:
        self._site: Final = site
        self._held: Final[dict[tuple[str, str | None], tuple[float, Overview]]] = {}
        # One pass over the rows at a time: pages must not take every connection.
        self._reading: Final = asyncio.Lock()
        self._environment: Final = environment()
        self._environment.filters.update(
            utc=_utc, local=_local, count=_count, milliseconds=_milliseconds
        )

    def render(
        self, request: Request, name: str, *, status: int = 200, **values: Any
    ) -> Response:
        """Return a page."""
        mount: str = request.scope.get(MOUNT, "")
        text = self._environment.get_template(name).render(
            mount=mount, version=__version__, **values
        )
        return Response(
            text, status_code=status, media_type="text/html", headers=HEADERS
        )

    async def overview(self, request: Request, caller: Caller) -> Response:
        """Show the counts, the nodes, the endpoints and the last messages."""
        found = await self._overview(caller)
        return self.render(request, "overview.html", overview=found, off=self._site.off)

    async def _overview(self, caller: Caller) -> Overview:
        held = self._kept(caller)
        if held is not None:
            return held
        async with self._reading:
            held = self._kept(caller)  # read by who came before us
            if held is not None:
                return held
            found = await self._site.backend.read(
                partial(read_overview, tenant=caller.tenant, app=caller.app)
            )
            if len(self._held) >= OVERVIEW_CACHE_MAX:
                self._held.clear()
            until = self._site.clock.monotonic() + OVERVIEW_CACHE_SECONDS
            self._held[caller.tenant, caller.app] = (until, found)
            return found

    def _kept(self, caller: Caller) -> Overview | None:
        held = self._held.get((caller.tenant, caller.app))
        return held[1] if held and self._site.clock.monotonic() < held[0] else None

    async def message(self, request: Request, caller: Caller) -> Response:
        """Show one message: its payload, why it went where, and every attempt."""
        outbox = self._site.outbox
        app_ref = str(request.path_params["app_id"])
        msg_ref = str(request.path_params["msg_id"])
        await check_app(outbox, caller, app_ref)
        message = await outbox.get_message(caller.tenant, app_ref, msg_ref)
        explanation = await outbox.explain(caller.tenant, message.id)
        attempts = await outbox.list_attempts_by_message(
            caller.tenant,
            app_ref,
            message.id,
            PageIn(limit=LIST_MAX),
            AttemptFilter(),
        )
        body = b"" if message.body is None else message.body
        return self.render(
            request,
            "message.html",
            message=message,
            explanation=explanation,
            attempts=attempts.data,
            payload=body[:PAYLOAD_SHOWN].decode(errors="replace"),
            payload_bytes=len(body),
            payload_cut=len(body) > PAYLOAD_SHOWN,
        )


def install(app: FastAPI) -> None:
    """Add the pages and the two files that they need."""
    pages = Pages(app.state.site)
    app.router.add_route("/", _guarded(pages, pages.overview), include_in_schema=False)
    app.router.add_route(
        "/app/{app_id}/msg/{msg_id}",
        _guarded(pages, pages.message),
        include_in_schema=False,
    )
    for path, shown in (
        ("/sources", receipts.sources),
        ("/source/{source_id}", receipts.source),
        ("/receipt/{receipt_id}", receipts.receipt),
        ("/jobs", jobs.jobs),
        ("/job/{job}", jobs.job),
        ("/run/{run_id}", jobs.run),
    ):
        page = partial(shown, pages, app.state.site)
        app.router.add_route(path, _guarded(pages, page), include_in_schema=False)
    for name, data in STATIC.items():
        show = _static(data, MEDIA_TYPES[name])
        app.router.add_route(f"/static/{name}", show, include_in_schema=False)


def _guarded(pages: Pages, page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        door: KeyDoor = request.app.state.door
        try:
            caller = await door.caller(basic(request.scope))
            return await page(request, caller)
        except AuthenticationFailed:
            response = pages.render(request, "key.html", status=401)
            response.headers["www-authenticate"] = (
                'Basic realm="Tenure: any name, and an API key as the password"'
            )
            return response
        except NotFound:
            return pages.render(
                request,
                "problem.html",
                status=404,
                title="Not found",
                text="Nothing of this id exists for your key.",
            )
        except TenureError as error:
            if error.status == 500:
                raise
            response = pages.render(
                request,
                "problem.html",
                status=error.status,
                title="Not now",
                text=shown_message(error),
            )
            response.headers.update(wait_headers(error))
            return response

    return show


def _static(data: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    tag = f'"{sha256(data).hexdigest()[:16]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}

    async def show(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type=media_type, headers=headers)

    return show


def _utc(instant_us: int) -> str:
    return to_rfc3339(instant_us)


def _local(instant_us: int) -> str:
    """Return the instant in the zone of this server, with the zone's name."""
    when = datetime.fromtimestamp(instant_us / US).astimezone()
    return when.strftime("%Y-%m-%d %H:%M:%S %Z")


def _count(number: int) -> str:
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def _milliseconds(duration_us: int) -> str:
    return f"{duration_us / 1000:,.0f} ms" if duration_us >= 1000 else "<1 ms"


__all__ = ["Pages", "install"]
