"""Jobs: `/api/v1/job`, their windows, runs and controls. For tenants' keys."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from tenure.clock import from_rfc3339
from tenure.errors import ValidationFailed
from tenure.ids import Prefix
from tenure.limits import LIST_DEFAULT, LIST_MAX, PREVIEW_INSTANTS_MAX
from tenure.outbox.ledger.paging import valid_id
from tenure.outbox.model import Order, Page, PageIn
from tenure.outbox.rules import check_page
from tenure.schedules.calendar.parsing import parse_duration
from tenure.schedules.model import Job
from tenure.server import planned
from tenure.server.auth import TenantCaller
from tenure.server.openapi import documented
from tenure.server.paging import Bool, Bound, Ordered, Text
from tenure.server.problems import NO_CONTENT, json_answer
from tenure.server.reading import Here, Once, body_of
from tenure.server.schemas import ListOf
from tenure.server.shapes import page_out

ROOT = "/api/v1/job"
ONE = ROOT + "/{job}"

New = Annotated[planned.JobIn, Depends(body_of(planned.JobIn))]
Patch = Annotated[planned.JobPatch, Depends(body_of(planned.JobPatch))]
Pause = Annotated[planned.PauseIn, Depends(body_of(planned.PauseIn, optional=True))]
Trigger = Annotated[
    planned.TriggerJobIn, Depends(body_of(planned.TriggerJobIn, optional=True))
]
Submit = Annotated[planned.SubmitIn, Depends(body_of(planned.SubmitIn, optional=True))]
Backfill = Annotated[planned.BackfillIn, Depends(body_of(planned.BackfillIn))]
Keys = Annotated[Bool, Query(description="Whether a bare name may be a job's key")]
Count = Annotated[int, Query(ge=1, le=PREVIEW_INSTANTS_MAX)]
Most = Annotated[int, Query(ge=1, le=LIST_MAX)]


def forward(page: PageIn, prefix: Prefix) -> str:
    """Return the id that a page comes after; these lists are read one way only."""
    cursor = check_page(page, valid_id(prefix))
    if cursor.backward:
        raise ValidationFailed.at(
            "query", "iterator", "iterator", msg="this list has no pages before"
        )
    return cursor.key or ""


def narrow(*texts: str | None) -> None:
    """Refuse what no name can be. Raises ValidationFailed."""
    for text in texts:
        if text is not None and not (text.isascii() and text.isprintable()):
            raise ValidationFailed.at(
                "query", msg="a name has small letters and digits"
            )


async def list_all(
    caller: TenantCaller,
    here: Here,
    page: Ordered,
    package: Text = None,
    name: Text = None,
) -> Response:
    """List jobs, oldest first; `package` and `name` narrow it."""
    descending = page.order is Order.DESCENDING
    after = forward(page, Prefix.JOB)
    narrow(package, name)
    found = await here.schedules.list_jobs(
        caller.tenant,
        after=after,
        limit=page.limit + 1,
        package=package,
        name=name,
        order="descending" if descending else "ascending",
    )
    shown = found[: page.limit]
    listed: Page[Job] = Page(
        data=shown,
        iterator=shown[-1].id if shown else None,
        prev_iterator=None,
        done=len(found) <= page.limit,
    )
    return json_answer(page_out(listed, planned.job_out)).response()


async def create(caller: TenantCaller, here: Here, body: New, once: Once) -> Response:
    """Make a job at run time, in the package `env`."""
    del once  # its name says whether it exists
    try:
        definition = body.definition(here.clock.wall_us())
    except ValueError as error:
        raise ValidationFailed.at("body", msg=str(error)) from None
    made = await here.schedules.create(caller.tenant, definition, calls=body.calls)
    return json_answer(planned.job_out(made), 201).response()


async def get(
    job: str, caller: TenantCaller, here: Here, *, keys: Keys = False
) -> Response:
    """Return a job by its id, `package:name`, or name where one package has it."""
    found = await here.schedules.find_job(caller.tenant, job, keys=keys)
    return json_answer(planned.job_out(found)).response()


async def patch(job: str, caller: TenantCaller, here: Here, body: Patch) -> Response:
    """Lay changes over a job; null takes one back."""
    try:
        overrides = body.overrides(here.clock.wall_us())
    except ValueError as error:
        raise ValidationFailed.at("body", msg=str(error)) from None
    done = await here.schedules.edit(caller.tenant, job, overrides)
    return json_answer(planned.job_out(done)).response()


async def delete(job: str, caller: TenantCaller, here: Here) -> Response:
    """Delete a job that was made at run time; its history stays."""
    await here.schedules.delete(caller.tenant, job, actor=caller.name)
    return NO_CONTENT.response()


async def upcoming(
    job: str, caller: TenantCaller, here: Here, count: Count = 20
) -> Response:
    """Return the next instants, and what a clock change does to them."""
    found = await here.schedules.upcoming(caller.tenant, job, count)
    shown = [planned.instant_out(each) for each in found]
    return json_answer({"data": shown}).response()


async def windows(
    job: str,
    caller: TenantCaller,
    here: Here,
    before: Bound = None,
    limit: Most = LIST_DEFAULT,
) -> Response:
    """List windows, the newest first; `before` an instant."""
    found = await here.schedules.list_windows(
        caller.tenant, job, before=before, limit=limit
    )
    shown = [planned.window_out(each) for each in found]
    return json_answer({"data": shown}).response()


async def pause(
    job: str, caller: TenantCaller, here: Here, body: Pause, once: Once
) -> Response:
    """Fire and start nothing of a job until it is resumed."""
    del once
    done = await here.schedules.pause(
        caller.tenant, job, actor=caller.name, note=body.note
    )
    return json_answer(planned.job_out(done)).response()


async def resume(job: str, caller: TenantCaller, here: Here, once: Once) -> Response:
    """Fire again; what was missed follows the job's catch-up rule."""
    del once
    done = await here.schedules.resume(caller.tenant, job)
    return json_answer(planned.job_out(done)).response()


