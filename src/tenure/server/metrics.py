"""`/metrics` and `/health/*`: what monitoring asks, on the API's port and on its own.

On the API's port `/metrics` takes a key, as Bearer or as the password of HTTP Basic. A
listener of its own (`TENURE_METRICS_PORT`) takes none, so it belongs on an address that
only monitoring reaches. What the database is asked is bounded and kept for
`METRICS_CACHE_SECONDS`: scraping costs the same for any backlog, history and scraper.
"""

from __future__ import annotations

import asyncio
from functools import partial
from math import nan
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request, Response
from starlette.applications import Starlette
from starlette.routing import Route

from tenure import __version__
from tenure.errors import (
    AuthenticationFailed,
    Draining,
    Forbidden,
    NotFound,
    TenureError,
    Unavailable,
)
from tenure.limits import HEALTH_SECONDS, METRICS_CACHE_SECONDS
from tenure.server.auth import basic, bearer
from tenure.server.problems import error_answer, json_answer
from tenure.server.site import Site
from tenure.store.claims.walking import Places
from tenure.store.gauges import Gauges, read_gauges

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.types import ASGIApp

    from tenure.engine import Health
    from tenure.server.auth import KeyDoor
    from tenure.server.site import Serves
    from tenure.store.tx import Tx
    from tenure.telemetry.metrics import Metrics

__all__ = ["Scrape", "health_routes", "install", "monitoring"]

METRICS: Final = "/metrics"
LIVE: Final = "/health/live"
READY: Final = "/health/ready"


class Scrape:
    """The metrics page of one engine; looks at the database once for all who ask."""

    __slots__ = ("_places", "_reading", "_site", "_until")

    def __init__(self, site: Site) -> None:
        self._site: Final = site
        self._places: Final = Places()
        self._reading: Final = asyncio.Lock()
        self._until = 0.0

    async def page(self) -> bytes:
        """Return the page. Raises NotFound in a process that is no node."""
        metrics = self._site.engine.metrics
        if metrics is None:
            raise NotFound("this process is no node: it counts nothing")
        _own(metrics, self._site.engine.health())
        async with self._reading:
            await self._look(metrics)
        return metrics.render()

    async def _look(self, metrics: Metrics) -> None:
        clock = self._site.clock
        started = clock.monotonic()
        if started < self._until:
            return
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                found = await self._site.backend.read(
                    partial(read_gauges, places=self._places)
                )
        except (Unavailable, TimeoutError):
            found = None
        now = clock.monotonic()
        # A look that failed is kept too: else every scraper would wait for its own.
        self._until = now + METRICS_CACHE_SECONDS
        up = found is not None
        _set(metrics, "database_up", "Whether the database answered.", up)
        _set(metrics, "look_seconds", "One look at the database.", now - started)
        _database(metrics, found)


def _set(metrics: Metrics, name: str, text: str, value: float) -> None:
    metrics.gauge(name, text, [({}, value)])


def _own(metrics: Metrics, health: Health) -> None:
    """Set what this process knows of itself."""
    metrics.gauge(
        "info",
        "The release that runs here.",
        [({"version": __version__}, 1)],
        ("version",),
    )
    _set(metrics, "ready", "1 when /health/ready is green.", health.ready)
    _set(metrics, "sending", "1 unless nothing is sent here.", health.off is None)
    _set(metrics, "loop_late_seconds", "Least recent lag.", health.lag_seconds)
    node = health.node
    if node is None:
        return
    _set(metrics, "fenced", "1 while this node may start nothing.", node.fenced)
    _set(metrics, "stalled", "1 while the worker loop stands still.", node.stalled)
    _set(metrics, "beat_age_seconds", "Since the last good beat.", node.beat_age)
    _set(metrics, "slots", "Attempts that may run here at once.", node.slots)
    metrics.gauge(
        "queue",
        "What waits or runs in this process.",
        [
            ({"queue": "held"}, node.held),
            ({"queue": "settling"}, health.settling),
            ({"queue": "accepting"}, metrics.accepting),
        ],
        ("queue",),
    )


