"""`tenure jobs`: what fires when, and what became of it."""

import json
from typing import Annotated, Any

import typer

from tenure.cli import options
from tenure.cli.screen import when
from tenure.cli.verbs import Call, verb
from tenure.errors import ValidationFailed

jobs = typer.Typer(help="What fires when, and what became of it.", no_args_is_help=True)

Ref = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Its key, package:name, or job_…."),
]
Note = Annotated[str | None, typer.Option(help="Why, for who reads it later.")]
Args = Annotated[
    str | None, typer.Option(help="Arguments as a JSON object: '{\"account\": 7}'.")
]
_ROOT = "/api/v1/job"


def _args(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValidationFailed.at("args", msg=f"is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValidationFailed.at("args", msg="give a JSON object, name by name")
    return found


def find_job(call: Call, ref: str) -> Any:
    """Return the job that a key or name means; the coordinate is printed with it."""
    return call.api().get(f"{_ROOT}/{ref}", keys=True)


def _fires(job: Any) -> str:
    schedule = job["schedule"]
    if schedule is None:
        return "on demand"
    text = " ".join(
        str(value)
        for name, value in (schedule.get("calendar") or {}).items()
        if name != "type"
    )
    return f"{text} {schedule.get('zone', 'UTC')}"


def show_job(call: Call, job: Any) -> None:
    """Print a job, the facts that decide about it first."""
    if call.screen.as_json:
        call.screen.json(job)
        return
    counts = ", ".join(f"{name} {n}" for name, n in job["counts"].items() if n)
    paused = job["pausedAt"] and f"{when(job['pausedAt'])} by {job['pausedBy']}" + (
        f": {job['pausedNote']}" if job["pausedNote"] else ""
    )
    call.screen.facts(
        {
            "job": job["coordinate"],
            "key": job["key"],
            "id": job["id"],
            "state": job["state"],
            "fires": _fires(job),
            "next": when(job["nextAt"]),
            "paused": paused,
            "does": job["doc"] or None,
            "settings": json.dumps(job["settings"]),
            "changed by operators": job["overridden"],
            "formerly": ", ".join(job["formerly"]) or None,
            "runs": counts or "none yet",
            "last": job["lastOutcome"]
            and f"{job['lastOutcome']} at {when(job['lastEndedAt'])}",
        }
    )


@verb(jobs, "list")
def list_jobs(
    call: Call,
    package: Annotated[str | None, typer.Option(help="Of one package.")] = None,
    name: Annotated[str | None, typer.Option(help="Of one name.")] = None,
    limit: options.Limit = 100,
) -> None:
    """List jobs with their next instants."""
    found = list(call.api().pages(_ROOT, limit, package=package, name=name))
    if call.screen.as_json:
        call.screen.json(found)
        return
    call.screen.table(
        ("KEY", "JOB", "STATE", "FIRES", "NEXT", "LAST"),
        [
            (
                each["key"] or "",
                each["coordinate"],
                each["state"],
                _fires(each),
                when(each["nextAt"]) or "",
                each["lastOutcome"] or "",
            )
            for each in found
        ],
        empty="no jobs yet: register one with @tenure.job, or `tenure jobs create`",
    )


@verb(jobs, "show")
def show(call: Call, ref: Ref) -> None:
    """Show a job: when it fires, how its runs went, who paused it."""
    show_job(call, find_job(call, ref))


@verb(jobs, "next")
def upcoming(
    call: Call,
    ref: Ref,
    count: Annotated[int, typer.Option(help="How many.", min=1, max=1000)] = 20,
) -> None:
    """Show the next instants, and what clock changes do to them."""
    job = find_job(call, ref)
    found = call.api().get(f"{_ROOT}/{job['id']}/next", count=count)["data"]
    if call.screen.as_json:
        call.screen.json(found)
        return
    call.screen.note(f"{job['coordinate']} fires", style="dim")
    call.screen.table(
        ("LOCAL", "UTC", "NOTE"),
        [(each["local"], each["at"], each["note"] or "") for each in found],
        empty="never: no instant of its schedule will come",
    )


@verb(jobs, "windows")
def windows(call: Call, ref: Ref, limit: options.Limit = 50) -> None:
    """List windows, the newest first: fired, skipped and why."""
    job = find_job(call, ref)
    found = call.api().get(f"{_ROOT}/{job['id']}/window", limit=limit)["data"]
    if call.screen.as_json:
        call.screen.json(found)
        return
    call.screen.table(
        ("WINDOW", "STATE", "RUN", "WHY"),
        [
            (
                when(each["at"])
                + (f" … {when(each['until'])}" if each["until"] else "")
                + (f" ({each['mark'].partition('_')[0]})" if each["mark"] else ""),
                each["state"]
                + (f" ({each['windows']} of them)" if each["windows"] > 1 else ""),
                each["runId"] or "",
                each["reason"] or "",
            )
            for each in found
        ],
        empty="no window has come yet",
    )


@verb(jobs, "run")
def run(call: Call, ref: Ref, args: Args = None, note: Note = None) -> None:
    """Run a job now, beside its schedule."""
    job = find_job(call, ref)
    body = {"args": _args(args), "note": note}
    made = call.api().post(f"{_ROOT}/{job['id']}/trigger", body)
    if call.screen.as_json:
        call.screen.json(made)
        return
    call.screen.line(made["id"])
    call.screen.note(f"{made['job']} runs: tenure runs show {made['id']}")


@verb(jobs, "submit")
def submit(
    call: Call,
    ref: Ref,
    args: Args = None,
    once: Annotated[
        str | None, typer.Option("--once", help="At most one open run of this key.")
    ] = None,
    delay: Annotated[str | None, typer.Option(help="30s, 15m, 2h, 3d.")] = None,
    at: Annotated[str | None, typer.Option(help="An instant with offset.")] = None,
    priority: Annotated[int | None, typer.Option(help="0 first, 3 last.")] = None,
) -> None:
    """Submit a run of a job with arguments."""
    job = find_job(call, ref)
    body = {
        "args": _args(args) or {},
        "key": once,
        "delay": delay,
        "at": at,
        "priority": priority,
    }
    made = call.api().post(f"{_ROOT}/{job['id']}/run", body)
    if call.screen.as_json:
        call.screen.json(made)
    else:
        call.screen.line(made["id"])


@verb(jobs, "pause")
def pause(call: Call, ref: Ref, note: Note = None) -> None:
    """Fire and start nothing of a job until it is resumed."""
    job = find_job(call, ref)
    show_job(call, call.api().post(f"{_ROOT}/{job['id']}/pause", {"note": note}))


@verb(jobs, "resume")
def resume(call: Call, ref: Ref) -> None:
    """Fire again; what was missed follows the catch-up rule."""
    job = find_job(call, ref)
    show_job(call, call.api().post(f"{_ROOT}/{job['id']}/resume"))


@verb(jobs, "backfill")
def backfill(
    call: Call,
    ref: Ref,
    since: Annotated[str, typer.Option(help="First instant, with offset.")],
    until: Annotated[str, typer.Option(help="Last instant, with offset.")],
    note: Note = None,
) -> None:
    """Run every instant of the schedule in a range, beside what has fired."""
    job = find_job(call, ref)
    body = {"since": since, "until": until, "note": note}
    made = call.api().post(f"{_ROOT}/{job['id']}/backfill", body)["runIds"]
    if call.screen.as_json:
        call.screen.json(made)
    else:
        call.screen.line(f"{len(made)} runs of {job['coordinate']}")


@verb(jobs, "create")
def create(
    call: Call,
    name: Annotated[str, typer.Argument(help="Its name in the package env.")],
    calls: Annotated[str, typer.Option(help="The job whose function it runs.")],
    cron: Annotated[str | None, typer.Option(help="5 or 6 fields, or @daily.")] = None,
    every: Annotated[str | None, typer.Option(help="30s, 15m, 2h, 3d.")] = None,
    at: Annotated[str | None, typer.Option(help="Once, with offset.")] = None,
    zone: Annotated[
        str | None, typer.Option(help="Europe/Rome; UTC unless said.")
    ] = None,
    catch_up: Annotated[
        str | None, typer.Option(help="Missed windows: none, latest, all.")
    ] = None,
    overlap: Annotated[
        str | None, typer.Option(help="skip, queue, cancel-other, allow.")
    ] = None,
    args: Args = None,
) -> None:
    """Make a job at run time that calls the function of another one."""
    schedule = {
        "cron": cron,
        "every": every,
        "at": at,
        "zone": zone,
        "catchUp": catch_up,
    }
    given = {key: value for key, value in schedule.items() if value is not None}
    body: dict[str, Any] = {"name": name, "calls": calls, "args": _args(args) or {}}
    if given:
        body["schedule"] = given
    if overlap is not None:
        body["settings"] = {"overlap": overlap}
    show_job(call, call.api().post(_ROOT, body))


@verb(jobs, "edit")
def edit(
    call: Call,
    ref: Ref,
    cron: Annotated[str | None, typer.Option(help="Another pattern.")] = None,
    every: Annotated[str | None, typer.Option(help="Another interval.")] = None,
    zone: Annotated[str | None, typer.Option(help="Another zone.")] = None,
    args: Args = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Take all changes back.")
    ] = False,
) -> None:
    """Lay changes over what code says of a job."""
    job = find_job(call, ref)
    body: dict[str, Any] = {}
    if reset:
        body = {"schedule": None, "args": None, "settings": None}
    timing = {"cron": cron, "every": every, "zone": zone}
    given = {key: value for key, value in timing.items() if value is not None}
    if given:
        body["schedule"] = given
    if args is not None:
        body["args"] = _args(args)
    if not body:
        raise ValidationFailed.at("edit", msg="says nothing to change")
    show_job(call, call.api().patch(f"{_ROOT}/{job['id']}", body))


@verb(jobs, "delete")
def delete(call: Call, ref: Ref) -> None:
    """Delete a job that was made at run time; its history stays."""
    job = find_job(call, ref)
    call.api().delete(f"{_ROOT}/{job['id']}")
    call.screen.note(f"{job['coordinate']} is deleted")


@verb(jobs, "plan", asks=False)
def plan(call: Call) -> None:
    """Show what a start of this release would change in the catalogue."""
    from tenure.cli.planning import planned

    found = planned(call.settings())
    if call.screen.as_json:
        call.screen.json(found)
        return
    rows = [
        *(("added", each, "") for each in found["added"]),
        *(("changed", each, "") for each in found["changed"]),
        *(("renamed", each["to"], f"from {each['from']}") for each in found["renamed"]),
        *(("orphaned", each, "no longer declared") for each in found["orphaned"]),
    ]
    same = len(found["same"])
    call.screen.table(
        ("", "JOB", ""), rows, empty=f"nothing changes: {same} jobs are as they were"
    )