async def trigger(
    job: str, caller: TenantCaller, here: Here, body: Trigger, once: Once
) -> Response:
    """Run a job now, beside its schedule."""
    del once
    made = await here.schedules.trigger(
        caller.tenant, job, actor=caller.name, note=body.note, args=body.args
    )
    return json_answer(planned.run_out(made), 202).response()


async def submit(
    job: str, caller: TenantCaller, here: Here, body: Submit, once: Once
) -> Response:
    """Submit a run of a job; while one of its `key` is open, that one is returned."""
    key = body.key
    if key is None and once is not None:
        key = f"once:{once.key}"
    try:
        at = None if body.at is None else from_rfc3339(body.at)
        delay = None if body.delay is None else parse_duration(body.delay) / 1_000_000
    except ValueError as error:
        raise ValidationFailed.at("body", msg=str(error)) from None
    options = {"at_us": at, "delay": delay, "key": key, "priority": body.priority}
    made = await here.schedules.submit(caller.tenant, job, body.args, options)
    return json_answer(planned.run_out(made), 202).response()


async def backfill(
    job: str, caller: TenantCaller, here: Here, body: Backfill, once: Once
) -> Response:
    """Run every instant of a range of the schedule, beside what has fired."""
    del once
    try:
        since, until = from_rfc3339(body.since), from_rfc3339(body.until)
    except ValueError as error:
        raise ValidationFailed.at("body", msg=str(error)) from None
    made = await here.schedules.backfill(
        caller.tenant,
        job,
        since=since,
        until=until,
        actor=caller.name,
        note=body.note,
    )
    return json_answer({"runIds": list(made)}, 202).response()


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Job"])
    out = planned.JobOut
    routes.get(ROOT, **documented({200: ListOf[planned.JobOut]}))(list_all)
    routes.post(ROOT, **documented({201: out}, body=planned.JobIn))(create)
    routes.get(ONE, **documented({200: out}))(get)
    routes.patch(ONE, **documented({200: out}, body=planned.JobPatch))(patch)
    routes.delete(ONE, **documented({204: None}))(delete)
    routes.get(ONE + "/next", **documented({200: planned.InstantsOut}))(upcoming)
    routes.get(ONE + "/window", **documented({200: planned.WindowsOut}))(windows)
    for path, route, answer, body in (
        ("/pause", pause, {200: out}, planned.PauseIn),
        ("/trigger", trigger, {202: planned.RunOut}, planned.TriggerJobIn),
        ("/run", submit, {202: planned.RunOut}, planned.SubmitIn),
    ):
        routes.post(ONE + path, **documented(answer, body=body, body_required=False))(
            route
        )
    routes.post(ONE + "/resume", **documented({200: out}))(resume)
    routes.post(
        ONE + "/backfill",
        **documented({202: planned.RunsOut}, body=planned.BackfillIn),
    )(backfill)
    return routes
