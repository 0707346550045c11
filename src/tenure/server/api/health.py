"""Health and logout: the routes that need no key."""

from fastapi import APIRouter, Response

from tenure.errors import Unavailable
from tenure.server.openapi import OPEN, documented
from tenure.server.problems import NO_CONTENT, json_answer
from tenure.server.reading import Here
from tenure.server.schemas import HealthOut
from tenure.store import nodes

HEALTH = "/api/v1/health"


async def health(here: Here) -> Response:
    """Say whether the database answers and this process takes work.

    The body names each part; 503 when one is not well.
    """
    ready = here.engine.health().ready
    try:
        await here.backend.read(nodes.list_nodes)
    except Unavailable:
        return _shown(database=False, queue=ready)
    return _shown(database=True, queue=ready)


def _shown(*, database: bool, queue: bool) -> Response:
    def part(*, well: bool) -> dict[str, str]:
        return {"status": "ok" if well else "error"}

    body = {
        "database": part(well=database),
        "queue": part(well=queue),
        "cache": part(well=True),
    }
    if database and queue:
        return json_answer(body).response()
    return json_answer(body, 503, {"retry-after": "1"}).response()


async def ping() -> Response:
    """Say that the server answers."""
    return NO_CONTENT.response()


async def logout() -> Response:
    """Do nothing: a key has no session that could end."""
    return NO_CONTENT.response()


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Health"])
    shown = documented({200: HealthOut, 503: HealthOut}, errors=(405, 431))
    empty = documented({204: None}, errors=OPEN)
    routes.get(HEALTH, **shown)(health)
    routes.head(HEALTH, include_in_schema=False)(health)
    routes.get(HEALTH + "/ping", **empty)(ping)
    routes.head(HEALTH + "/ping", include_in_schema=False)(ping)
    routes.post("/api/v1/auth/logout", **empty)(logout)
    return routes
