"""The tick: due jobs get their windows, the windows their runs, in one transaction.

Theory. Who ticks does not matter, and nobody is elected. Due jobs are locked by their
row, past those that another node has; the window's key (job, instant) decides whether a
window is minted; and the job moves on in the same commit. So a crash at any statement
leaves the job due as it was, and two nodes that meet leave one window. A job's
`fired_to` only rises and is never removed: nothing is minted at or below it, nor at or
below the instant of the last edit, even where the windows themselves are long gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfoNotFoundError

import msgspec

from tenure.ids import LaneId, RunId, WorkId, new_run_id, new_work_id
from tenure.limits import CATCH_UP_WINDOWS, TICK_JOBS
from tenure.schedules.calendar.catching import due
from tenure.schedules.calendar.model import decode
from tenure.schedules.calendar.stepping import due_at, next_after
from tenure.schedules.calendar.zones import zone_of
from tenure.schedules.ledger import outcomes, runs
from tenure.schedules.ledger.jobs import COLUMNS, JobRow, as_row, body_of
from tenure.schedules.model import (
    DEFINITION_FORMAT,
    OPEN,
    Definition,
    NewRun,
    Origin,
    Overlap,
)
from tenure.store.tx import ColumnType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.ids import JobId, NodeId
    from tenure.schedules.calendar.model import Schedule
    from tenure.store.tx import Tx

__all__ = ["NEXT_DUE", "Minted", "Ticked", "fire", "insert_windows", "restart", "tick"]

WINDOW: Final[Mapping[str, ColumnType]] = {
    "job": "text",
    "at": "bigint",
    "mark": "text",
    "state": "text",
    "run": "text",
    "reason": "text",
    "until_at": "bigint",
    "windows": "bigint",
}
_ADVANCED: Final[Mapping[str, ColumnType]] = {
    "id": "text",
    "nominal_at": "bigint",
    "due_at": "bigint",
    "fired_to": "bigint",
}
_MINE: Final = (
    "EXISTS (SELECT 1 FROM job_declared d WHERE d.node = :node AND d.job = j.code)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """What a tick did. `full` says that there may be more due at once.

    `unreadable` are jobs whose definition this release cannot read: they stay due, for
    a node that can.
    """

    jobs: int = 0
    fired: int = 0
    skipped: int = 0
    unreadable: Sequence[JobId] = ()
    full: bool = False


@dataclass(slots=True)
class Minted:
    """Windows of jobs that were decided, before they are written."""

    windows: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    runs: dict[tuple[str, int, str], NewRun] = field(
        default_factory=dict[tuple[str, int, str], NewRun]
    )
    cancelled: dict[WorkId, RunId] = field(default_factory=dict[WorkId, RunId])
    advanced: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    skipped: dict[str, int] = field(default_factory=dict[str, int])
    unreadable: list[JobId] = field(default_factory=list)
    full: bool = False


NEXT_DUE: Final = (
    f"SELECT j.due_at FROM job j WHERE j.due_at IS NOT NULL AND {_MINE}"
    " ORDER BY j.due_at LIMIT 1"
)
"""When the next job that a node may tick is due; no row for never."""


def tick(tx: Tx, node: NodeId, *, limit: int = TICK_JOBS) -> Ticked:
    """Fire up to `limit` due jobs that this node declares, whoever else does too.

    Jobs that another transaction holds are passed over: it ticks, edits or pauses them.
    """
    locking = (
        " FOR NO KEY UPDATE OF j SKIP LOCKED" if tx.dialect == "postgresql" else ""
    )
    found = tx.all(
        f"SELECT {COLUMNS} FROM job j WHERE j.due_at <= :now AND {_MINE}"
        f" ORDER BY j.due_at LIMIT :limit{locking}",
        {"now": tx.now, "node": node, "limit": limit},
    )
    return fire(tx, [as_row(row) for row in found], full=len(found) >= limit)


def fire(tx: Tx, due_jobs: Sequence[JobRow], *, full: bool = False) -> Ticked:
    """Mint the windows of these due jobs, submit their runs, and move them on.

    Their rows are locked by the caller.
    """
    if not due_jobs:
        return Ticked()
    minted = Minted(full=full)
    bodies = {row.id: body for row in due_jobs if (body := _readable(row, minted))}
    blocking = [
        id_
        for id_, body in bodies.items()
        if body.settings.overlap is not Overlap.ALLOW
    ]
    busy = runs.open_runs(tx, blocking)
    for row in due_jobs:
        if (body := bodies.get(row.id)) is not None:
            _decide(tx.now, row, body, busy.get(row.id, []), minted)
    fired = _write(tx, minted)
    return Ticked(
        jobs=len(due_jobs),
        fired=fired,
        skipped=sum(minted.skipped.values()),
        unreadable=minted.unreadable,
        full=minted.full,
    )


def _readable(row: JobRow, minted: Minted) -> Definition | None:
    try:
        body = body_of(row)
        if body.format > DEFINITION_FORMAT or body.schedule is None:
            raise ValueError("written by a newer release")
        zone_of(decode(body.schedule).zone)
    except (ValueError, ZoneInfoNotFoundError, msgspec.MsgspecError):
        minted.unreadable.append(row.id)
        return None
    return body


def _decide(
    now: int,
    row: JobRow,
    body: Definition,
    busy: Sequence[tuple[RunId, WorkId]],
    minted: Minted,
) -> None:
    """Say what becomes of one due job. Writes nothing."""
    assert body.schedule is not None, "read by _readable"
    assert row.nominal_at is not None, "a due job has a next window"
    schedule = decode(body.schedule)
    firing = due(schedule, row.nominal_at, now, limit=CATCH_UP_WINDOWS)
    floor = max(row.fired_to or row.edited_at, row.edited_at)
    reached = floor
    if (gap := firing.skipped) is not None and gap.last_at > floor:
        reached = max(reached, gap.last_at)
        reason = f"missed: catch-up is {schedule.catch_up}"
        minted.windows.append(
            (row.id, gap.first_at, "", "skipped", None, reason, gap.last_at, gap.count)
        )
        minted.skipped[row.id] = gap.count
    fire_now = [at for at in firing.fire if at > floor]
    for at in fire_now:
        reached = max(reached, at)
        skip = _overlaps(body, busy, minted)
        if skip is not None:
            window = (row.id, at, "", "skipped", None, skip, None, 1)
            minted.skipped[row.id] = minted.skipped.get(row.id, 0) + 1
        else:
            run = _run(row, body, at)
            minted.runs[row.id, at, ""] = run
            window = (row.id, at, "", OPEN, run.id, None, None, 1)
        minted.windows.append(window)
    following = firing.next_at
    due_next = None if following is None else due_at(schedule, following, row.id)
    minted.full |= due_next is not None and due_next <= now
    minted.advanced.append((row.id, following, due_next, reached))


def _overlaps(
    body: Definition, busy: Sequence[tuple[RunId, WorkId]], minted: Minted
) -> str | None:
    """Return why a window is skipped; None lets it run."""
    if not busy:
        return None
    match body.settings.overlap:
        case Overlap.ALLOW:
            return None
        case Overlap.SKIP:
            return f"overlap: {busy[0][0]} is open"
        case Overlap.QUEUE:
            most = 1 + body.settings.queue_max
            if len(busy) >= most:
                return f"overlap: {len(busy)} runs are open, {most} may be"
            return None
        case Overlap.CANCEL_OTHER:
            minted.cancelled |= {work: run for run, work in busy}
            return None


def _run(row: JobRow, body: Definition, at: int) -> NewRun:
    return NewRun(
        id=new_run_id(),
        work=new_work_id(),
        job=row.id,
        tenant=row.tenant,
        lane=LaneId(row.lane),
        origin=Origin.SCHEDULE,
        args=body.args.encode(),
        priority=body.settings.priority,
        window_at=at,
    )


def insert_windows(
    tx: Tx, windows: Sequence[tuple[Any, ...]]
) -> set[tuple[str, int, str]]:
    """Insert windows by `WINDOW`'s columns; return the keys of those that are new."""
    if not windows:
        return set()
    asked, params = tx.rows("b", WINDOW, windows)
    names = ", ".join(WINDOW)
    found = tx.all(
        f"INSERT INTO job_window ({names}, created_at, settled_at)"
        f" SELECT {', '.join(f'b.{name}' for name in WINDOW)}, CAST(:now AS bigint),"
        " CASE WHEN b.state = 'open' THEN NULL ELSE CAST(:now AS bigint) END"
        f" FROM {asked} WHERE true ON CONFLICT DO NOTHING RETURNING job, at, mark",
        {**params, "now": tx.now},
    )
    return {(row[0], row[1], row[2]) for row in found}


def _write(tx: Tx, minted: Minted) -> int:
    """Write what was decided; return how many runs there are now."""
    new = insert_windows(tx, minted.windows)
    fresh = [run for key, run in minted.runs.items() if key in new]
    if minted.cancelled:
        outcomes.cancel(tx, minted.cancelled, "a newer window of the job has come")
    runs.add(tx, fresh)
    if minted.skipped:
        given, params = tx.rows(
            "b", {"job": "text", "n": "bigint"}, sorted(minted.skipped.items())
        )
        tx.run(
            f"UPDATE job_counter SET skipped = skipped + b.n FROM {given}"
            " WHERE job_counter.job = b.job",
            params,
        )
    if minted.advanced:
        given, params = tx.rows("b", _ADVANCED, minted.advanced)
        tx.run(
            "UPDATE job SET nominal_at = b.nominal_at, due_at = b.due_at,"
            f" fired_to = b.fired_to FROM {given} WHERE job.id = b.id",
            params,
        )
    return len(fresh)


def restart(schedule: Schedule, id_: str, after: int) -> tuple[int | None, int | None]:
    """Return the next window after an instant, and when it is due."""
    nominal = next_after(schedule, after)
    return nominal, None if nominal is None else due_at(schedule, nominal, id_)
