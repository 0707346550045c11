"""Runs: made with their work in one transaction, and read with what it says now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tenure.errors import NotFound
from tenure.ids import JobId, RunId, TenantId, WorkId
from tenure.schedules import tables
from tenure.schedules.model import OPEN, NewRun, Run
from tenure.store import claims

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tenure.store.tx import AnyRow, Tx

__all__ = ["KIND", "add", "add_keyed", "list_runs", "open_runs", "read", "take_key"]

KIND: Final = "job"
"""The kind of a run's work."""
_COLUMNS: Final = (
    "id",
    "job",
    "tenant",
    "work",
    "origin",
    "window_at",
    "mark",
    "scope",
    "record",
    "actor",
    "note",
    "args",
    "key",
    "created_at",
)


def add(tx: Tx, runs: Sequence[NewRun]) -> None:
    """Insert runs and their work, due when they say."""
    if not runs:
        return
    now = tx.now
    tx.insert_records(
        tables.job_run,
        _COLUMNS,
        [
            (
                run.id,
                run.job,
                run.tenant,
                run.work,
                str(run.origin),
                run.window_at,
                run.mark,
                run.scope,
                run.record,
                run.actor,
                run.note,
                run.args,
                run.key,
                now,
            )
            for run in runs
        ],
    )
    claims.submit(
        tx,
        [
            claims.NewWork(
                id=run.work,
                lane=run.lane,
                kind=KIND,
                tenant=run.tenant,
                subject=run.id,
                priority=run.priority,
                due_at=run.due_at,
            )
            for run in runs
        ],
    )


def add_keyed(tx: Tx, run: NewRun) -> RunId:
    """Insert a run unless its key has an open one; return the run that there is."""
    other = take_key(tx, run)
    if other is None:
        add(tx, [run])
        return run.id
    return other


def take_key(tx: Tx, run: NewRun | Run) -> RunId | None:
    """Give a run its key; return the other run that has it and is open, if one has.

    The key's row is locked by the insert or the update, so of two at once the second
    one waits, and sees the first one's run.
    """
    assert run.key is not None, "no key was given"
    params = {"job": run.job, "key": run.key, "run": run.id}
    added = tx.run(
        "INSERT INTO job_key (job, key, run) VALUES (:job, :key, :run)"
        " ON CONFLICT DO NOTHING",
        params,
    )
    if added:
        return None
    # Locks the row, whoever holds it, before it is judged.
    held = tx.scalar(
        "UPDATE job_key SET run = run WHERE job = :job AND key = :key RETURNING run",
        {"job": run.job, "key": run.key},
    )
    state = tx.scalar(
        "SELECT w.state FROM job_run r JOIN work w ON w.id = r.work WHERE r.id = :run",
        {"run": held},
    )
    if held != run.id and state in {"ready", "claimed"}:
        return RunId(held)
    tx.run("UPDATE job_key SET run = :run WHERE job = :job AND key = :key", params)
    return None


_RUN: Final = (
    "SELECT r.id, r.job, r.tenant, r.work, r.state, r.reason, r.origin, r.window_at,"
    " r.mark, r.scope, r.record, r.actor, r.note, r.args, r.key, r.created_at,"
    " r.ended_at, w.state AS work_state, w.due_at, w.claim - w.releases AS attempts,"
    " w.reason AS work_reason, j.package, j.name"
    " FROM job_run r JOIN job j ON j.id = r.job LEFT JOIN work w ON w.id = r.work"
)
_ENDED: Final = {"dead": "failed", "cancelled": "cancelled", "parked": "parked"}


def read(tx: Tx, tenant: TenantId, id_: str) -> Run:
    """Return one run. Raises NotFound."""
    row = tx.first(
        f"{_RUN} WHERE r.id = :id AND r.tenant = :tenant", {"id": id_, "tenant": tenant}
    )
    if row is None:
        raise NotFound(
            f"no run is named {id_!r}: `tenure runs list` shows those there are"
        )
    return _shown(row)


def list_runs(
    tx: Tx,
    tenant: TenantId,
    *,
    job: JobId | None = None,
    state: str | None = None,
    before: str = "",
    limit: int = 50,
) -> list[Run]:
    """Return runs, the newest first, one page."""
    wanted = ["r.tenant = :tenant"]
    params: dict[str, Any] = {"tenant": tenant, "limit": limit}
    for text, column, value in (
        ("r.job = :job", "job", job),
        ("r.state = :state", "state", state),
        ("r.id < :before", "before", before or None),
    ):
        if value is not None:
            wanted.append(text)
            params[column] = value
    found = tx.all(
        f"{_RUN} WHERE {' AND '.join(wanted)} ORDER BY r.id DESC LIMIT :limit", params
    )
    return [_shown(row) for row in found]


def _shown(row: AnyRow) -> Run:
    state, reason = row.state, row.reason
    if state == OPEN and row.work_state in _ENDED:
        # Ended without its node: the pass that writes it down comes later.
        state, reason = _ENDED[row.work_state], row.work_reason
    return Run(
        id=row.id,
        job=row.job,
        tenant=row.tenant,
        work=row.work,
        state=state,
        reason=reason,
        origin=row.origin,
        window_at=row.window_at,
        mark=row.mark,
        scope=row.scope,
        record=row.record,
        actor=row.actor,
        note=row.note,
        args=bytes(row.args),
        key=row.key,
        created_at=row.created_at,
        ended_at=row.ended_at,
        work_state=row.work_state,
        due_at=row.due_at,
        attempts=row.attempts or 0,
        coordinate=f"{row.package or '?'}:{row.name}",
    )


def open_runs(tx: Tx, jobs: Iterable[str]) -> dict[str, list[tuple[RunId, WorkId]]]:
    """Return, for each job, its runs whose work is not over, each with its work's id.

    It is read from the work itself: a run whose work was lost, parked or cancelled
    without anybody saying so to the run holds nothing up.
    """
    wanted = sorted(set(jobs))
    found: dict[str, list[tuple[RunId, WorkId]]] = {job: [] for job in wanted}
    if not wanted:
        return found
    asked, params = tx.rows("b", {"job": "text"}, [(job,) for job in wanted])
    for row in tx.all(
        f"SELECT r.job, r.id, r.work FROM {asked}"
        " JOIN job_run r ON r.job = b.job AND r.state = 'open'"
        " JOIN work w ON w.id = r.work"
        " WHERE w.state IN ('ready', 'claimed') ORDER BY r.id",
        params,
    ):
        found[row[0]].append((RunId(row[1]), WorkId(row[2])))
    return found
