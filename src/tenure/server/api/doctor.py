"""Doctor: `/api/v1/doctor`, whether what can be looked at quickly is as it must be."""

from typing import Literal

from fastapi import APIRouter, Response

from tenure.doctor import About, examine
from tenure.limits import Durations
from tenure.server.auth import AdminCaller
from tenure.server.openapi import documented
from tenure.server.problems import json_answer
from tenure.server.reading import Here
from tenure.server.schemas import Out

ROOT = "/api/v1/doctor"


class FindingOut(Out):
    """One row or fact that is not as it must be; `where` is its key."""

    code: str
    grade: Literal["broken", "attention"]
    invariant: str
    what: str
    where: list[str]
    todo: str
    healed: bool


class ReportOut(Out):
    """What was found; `clean` when no invariant is broken."""

    clean: bool
    findings: list[FindingOut]
    more: dict[str, int]
    examined: dict[str, int]
    took_seconds: float


async def show(caller: AdminCaller, here: Here) -> Response:
    """Examine the deployment, its nodes and what is due; history is left out.

    `tenure doctor` walks all of it, beside any traffic, and can heal.
    """
    del caller
    settings = here.engine.settings
    about = About(
        durations=Durations.from_environment(),
        deployment=settings.deployment,
        off=here.off,
    )
    report = await examine(here.backend, about=about, deep=False, clock=here.clock)
    return json_answer(report.as_json()).response()


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Node"])
    routes.get(ROOT, **documented({200: ReportOut}))(show)
    return routes
