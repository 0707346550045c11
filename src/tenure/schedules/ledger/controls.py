"""What operators do with jobs: pause, resume, trigger, backfill, replay, cancel, edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.clock import to_rfc3339
from tenure.errors import Conflict, NotFound, ValidationFailed, WindowSucceeded
from tenure.ids import (
    JobId,
    LaneId,
    RunId,
    TenantId,
    new_id,
    new_run_id,
    new_work_id,
)
from tenure.limits import BACKFILL_WINDOWS_MAX
from tenure.naming.coordinates import BUILTIN, ENV
from tenure.schedules.calendar.model import decode
from tenure.schedules.calendar.stepping import between, due_at
from tenure.schedules.ledger import catalogue, jobs, outcomes, runs
from tenure.schedules.ledger.ticking import insert_windows
from tenure.schedules.model import OPEN, Definition, NewRun, Origin, Run
from tenure.store import claims, lanes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.schedules.ledger.jobs import JobRow
    from tenure.store.tx import Tx

__all__ = [
    "FAILING",
    "backfill",
    "cancel_run",
    "create",
    "delete",
    "edit",
    "pause",
    "pause_failing",
    "replay_run",
    "resume",
    "trigger",
    "uninstall",
]


def pause(tx: Tx, id_: JobId, *, actor: str, note: str | None) -> None:
    """Fire nothing and start nothing of a job until it is resumed."""
    row = _locked(tx, id_)
    tx.run(
        "UPDATE job SET paused_at = :now, paused_by = :by, paused_note = :note,"
        " due_at = NULL, version = version + 1 WHERE id = :id",
        {"id": id_, "now": tx.now, "by": actor, "note": note},
    )
    _set_lane(tx, row, "paused", f"job paused by {actor}")


def resume(tx: Tx, id_: JobId) -> None:
    """Fire again: what was missed meanwhile follows the job's catch-up rule."""
    row = _locked(tx, id_)
    if row.paused_at is None:
        return
    body = jobs.body_of(row)
    due = None
    if row.nominal_at is not None and body.schedule is not None:
        due = due_at(decode(body.schedule), row.nominal_at, id_)
    tx.run(
        "UPDATE job SET paused_at = NULL, paused_by = NULL, paused_note = NULL,"
        " due_at = :due, version = version + 1 WHERE id = :id",
        {"id": id_, "due": due},
    )
    tx.run("UPDATE job_counter SET failing = 0 WHERE job = :id", {"id": id_})
    _set_lane(tx, row, "open", None)


def _set_lane(tx: Tx, row: JobRow, state: str, reason: str | None) -> None:
    """Stop or open the job's own lane; a lane that others share stays as it is."""
    lane = lanes.lane_row(tx, LaneId(row.lane))
    if lane is not None and lane.subject == row.id and lane.state != "deleted":
        lanes.change_lane(tx, LaneId(row.lane), state=state, reason=reason)


FAILING: Final = (
    "SELECT c.job, c.failing FROM job_counter c JOIN job j ON j.id = c.job"
    " WHERE c.failing > 0 AND j.paused_at IS NULL AND j.deleted_at IS NULL"
    " AND j.body LIKE '%\"pause_on_failure\"%'"
)
"""Jobs that may pause themselves, and how often in a row they failed."""


def pause_failing(tx: Tx) -> list[JobId]:
    """Pause jobs that failed as often in a row as they allow; return them."""
    counts = {row[0]: row[1] for row in tx.all(FAILING)}
    paused: list[JobId] = []
    locked = jobs.lock(tx, counts)
    # Counted again under the locks: somebody may have resumed one meanwhile.
    counts = {row[0]: row[1] for row in tx.all(FAILING)}
    for id_, row in locked.items():
        most = jobs.body_of(row).settings.pause_on_failure
        if most is not None and counts.get(id_, 0) >= most:
            note = f"{counts[id_]} runs failed in a row"
            pause(tx, JobId(id_), actor="tenure", note=note)
            paused.append(JobId(id_))
    return paused


def trigger(
    tx: Tx,
    id_: JobId,
    *,
    actor: str,
    note: str | None,
    args: bytes | None = None,
) -> RunId:
    """Run a job now, outside of its schedule; the run says manual and who."""
    row = _locked(tx, id_)
    body = jobs.body_of(row)
    run = NewRun(
        id=new_run_id(),
        work=new_work_id(),
        job=id_,
        tenant=row.tenant,
        lane=LaneId(row.lane),
        origin=Origin.MANUAL,
        args=body.args.encode() if args is None else args,
        priority=body.settings.priority,
        actor=actor,
        note=note,
    )
    runs.add(tx, [run])
    return run.id


