"""What schedules keep for a time: runs with their logs, windows, what closed nodes said.

Of each job the newest runs always stay, however old. A window outlives the run that it
stands for; that nothing fires twice rests on the job's own `fired_to`, which stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.clock import US
from tenure.ids import Prefix, WorkId, id_floor
from tenure.limits import (
    DAY_SECONDS,
    RETENTION_ROWS,
    RUN_DAYS,
    RUNS_KEPT,
    WINDOW_DAYS,
)
from tenure.outbox.ledger.retaining import Step
from tenure.store import claims

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.outbox.ledger.retaining import Keep, Stepping
    from tenure.store.tx import Tx

__all__ = ["STEPS", "remove_runs", "remove_windows"]

_DAY_US: Final = round(DAY_SECONDS * US)


def remove_runs(tx: Tx, place: str, keep: Keep) -> Step:
    """Look at the next old runs; remove those that are over and not among the newest."""
    del keep
    cutoff = id_floor(Prefix.RUN, tx.now - RUN_DAYS * _DAY_US)
    found = tx.all(
        "SELECT r.id, r.work, r.state,"
        " (SELECT count(*) FROM (SELECT 1 FROM job_run n WHERE n.job = r.job"
        "  AND n.id > r.id LIMIT :kept) AS newer) AS newer"
        " FROM job_run r WHERE r.id > :place AND r.id < :cutoff"
        " ORDER BY r.id LIMIT :limit",
        {
            "place": place,
            "cutoff": cutoff,
            "limit": RETENTION_ROWS,
            "kept": RUNS_KEPT,
        },
    )
    if not found:
        return Step(removed=0, place=None)
    old = {
        WorkId(row.work): row.id
        for row in found
        if row.state != "open" and row.newer >= RUNS_KEPT
    }
    ended = claims.lock_ended(tx, list(old))
    asked, params = tx.rows(
        "b",
        {"work": "text", "run": "text"},
        [(work, old[work]) for work in sorted(ended)],
    )
    removed = 0
    if ended:
        for text in (
            f"DELETE FROM job_attempt WHERE work IN (SELECT b.work FROM {asked})",
            f"DELETE FROM job_key WHERE run IN (SELECT b.run FROM {asked})",
        ):
            tx.run(text, params)
        removed = tx.run(
            f"DELETE FROM job_run WHERE id IN (SELECT b.run FROM {asked})", params
        )
        claims.remove(tx, list(ended))
    last = found[-1].id if len(found) == RETENTION_ROWS else None
    return Step(removed=removed, place=last)


def remove_windows(tx: Tx, place: str, keep: Keep) -> Step:
    """Remove windows and reminders that are old and over, job by job."""
    del keep
    job = tx.scalar(
        "SELECT id FROM job WHERE id > :place ORDER BY id LIMIT 1", {"place": place}
    )
    if job is None:
        return Step(removed=0, place=None)
    params = {
        "job": job,
        "before": tx.now - WINDOW_DAYS * _DAY_US,
        "limit": RETENTION_ROWS,
    }
    gone = tx.run(
        "DELETE FROM job_window WHERE (job, at, mark) IN (SELECT w.job, w.at, w.mark"
        " FROM job_window w WHERE w.job = :job AND w.at < :before"
        " AND coalesce(w.until_at, w.at) < :before AND w.state <> 'open'"
        " ORDER BY w.at LIMIT :limit)",
        params,
    )
    gone += tx.run(
        "DELETE FROM job_reminder WHERE (job, scope, record) IN (SELECT m.job, m.scope,"
        " m.record FROM job_reminder m WHERE m.job = :job AND m.state <> 'open'"
        " AND m.created_at < :before LIMIT :limit)",
        params,
    )
    return Step(removed=gone, place=place if gone >= RETENTION_ROWS else job)


STEPS: Final[Mapping[str, Stepping]] = {
    "runs": remove_runs,
    "windows": remove_windows,
}
"""Chores of schedules, as `tenure.outbox.retention` runs them."""
