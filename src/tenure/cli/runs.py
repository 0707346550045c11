"""`tenure runs` and `tenure packages`: what jobs did, and who brings them."""

from typing import Annotated, Any

import typer

from tenure.cli import options
from tenure.cli.jobs import find_job
from tenure.cli.screen import when
from tenure.cli.verbs import Call, verb

runs = typer.Typer(help="What jobs did.", no_args_is_help=True)
packages = typer.Typer(help="Who brings jobs.", no_args_is_help=True)

Ref = Annotated[str, typer.Argument(metavar="RUN", help="run_….")]
_ROOT = "/api/v1/run"


def _show(call: Call, run: Any) -> None:
    if call.screen.as_json:
        call.screen.json(run)
        return
    call.screen.facts(
        {
            "run": run["id"],
            "job": run["job"],
            "state": run["state"],
            "why": run["reason"] or run.get("why"),
            "rule": run.get("rule"),
            "origin": run["origin"]
            + (f" by {run['actor']}" if run["actor"] else "")
            + (f": {run['note']}" if run["note"] else ""),
            "window": when(run["window"]),
            "arguments": run["args"] or None,
            "key": run["key"],
            "attempts": run["attempts"],
            "due": when(run["dueAt"]),
            "made": when(run["createdAt"]),
            "ended": when(run["endedAt"]),
        }
    )


@verb(runs, "list")
def list_runs(
    call: Call,
    job: Annotated[
        str | None, typer.Option(help="Of one job: key, package:name or job_….")
    ] = None,
    state: Annotated[
        str | None, typer.Option(help="open, succeeded, failed, timed_out, ….")
    ] = None,
    limit: options.Limit = 50,
) -> None:
    """List runs, the newest first."""
    of = None if job is None else find_job(call, job)["id"]
    found = list(call.api().pages(_ROOT, limit, job=of, state=state))
    if call.screen.as_json:
        call.screen.json(found)
        return
    call.screen.table(
        ("RUN", "JOB", "STATE", "ORIGIN", "WINDOW", "ENDED", "WHY"),
        [
            (
                each["id"],
                each["job"],
                each["state"],
                each["origin"],
                when(each["window"]) or "",
                when(each["endedAt"]) or "",
                each["reason"] or "",
            )
            for each in found
        ],
        empty="no runs yet: `tenure jobs list` shows what fires when",
    )


@verb(runs, "show")
def show(call: Call, ref: Ref) -> None:
    """Show a run: each attempt, its error, the lines that it logged."""
    show_run(call, ref)


def show_run(call: Call, ref: str) -> None:
    """Print a run with its attempts."""
    run = call.api().get(f"{_ROOT}/{ref}")
    _show(call, run)
    if call.screen.as_json:
        return
    for attempt in run["tries"]:
        call.screen.line("")
        reason = f": {attempt['reason']}" if attempt["reason"] else ""
        call.screen.line(
            f"attempt {attempt['number']} on node {attempt['node']},"
            f" {attempt['outcome']}{reason}"
        )
        if attempt["dropped"]:
            call.screen.note(f"({attempt['dropped']} older lines are not kept)")
        for line in attempt["logs"]:
            call.screen.line(f"  {line}")
        if attempt["error"]:
            call.screen.line(attempt["error"])


@verb(runs, "cancel")
def cancel(call: Call, ref: Ref) -> None:
    """End a run: at once while it waits, soon when it goes on."""
    _show(call, call.api().post(f"{_ROOT}/{ref}/cancel"))


@verb(runs, "replay")
def replay(
    call: Call,
    ref: Ref,
    force: Annotated[
        bool, typer.Option("--force", help="Also one that has succeeded.")
    ] = False,
    note: Annotated[str | None, typer.Option(help="Why.")] = None,
) -> None:
    """Do a run again that did not succeed."""
    body = {"force": force, "note": note}
    _show(call, call.api().post(f"{_ROOT}/{ref}/replay", body))


@verb(packages, "list")
def list_packages(call: Call) -> None:
    """List the packages that ever declared a job."""
    found = call.api().get("/api/v1/package")["data"]
    if call.screen.as_json:
        call.screen.json(found)
        return
    call.screen.table(
        ("PACKAGE", "INSTALLED", "JOBS", "FIRST SEEN"),
        [
            (
                each["name"],
                "yes" if each["installed"] else "no",
                each["jobs"],
                when(each["seenAt"]),
            )
            for each in found
        ],
        empty='no packages yet: `tenure.package("billing")` makes one',
    )


@verb(packages, "uninstall")
def uninstall(
    call: Call, name: Annotated[str, typer.Argument(help="Its name.")]
) -> None:
    """Say that a package is gone: its jobs fire no more; nothing is deleted."""
    done = call.api().post(f"/api/v1/package/{name}/uninstall")
    if call.screen.as_json:
        call.screen.json(done)
    else:
        call.screen.line(f"{name}: {done['jobs']} jobs fire no more")
