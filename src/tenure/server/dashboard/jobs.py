"""Pages of schedules: jobs, one job with what fired and comes next, a run with its logs.

For keys of the whole tenant; to a key of one application they do not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.errors import NotFound
from tenure.server import planned

if TYPE_CHECKING:
    from fastapi import Request, Response

    from tenure.outbox.model import Caller
    from tenure.server.dashboard.page import Pages
    from tenure.server.site import Site

__all__ = ["job", "jobs", "run"]

JOBS_SHOWN: Final = 200
INSTANTS_SHOWN: Final = 10
WINDOWS_SHOWN: Final = 25
RUNS_SHOWN: Final = 25


def _check(caller: Caller) -> None:
    if caller.app is not None:
        raise NotFound("this key is limited to one application")


async def jobs(pages: Pages, site: Site, request: Request, caller: Caller) -> Response:
    """Show every job with its next instant."""
    _check(caller)
    found = await site.schedules.list_jobs(caller.tenant, limit=JOBS_SHOWN)
    return pages.render(request, "jobs.html", jobs=found)


async def job(pages: Pages, site: Site, request: Request, caller: Caller) -> Response:
    """Show one job: when it fires, what fired or was skipped and why, its last runs."""
    _check(caller)
    schedules, tenant = site.schedules, caller.tenant
    found = await schedules.find_job(tenant, str(request.path_params["job"]))
    schedule = found.definition.schedule
    upcoming = (
        []
        if schedule is None
        else await schedules.upcoming(tenant, found.id, INSTANTS_SHOWN)
    )
    return pages.render(
        request,
        "job.html",
        job=found,
        schedule=None if schedule is None else planned.described(schedule),
        upcoming=upcoming,
        windows=await schedules.list_windows(tenant, found.id, limit=WINDOWS_SHOWN),
        runs=await schedules.list_runs(tenant, job=found.id, limit=RUNS_SHOWN),
    )


async def run(pages: Pages, site: Site, request: Request, caller: Caller) -> Response:
    """Show one run: why it stands where it stands, each attempt with its lines."""
    _check(caller)
    ref = str(request.path_params["run_id"])
    found = await site.schedules.find_run(caller.tenant, ref)
    return pages.render(
        request,
        "run.html",
        run=found,
        args=found.args.decode(errors="replace"),
        waits=await site.schedules.explain(caller.tenant, ref),
        attempts=await site.schedules.attempts(caller.tenant, ref),
    )