def _database(metrics: Metrics, found: Gauges | None) -> None:
    """Set what one look at the database showed.

    Without one (None) what was seen last is no longer true: labelled gauges are gone,
    the others are NaN, which no alert compares with.
    """
    backlogs = () if found is None else found.backlogs
    lanes: list[Mapping[str, str]] = [
        {"kind": backlog.kind, "lane": backlog.state} for backlog in backlogs
    ]

    def by_lane(values: Iterable[float]) -> list[tuple[Mapping[str, str], float]]:
        return list(zip(lanes, values, strict=True))

    metrics.gauge(
        "due_rows",
        "Rows due now, counted up to a bound, by kind and state of their lanes.",
        by_lane(backlog.rows for backlog in backlogs),
        ("kind", "lane"),
    )
    metrics.gauge(
        "due_oldest_seconds",
        "Age of the oldest due row, by kind and state of its lane.",
        by_lane(backlog.oldest_seconds for backlog in backlogs),
        ("kind", "lane"),
    )
    lanes_due, claimed, overdue = (
        (nan, nan, nan)
        if found is None
        else (found.lanes, found.claimed, found.overdue_seconds)
    )
    _set(metrics, "due_lanes", "Lanes with due rows, up to a bound.", lanes_due)
    _set(metrics, "claimed_rows", "Claims live in the fleet.", claimed)
    _set(
        metrics,
        "overdue_seconds",
        "By how much the first row that is due later has passed its instant.",
        overdue,
    )
    metrics.gauge(
        "nodes",
        "Nodes by state; silent ones were not heard lately.",
        [({"state": state}, count) for state, count in (found.nodes if found else ())],
        ("state",),
    )


# --- health ---------------------------------------------------------------------------


async def live(site: Site) -> Response:
    """Say whether this process works; 503 when only a restart can help."""
    health = site.engine.health()
    because = () if health.alive else health.because
    return _shown({"alive": health.alive, "because": because}, well=health.alive)


async def ready(site: Site) -> Response:
    """Say whether this process should be given traffic; 503 and why when not."""
    health = site.engine.health()
    because = [*health.because]
    answers = await _answers(site)
    if answers is not None:
        because.append(answers)
    node = health.node
    body = {
        "ready": not because,
        "because": because,
        "off": health.off,
        "node": None
        if node is None
        else {
            "id": node.node,
            "state": node.state,
            "beatAgeSeconds": round(node.beat_age, 1),
            "held": node.held,
            "slots": node.slots,
        },
        "loopLagSeconds": round(health.lag_seconds, 3),
    }
    return _shown(body, well=not because)


async def _answers(site: Site) -> str | None:
    """Return why the database does not answer, None when it does."""

    def ask(tx: Tx) -> Any:
        return tx.scalar("SELECT 1")

    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            await site.backend.read(ask)
    except Draining:
        return "it has not started yet"
    except Unavailable:
        return "the database cannot be reached"
    except TimeoutError:
        return f"the database did not answer within {HEALTH_SECONDS:g} s"
    return None


def _shown(body: object, *, well: bool) -> Response:
    if well:
        return json_answer(body).response()
    return json_answer(body, 503, {"retry-after": "1"}).response()


# --- where they answer ------------------------------------------------------------------


def health_routes(site: Site) -> list[Route]:
    """Return the health routes, which need no key and tell no secret."""

    async def show_live(_: Request) -> Response:
        return await live(site)

    async def show_ready(_: Request) -> Response:
        return await ready(site)

    return [
        Route(LIVE, show_live, include_in_schema=False),
        Route(READY, show_ready, include_in_schema=False),
    ]


def install(app: FastAPI) -> None:
    """Add metrics, behind a key of the whole tenant, and health."""
    site: Site = app.state.site
    scrape = Scrape(site)

    async def show(request: Request) -> Response:
        door: KeyDoor = request.app.state.door
        try:
            caller = await door.caller(_key(request))
        except AuthenticationFailed as error:
            response = error_answer(error).response()
            response.headers["www-authenticate"] = 'Basic realm="Tenure", Bearer'
            return response
        if caller.app is not None:
            raise Forbidden("This key is limited to one application")
        return await _page(scrape)

    app.router.routes.append(Route(METRICS, show, include_in_schema=False))
    app.router.routes.extend(health_routes(site))


def _key(request: Request) -> str:
    kind = request.headers.get("authorization", "").partition(" ")[0].lower()
    return basic(request.scope) if kind == "basic" else bearer(request.scope)


async def _page(scrape: Scrape) -> Response:
    from tenure.telemetry.metrics import CONTENT_TYPE

    return Response(await scrape.page(), headers={"content-type": CONTENT_TYPE})


def monitoring(engine: Serves) -> ASGIApp:
    """Return an application with metrics and health alone, without keys."""
    site = Site(engine=engine)
    scrape = Scrape(site)

    async def show(_: Request) -> Response:
        try:
            return await _page(scrape)
        except TenureError as error:
            return error_answer(error).response()

    return Starlette(routes=[Route(METRICS, show), *health_routes(site)])
