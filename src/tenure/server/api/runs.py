"""Runs and packages: `/api/v1/run`, `/api/v1/package`. For tenants' keys."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from tenure.ids import Prefix
from tenure.outbox.model import Page
from tenure.schedules.model import Run
from tenure.server import planned
from tenure.server.api.jobs import forward, narrow
from tenure.server.auth import TenantCaller
from tenure.server.openapi import documented
from tenure.server.paging import Paged, Text
from tenure.server.problems import json_answer
from tenure.server.reading import Here, Once, body_of
from tenure.server.schemas import ListOf
from tenure.server.shapes import page_out

ROOT = "/api/v1/run"
ONE = ROOT + "/{run_id}"
PACKAGE = "/api/v1/package"

Replay = Annotated[
    planned.ReplayRunIn, Depends(body_of(planned.ReplayRunIn, optional=True))
]


async def list_all(
    caller: TenantCaller,
    here: Here,
    page: Paged,
    job: Text = None,
    state: Text = None,
) -> Response:
    """List runs, the newest first; `job` and `state` narrow it."""
    after = forward(page, Prefix.RUN)
    narrow(state)
    found = await here.schedules.list_runs(
        caller.tenant,
        job=job,
        state=state,
        before=after,
        limit=page.limit + 1,
    )
    shown = found[: page.limit]
    listed: Page[Run] = Page(
        data=shown,
        iterator=shown[-1].id if shown else None,
        prev_iterator=None,
        done=len(found) <= page.limit,
    )
    return json_answer(page_out(listed, planned.run_out)).response()


async def get(run_id: str, caller: TenantCaller, here: Here) -> Response:
    """Return a run with its attempts and what they logged."""
    found = await here.schedules.find_run(caller.tenant, run_id)
    tries = await here.schedules.attempts(caller.tenant, run_id)
    waits = await here.schedules.explain(caller.tenant, run_id)
    shown = planned.run_out(found) | {
        "why": None if waits is None else waits.why,
        "rule": None if waits is None else waits.rule,
        "nextAt": None if waits is None else planned.when(waits.next_at),
        "tries": [planned.attempt_out(each) for each in tries],
    }
    return json_answer(shown).response()


async def cancel(run_id: str, caller: TenantCaller, here: Here, once: Once) -> Response:
    """End a run: at once while it waits, soon when it goes on."""
    del once
    done = await here.schedules.cancel(caller.tenant, run_id, actor=caller.name)
    return json_answer(planned.run_out(done), 202).response()


async def replay(
    run_id: str, caller: TenantCaller, here: Here, body: Replay, once: Once
) -> Response:
    """Do a run again; one whose window has succeeded by force only."""
    del once
    done = await here.schedules.replay(
        caller.tenant, run_id, actor=caller.name, force=body.force, note=body.note
    )
    return json_answer(planned.run_out(done), 202).response()


async def packages(caller: TenantCaller, here: Here) -> Response:
    """List the packages that ever declared a job."""
    found = await here.schedules.packages(caller.tenant)
    shown = [planned.package_out(each) for each in found]
    return json_answer({"data": shown}).response()


async def uninstall(
    package: str, caller: TenantCaller, here: Here, once: Once
) -> Response:
    """Say that a package is gone: its jobs fire no more; nothing is deleted."""
    del once
    count = await here.schedules.uninstall(caller.tenant, package)
    return json_answer({"jobs": count}).response()


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Run"])
    routes.get(ROOT, **documented({200: ListOf[planned.RunOut]}))(list_all)
    routes.get(ONE, **documented({200: planned.RunDetailOut}))(get)
    routes.post(ONE + "/cancel", **documented({202: planned.RunOut}))(cancel)
    routes.post(
        ONE + "/replay",
        **documented(
            {202: planned.RunOut}, body=planned.ReplayRunIn, body_required=False
        ),
    )(replay)
    routes.get(PACKAGE, **documented({200: planned.PackagesOut}))(packages)
    routes.post(
        PACKAGE + "/{package}/uninstall", **documented({200: planned.UninstalledOut})
    )(uninstall)
    return routes