def backfill(
    tx: Tx, id_: JobId, *, since: int, until: int, actor: str, note: str | None
) -> list[RunId]:
    """Run every instant of the schedule from `since` to `until`, both included.

    Each is a marked window of its own beside what the schedule fired. Raises
    ValidationFailed without a schedule, or for more than `BACKFILL_WINDOWS_MAX`.
    """
    row = _locked(tx, id_)
    body = jobs.body_of(row)
    if body.schedule is None:
        raise ValidationFailed.at("body", msg="the job has no schedule to fill in")
    instants = between(
        decode(body.schedule), since - 1, until, BACKFILL_WINDOWS_MAX + 1
    )
    if len(instants) > BACKFILL_WINDOWS_MAX:
        raise ValidationFailed.at(
            "body",
            "until",
            msg=f"that is more than {BACKFILL_WINDOWS_MAX} windows: fill in fewer",
        )
    mark = new_id("backfill")
    return _mint(tx, row, body, instants, mark, Origin.BACKFILL, actor, note)


def _mint(
    tx: Tx,
    row: JobRow,
    body: Definition,
    instants: Sequence[int],
    mark: str,
    origin: Origin,
    actor: str,
    note: str | None,
    args: bytes | None = None,
) -> list[RunId]:
    new = [
        NewRun(
            id=new_run_id(),
            work=new_work_id(),
            job=row.id,
            tenant=row.tenant,
            lane=LaneId(row.lane),
            origin=origin,
            args=body.args.encode() if args is None else args,
            priority=body.settings.priority,
            window_at=at,
            mark=mark,
            actor=actor,
            note=note,
        )
        for at in instants
    ]
    insert_windows(
        tx, [(row.id, run.window_at, mark, OPEN, run.id, None, None, 1) for run in new]
    )
    runs.add(tx, new)
    return [run.id for run in new]


_OVER: Final = frozenset({"failed", "timed_out", "cancelled", "parked"})


def replay_run(
    tx: Tx, tenant: TenantId, id_: str, *, force: bool, actor: str, note: str | None
) -> RunId:
    """Do a run again that did not succeed; return the run that is done now.

    A run of a window that has succeeded is refused unless `force`, which mints a marked
    window of its own and leaves the succeeded one as it is. Raises WindowSucceeded,
    NotFound, and Conflict while another run of its key is open.
    """
    run = runs.read(tx, tenant, id_)
    row = _locked(tx, run.job)
    run = runs.read(tx, tenant, id_)  # as it is under the job's lock
    if run.state not in _OVER and run.state != OPEN:
        if not force:
            raise WindowSucceeded(_succeeded(run))
        body = jobs.body_of(row)
        if run.window_at is None:
            return trigger(tx, row.id, actor=actor, note=note, args=run.args)
        mark = new_id("replay")
        (again,) = _mint(
            tx, row, body, [run.window_at], mark, Origin.REPLAY, actor, note, run.args
        )
        return again
    if run.key is not None and (other := runs.take_key(tx, run)) is not None:
        raise Conflict(
            f"run {other} of the key {run.key!r} is open: it goes on already"
        )
    claims.replay(tx, [run.work])
    params = {"run": run.id}
    tx.run(
        "UPDATE job_run SET state = 'open', reason = NULL, ended_at = NULL"
        " WHERE id = :run AND state <> 'succeeded'",
        params,
    )
    for table in ("job_window", "job_reminder"):
        tx.run(
            f"UPDATE {table} SET state = 'open', settled_at = NULL"
            " WHERE run = :run AND state <> 'succeeded' AND job = :job",
            {**params, "job": run.job},
        )
    return run.id


def _succeeded(run: Run) -> str:
    what = f"run {run.id}"
    if run.window_at is not None:
        what = f"window {run.job} at {to_rfc3339(run.window_at)} (run {run.id})"
    return f"{what} has {run.state}: force it to do it again"


def cancel_run(tx: Tx, tenant: TenantId, id_: str, *, actor: str) -> Run:
    """End a run: at once while it waits, as soon as its node hears when it goes on."""
    run = runs.read(tx, tenant, id_)
    outcomes.cancel(tx, {run.work: run.id}, f"cancelled by {actor}")
    return runs.read(tx, tenant, id_)


# --- jobs that are made at run time, and what operators change ----------------------


