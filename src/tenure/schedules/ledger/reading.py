"""What people ask of jobs: what comes next, what fired, what a run logged, what changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tenure.errors import ValidationFailed
from tenure.ids import JobId, RunId, TenantId
from tenure.limits import PREVIEW_INSTANTS_MAX
from tenure.naming.coordinates import ENV, Coordinate
from tenure.naming.spellings import plan
from tenure.schedules.calendar import stepping
from tenure.schedules.calendar.model import decode
from tenure.schedules.ledger import jobs
from tenure.schedules.model import Definition, Window

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.schedules.calendar.stepping import Upcoming
    from tenure.schedules.model import Run
    from tenure.store.tx import Tx

__all__ = [
    "PackageView",
    "Planned",
    "RunAttempt",
    "attempts",
    "packages",
    "planned",
    "upcoming",
    "windows",
]


class RunAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a run: what came of it, and what it logged."""

    claim: int
    number: int
    node: int
    outcome: str
    reason: str | None
    begun_at: int | None
    ended_at: int
    next_due_at: int | None
    error: str | None
    logs: tuple[str, ...]
    dropped: int


class PackageView(msgspec.Struct, frozen=True, kw_only=True):
    """A package and how many jobs it has."""

    name: str
    installed: bool
    seen_at: int
    uninstalled_at: int | None
    jobs: int


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """What a start with these jobs would change in the catalogue."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    orphaned: tuple[str, ...] = ()
    same: tuple[str, ...] = ()


def upcoming(tx: Tx, id_: JobId, count: int) -> list[Upcoming]:
    """Return the next instants of a job. Raises ValidationFailed without a schedule."""
    row = jobs.fetch(tx, id_)
    body = jobs.body_of(row)
    if body.schedule is None:
        raise ValidationFailed.at("path", "job", msg="the job has no schedule")
    schedule, wanted = decode(body.schedule), min(count, PREVIEW_INSTANTS_MAX)
    after = max(tx.now, row.fired_to or tx.now)
    return list(stepping.upcoming(schedule, after, wanted))


def windows(tx: Tx, id_: JobId, *, before: int | None, limit: int) -> list[Window]:
    """Return windows of a job, the newest first."""
    params: dict[str, Any] = {"job": id_, "limit": limit}
    older = ""
    if before is not None:
        older, params["before"] = " AND w.at < :before", before
    found = tx.all(
        "SELECT w.job, w.at, w.mark, w.state, w.run, w.reason, w.until_at, w.windows,"
        f" w.created_at, w.settled_at FROM job_window w WHERE w.job = :job{older}"
        " ORDER BY w.at DESC, w.mark DESC LIMIT :limit",
        params,
    )
    return [
        Window(
            job=row[0],
            at=row[1],
            mark=row[2],
            state=row[3],
            run=None if row[4] is None else RunId(row[4]),
            reason=row[5],
            until_at=row[6],
            windows=row[7],
            created_at=row[8],
            settled_at=row[9],
        )
        for row in found
    ]


def attempts(tx: Tx, run: Run) -> list[RunAttempt]:
    """Return the attempts of a run, the oldest first, with what they said."""
    found = tx.all(
        "SELECT a.claim, a.number, a.node, a.outcome, a.reason, a.begun_at, a.ended_at,"
        " a.next_due_at, s.outcome AS said, s.reason AS why, s.error, s.logs, s.dropped"
        " FROM attempt a LEFT JOIN job_attempt s ON s.work = a.work AND s.claim = a.claim"
        " WHERE a.work = :work ORDER BY a.claim",
        {"work": run.work},
    )
    return [
        RunAttempt(
            claim=row.claim,
            number=row.number,
            node=row.node,
            outcome=row.said or row.outcome,
            reason=row.why or row.reason,
            begun_at=row.begun_at,
            ended_at=row.ended_at,
            next_due_at=row.next_due_at,
            error=None if row.error is None else bytes(row.error).decode(),
            logs=()
            if row.logs is None
            else tuple(bytes(row.logs).decode().split("\n")),
            dropped=row.dropped or 0,
        )
        for row in found
    ]


def packages(tx: Tx, *, tenant: TenantId) -> list[PackageView]:
    """Return every package that ever declared a job of the tenant, by name."""
    found = tx.all(
        "SELECT p.name, p.installed, p.seen_at, p.uninstalled_at, count(*) AS jobs"
        " FROM package p JOIN job j ON j.package = p.name"
        " WHERE j.tenant = :tenant AND j.deleted_at IS NULL"
        " GROUP BY p.name, p.installed, p.seen_at, p.uninstalled_at ORDER BY p.name",
        {"tenant": tenant},
    )
    return [
        PackageView(
            name=row.name,
            installed=bool(row.installed),
            seen_at=row.seen_at,
            uninstalled_at=row.uninstalled_at,
            jobs=row.jobs,
        )
        for row in found
    ]


def planned(
    tx: Tx, *, tenant: TenantId, declared: Mapping[Coordinate, Definition]
) -> Planned:
    """Compare what a release declares with the catalogue; writes nothing.

    A job that the release does not declare would be orphaned, unless another node that
    is open declares it when that one has ended.
    """
    known = {
        Coordinate(package=row[0], name=row[1]): row[2]
        for row in tx.all(
            "SELECT package, name, job FROM job_spelling WHERE tenant = :tenant"
            " AND package <> :env",
            {"tenant": tenant, "env": ENV},
        )
    }
    found = plan(known, {c: d.formerly for c, d in declared.items()})
    seen = {
        row[0]: row[1]
        for row in tx.all(
            "SELECT id, definition FROM job WHERE tenant = :tenant"
            " AND deleted_at IS NULL AND code = id",
            {"tenant": tenant},
        )
    }
    names = {
        row[0]: f"{row[1] or '?'}:{row[2]}"
        for row in tx.all(
            "SELECT id, package, name FROM job WHERE tenant = :tenant",
            {"tenant": tenant},
        )
    }
    ids = dict(found.ids)
    changed = [c for c, id_ in ids.items() if seen.get(id_) != declared[c].hash()]
    moved = {now for _, now in found.renamed}
    return Planned(
        added=tuple(str(each) for each in found.added),
        changed=tuple(str(each) for each in sorted(set(changed) - moved)),
        renamed=tuple((str(was), str(now)) for was, now in found.renamed),
        orphaned=tuple(sorted(names[i] for i in seen.keys() - set(ids.values()))),
        same=tuple(str(each) for each in sorted(ids.keys() - set(changed) - moved)),
    )