def create(tx: Tx, tenant: TenantId, body: Definition, *, calls: JobId) -> JobId:
    """Make a job at run time that calls the function of another one.

    Raises Conflict when an `env` job of the name exists, NotFound for an unknown one.
    """
    catalogue.lock_catalogue(tx)
    taken = tx.scalar(
        "SELECT j.id FROM job_spelling s JOIN job j ON j.id = s.job"
        " WHERE s.tenant = :tenant AND s.package = :package AND s.name = :name"
        " AND j.deleted_at IS NULL",
        {"tenant": tenant, "package": body.package, "name": body.name},
    )
    if taken is not None:
        raise Conflict(f"job {body.coordinate} exists already: edit or delete it")
    code = jobs.lock(tx, [calls]).get(calls)
    if code is None:
        raise NotFound(f"job {calls} does not exist")
    id_ = catalogue.make_job(tx, tenant, body, code=code.code)
    params = {
        "tenant": tenant,
        "package": body.package,
        "name": body.name,
        "job": id_,
        "now": tx.now,
    }
    tx.run(
        "INSERT INTO job_spelling (tenant, package, name, job, since_at)"
        " VALUES (:tenant, :package, :name, :job, :now)"
        " ON CONFLICT (tenant, package, name) DO UPDATE SET job = :job",
        params,
    )
    catalogue.allot_keys(tx, tenant, {body.name})
    return id_


def edit(tx: Tx, id_: JobId, overrides: dict[str, Any]) -> None:
    """Lay an operator's changes over a job: what is None there is taken back.

    What is due under the old calendar fires first. Raises NotFound.
    """
    row = _locked(tx, id_)
    laid: dict[str, Any] = msgspec.json.decode(row.overrides)
    settings = overrides.pop("settings", {})
    kept = {} if settings is None else {**laid.get("settings", {}), **settings}
    laid = {
        **laid,
        **overrides,
        "settings": {name: value for name, value in kept.items() if value is not None},
    }
    laid = {name: value for name, value in laid.items() if value not in (None, {})}
    text = msgspec.json.encode(laid, order="deterministic").decode()
    said = tx.scalar(
        "SELECT body FROM job_definition WHERE job = :job AND hash = :hash",
        {"job": id_, "hash": row.definition},
    )
    own = row.body if said is None else said  # made at run time: it is its own
    base = msgspec.json.decode(own, type=Definition)
    tx.run(
        "UPDATE job SET overrides = :overrides WHERE id = :id",
        {"id": id_, "overrides": text if said is not None else "{}"},
    )
    catalogue.change(tx, row, catalogue.effective(base, text))


def delete(tx: Tx, id_: JobId, *, actor: str) -> None:
    """Delete a job that was made at run time: open runs are cancelled, history stays.

    Raises Conflict for a job that code declares.
    """
    row = _locked(tx, id_)
    if row.code == row.id:
        raise Conflict(
            f"job {row.package}:{row.name} is declared by code: pause it, or uninstall"
            " its package"
        )
    tx.run(
        "UPDATE job SET deleted_at = :now, due_at = NULL, nominal_at = NULL, key = NULL,"
        " version = version + 1 WHERE id = :id",
        {"id": id_, "now": tx.now},
    )
    open_ = runs.open_runs(tx, [id_])[id_]
    works = {work: run for run, work in open_}
    outcomes.cancel(tx, works, f"job deleted by {actor}")


def uninstall(tx: Tx, tenant: TenantId, package: str) -> int:
    """Say that a package is gone: its jobs fire no more and give their keys up.

    Nothing is deleted: spellings, windows and runs stay. Returns how many jobs it had.
    Raises NotFound for a package that nobody installed, Conflict for Tenure's own.
    """
    catalogue.lock_catalogue(tx)
    found = tx.all(
        "SELECT id, name FROM job WHERE tenant = :tenant AND package = :package"
        " AND deleted_at IS NULL",
        {"tenant": tenant, "package": package},
    )
    if not found:
        raise NotFound(f"no package is named {package!r}")
    if package in {BUILTIN, ENV}:
        raise Conflict(f"package {package!r} is Tenure's own: delete or pause its jobs")
    tx.run(
        "UPDATE package SET installed = false, uninstalled_at = :now WHERE name = :name",
        {"name": package, "now": tx.now},
    )
    jobs.lock(tx, [row[0] for row in found])
    tx.run(
        "UPDATE job SET due_at = NULL, nominal_at = NULL, key = NULL,"
        " version = version + 1 WHERE tenant = :tenant AND package = :package"
        " AND deleted_at IS NULL",
        {"tenant": tenant, "package": package},
    )
    tx.run(
        "DELETE FROM job_declared WHERE job IN (SELECT id FROM job"
        " WHERE tenant = :tenant AND package = :package)",
        {"tenant": tenant, "package": package},
    )
    catalogue.allot_keys(tx, tenant, {row[1] for row in found})
    return len(found)


def _locked(tx: Tx, id_: JobId) -> JobRow:
    row = jobs.lock(tx, [id_]).get(id_)
    if row is None or row.deleted_at is not None:
        raise NotFound(f"job {id_} does not exist")
    return row
