"""The catalogue: which job each declared coordinate is, and what is in force for it.

Theory. A coordinate leads to a job's id through the spellings, which only grow; so every
release that ever knew the job finds the same id, and with it the same windows. What is
in force is the newest first-seen definition among those that an open node declares: a
node of an old release that restarts in the middle of a roll-out changes nothing, and
when the last new node has gone, the old definition is in force again.

Whoever writes here holds the catalogue's one lock, so that two nodes that start together
agree; a tick holds the job's own row, and so meets an edit before or after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.clock import US
from tenure.errors import ConfigInvalid
from tenure.ids import JobId, LaneId, NodeId, TenantId, new_job_id
from tenure.naming.coordinates import BUILTIN, ENV, Coordinate
from tenure.naming.keys import Keyed, allot
from tenure.naming.spellings import plan
from tenure.schedules import tables
from tenure.schedules.calendar.model import decode
from tenure.schedules.ledger import jobs
from tenure.schedules.ledger.runs import KIND
from tenure.schedules.ledger.ticking import fire, restart
from tenure.schedules.model import (
    DEFINITION_FORMAT,
    Definition,
    JobSettings,
    Overlap,
)
from tenure.store import lanes, schema
from tenure.store.tx import ColumnType

if TYPE_CHECKING:
    from tenure.schedules.ledger.jobs import JobRow
    from tenure.store.tx import Tx

__all__ = [
    "STALE",
    "Enrolled",
    "allot_keys",
    "effective",
    "enrol",
    "groups_served",
    "lock_catalogue",
    "make_job",
    "refresh",
    "settle_lane",
]

_LOCK: Final = "job_catalogue"
_DECLARED: Final[Mapping[str, ColumnType]] = {
    "node": "bigint",
    "job": "text",
    "hash": "text",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """What a node has learned by enrolling: the ids of its jobs, and what it serves."""

    ids: Mapping[Coordinate, JobId]
    groups: frozenset[str] = frozenset()
    added: Sequence[Coordinate] = ()
    renamed: Sequence[tuple[str, Coordinate]] = ()

    @property
    def serves(self) -> frozenset[str]:
        """What lanes may need that this node then serves."""
        return frozenset(f"job:{id_}" for id_ in self.ids.values()) | self.groups


def lock_catalogue(tx: Tx) -> None:
    """Wait for whoever changes the catalogue, and keep others out until the commit."""
    params = {"name": _LOCK, "now": tx.now, "value": b"1"}
    tx.run(
        "INSERT INTO setting (name, value, updated_at) VALUES (:name, :value, :now)"
        " ON CONFLICT DO NOTHING",
        params,
    )
    tx.run("UPDATE setting SET updated_at = :now WHERE name = :name", params)


def enrol(
    tx: Tx, node: NodeId, tenant: TenantId, declared: Mapping[Coordinate, Definition]
) -> Enrolled:
    """Say what a node declares; return the job of each coordinate.

    Repeating it changes nothing. Raises ConfigInvalid where former names would lead two
    jobs together.
    """
    if not declared:
        _declare(tx, node, {})
        refresh(tx)
        return Enrolled(ids={})
    lock_catalogue(tx)
    _install(tx, {coordinate.package for coordinate in declared})
    known = _spellings(tx, tenant)
    try:
        planned = plan(known, {c: d.formerly for c, d in declared.items()})
    except ValueError as error:
        raise ConfigInvalid(str(error)) from None
    ids: dict[Coordinate, JobId] = {c: JobId(i) for c, i in planned.ids.items()}
    for coordinate in planned.added:
        ids[coordinate] = make_job(tx, tenant, declared[coordinate])
    _spell(tx, tenant, {c: i for c, i in ids.items() if c not in known})
    hashes = {ids[c]: d.hash() for c, d in declared.items()}
    _define(tx, {ids[c]: d for c, d in declared.items()})
    _declare(tx, node, hashes)
    refresh(tx)
    allot_keys(tx, tenant, {c.name for c in declared})
    return Enrolled(
        ids=ids,
        groups=groups_served(tx, tenant, node),
        added=planned.added,
        renamed=[(str(was), now) for was, now in planned.renamed],
    )


def _install(tx: Tx, names: set[str]) -> None:
    """Say that packages are there; what had been uninstalled starts afresh."""
    tx.insert(
        tables.package,
        [{"name": name, "seen_at": tx.now} for name in sorted(names)],
        on_conflict="nothing",
    )
    asked, params = tx.rows("b", {"name": "text"}, [(n,) for n in sorted(names)])
    back = tx.all(
        "UPDATE package SET installed = true, uninstalled_at = NULL"
        f" WHERE name IN (SELECT b.name FROM {asked}) AND NOT installed RETURNING name",
        params,
    )
    for row in back:
        found = tx.all(
            "SELECT id FROM job WHERE package = :package AND deleted_at IS NULL",
            {"package": row.name},
        )
        for job in jobs.lock(tx, [each[0] for each in found]).values():
            _rearm(tx, job, jobs.body_of(job))


def _spellings(tx: Tx, tenant: TenantId) -> dict[Coordinate, str]:
    found = tx.all(
        "SELECT s.package, s.name, s.job FROM job_spelling s WHERE s.tenant = :tenant"
        " AND s.package <> :env",
        {"tenant": tenant, "env": ENV},
    )
    return {Coordinate(package=row[0], name=row[1]): row[2] for row in found}


def _spell(tx: Tx, tenant: TenantId, ids: Mapping[Coordinate, JobId]) -> None:
    tx.insert(
        tables.job_spelling,
        [
            {
                "tenant": tenant,
                "package": coordinate.package,
                "name": coordinate.name,
                "job": id_,
                "since_at": tx.now,
            }
            for coordinate, id_ in sorted(ids.items())
        ],
        on_conflict="nothing",
    )


def make_job(
    tx: Tx, tenant: TenantId, body: Definition, *, code: JobId | None = None
) -> JobId:
    """Insert a job with its lane and counters; the catalogue's lock is held.

    `code` is the job whose function it runs, for one that is made at run time. It has
    no spelling and no key yet.
    """
    id_ = new_job_id()
    nominal, due = _first(body, id_, tx.now)
    tx.insert(
        tables.job,
        [
            {
                "id": id_,
                "tenant": tenant,
                "package": body.package,
                "name": body.name,
                "code": code or id_,
                "lane": _lane_for(tx, tenant, id_, code or id_, body.settings),
                "definition": body.hash(),
                "body": body.encode(),
                "nominal_at": nominal,
                "due_at": due,
                "edited_at": tx.now,
                "created_at": tx.now,
            }
        ],
    )
    tx.insert(tables.job_counter, [{"job": id_}])
    return id_


def _first(body: Definition, id_: str, after: int) -> tuple[int | None, int | None]:
    if body.schedule is None:
        return None, None
    return restart(decode(body.schedule), id_, after)


def _define(tx: Tx, bodies: Mapping[JobId, Definition]) -> None:
    tx.insert(
        tables.job_definition,
        [
            {
                "job": id_,
                "hash": body.hash(),
                "body": body.encode(),
                "first_seen_at": tx.now,
            }
            for id_, body in sorted(bodies.items())
        ],
        on_conflict="nothing",
    )


def _declare(tx: Tx, node: NodeId, hashes: Mapping[JobId, str]) -> None:
    """Write what this node declares, and forget what nodes did that are closed."""
    tx.run(
        "DELETE FROM job_declared WHERE node = :node OR node IN"
        " (SELECT n.id FROM node n WHERE n.state = 'closed')",
        {"node": node},
    )
    rows = [(node, id_, hash_) for id_, hash_ in sorted(hashes.items())]
    tx.insert_records(tables.job_declared, tuple(_DECLARED), rows)


# --- what is in force ---------------------------------------------------------------

STALE: Final = (
    "SELECT job, hash FROM (SELECT d.job, d.hash, row_number() OVER"
    " (PARTITION BY d.job ORDER BY f.first_seen_at DESC, f.hash) AS place"
    " FROM job_declared d JOIN node n ON n.id = d.node AND n.state = 'open'"
    " JOIN job_definition f ON f.job = d.job AND f.hash = d.hash) AS c"
    " WHERE c.place = 1 AND EXISTS (SELECT 1 FROM job j WHERE j.id = c.job"
    " AND (j.definition IS NULL OR j.definition <> c.hash)) ORDER BY job"
)


def refresh(tx: Tx) -> int:
    """Let the newest first-seen definition of open nodes be in force for each job.

    Returns how many jobs changed. What is due under the old calendar fires first, so an
    edit neither loses a window nor fires one twice.
    """
    found = {row[0]: row[1] for row in tx.all(STALE)}
    if not found:
        return 0
    locked = jobs.lock(tx, found)
    # Decided again under the locks: another node may have done it meanwhile.
    found = {row[0]: row[1] for row in tx.all(STALE)}
    changed = 0
    for id_, row in locked.items():
        if id_ in found:
            changed += _adopt(tx, row, found[id_])
    return changed


def _adopt(tx: Tx, row: JobRow, hash_: str) -> bool:
    text = tx.scalar(
        "SELECT body FROM job_definition WHERE job = :job AND hash = :hash",
        {"job": row.id, "hash": hash_},
    )
    try:
        said = msgspec.json.decode(text, type=Definition)
    except msgspec.MsgspecError:
        return False  # of a newer release, whose nodes will say so
    if said.format > DEFINITION_FORMAT:
        return False
    body = effective(said, row.overrides)
    tx.run(
        "UPDATE job SET definition = :hash, package = :package, name = :name"
        " WHERE id = :id",
        {"id": row.id, "hash": hash_, "package": said.package, "name": said.name},
    )
    change(tx, row, body)
    return True


def change(tx: Tx, row: JobRow, body: Definition) -> None:
    """Put a body in force for a locked job: its lane, and its calendar if that changed."""
    before = jobs.body_of(row)
    rescheduled = before.schedule != body.schedule
    due = row.due_at is not None and row.due_at <= tx.now
    if rescheduled and due:
        fire(tx, [row])
        row = jobs.lock(tx, [row.id])[row.id]
    tx.run(
        "UPDATE job SET body = :body, version = version + 1 WHERE id = :id",
        {"id": row.id, "body": body.encode()},
    )
    if rescheduled:
        _rearm(tx, row, body)
    if before.settings != body.settings:
        settle_lane(tx, row, body.settings)


def _rearm(tx: Tx, row: JobRow, body: Definition) -> None:
    """Point a locked job at its next window from now on: an edit."""
    after = max(row.fired_to or tx.now, tx.now)
    nominal, due = _first(body, row.id, after)
    if row.paused_at is not None:
        due = None
    tx.run(
        "UPDATE job SET nominal_at = :nominal, due_at = :due, edited_at = :now"
        " WHERE id = :id",
        {"id": row.id, "nominal": nominal, "due": due, "now": tx.now},
    )


def effective(said: Definition, overrides: str) -> Definition:
    """Return a definition with an operator's changes laid over it."""
    if overrides == "{}":
        return said
    laid: dict[str, Any] = msgspec.json.decode(overrides)
    merged: dict[str, Any] = msgspec.to_builtins(said)
    settings = {**merged.pop("settings", {}), **laid.pop("settings", {})}
    return msgspec.convert({**merged, **laid, "settings": settings}, type=Definition)


# --- lanes --------------------------------------------------------------------------


def _limits(settings: JobSettings) -> dict[str, Any]:
    """Return the columns of a lane that settings decide."""
    alone = settings.overlap is not Overlap.ALLOW and settings.group is None
    return {
        "deadline_us": round(settings.timeout_seconds * US),
        "concurrency": settings.concurrency or (1 if alone else None),
        "rate_per_second": settings.rate_per_second,
    }


def _group(tx: Tx, tenant: TenantId) -> int:
    """Return the fair-share group of a tenant's jobs, made at the first of them."""
    name = f"job_lanes:{tenant}"
    found = tx.scalar("SELECT value FROM setting WHERE name = :name", {"name": name})
    if found is not None:
        return int(bytes(found))
    group = lanes.add_group(tx, tenant)
    tx.insert(
        schema.setting,
        [{"name": name, "value": str(group).encode(), "updated_at": tx.now}],
    )
    return group


def _lane_for(
    tx: Tx, tenant: TenantId, id_: JobId, code: JobId, settings: JobSettings
) -> LaneId:
    if settings.group is not None:
        return _shared(tx, tenant, settings.group, settings)
    limits = _limits(settings)
    return lanes.add_lane(
        tx,
        group=_group(tx, tenant),
        kind=KIND,
        tenant=tenant,
        subject=id_,
        needs=f"job:{code}",
        deadline_us=limits.pop("deadline_us"),
        settings=limits,
    )


def _shared(tx: Tx, tenant: TenantId, name: str, settings: JobSettings) -> LaneId:
    """Return the lane of a concurrency group; the newest job's limits hold for it."""
    found = tx.scalar(
        "SELECT lane FROM job_group WHERE tenant = :tenant AND name = :name",
        {"tenant": tenant, "name": name},
    )
    limits = _limits(settings)
    if found is None:
        lane = lanes.add_lane(
            tx,
            group=_group(tx, tenant),
            kind=KIND,
            tenant=tenant,
            subject=name,
            needs=f"jobs:{tenant}:{name}",
            deadline_us=limits.pop("deadline_us"),
            settings=limits,
        )
        tx.insert(tables.job_group, [{"tenant": tenant, "name": name, "lane": lane}])
        return lane
    row = lanes.lane_row(tx, found)
    assert row is not None, "a group names its lane"
    limits["deadline_us"] = max(limits["deadline_us"], row.deadline_us)
    if any(getattr(row, name) != value for name, value in limits.items()):
        lanes.change_lane(tx, found, **limits)
    return LaneId(found)


def settle_lane(tx: Tx, row: JobRow, settings: JobSettings) -> None:
    """Let a locked job's new runs queue where its settings say."""
    own = lanes.lane_row(tx, LaneId(row.lane))
    assert own is not None, "a job names its lane"
    if settings.group is None and own.subject == row.id:
        lanes.change_lane(tx, LaneId(row.lane), **_limits(settings))
        return
    lane = _lane_for(tx, row.tenant, row.id, row.code, settings)
    tx.run("UPDATE job SET lane = :lane WHERE id = :id", {"id": row.id, "lane": lane})


def groups_served(tx: Tx, tenant: TenantId, node: NodeId) -> frozenset[str]:
    """Return the shared lanes whose every job this node has the code of."""
    found = tx.all(
        "SELECT g.name FROM job_group g WHERE g.tenant = :tenant AND NOT EXISTS"
        " (SELECT 1 FROM job j WHERE j.lane = g.lane AND j.deleted_at IS NULL"
        f" AND {jobs.DECLARED}"
        " AND NOT EXISTS (SELECT 1 FROM job_declared m WHERE m.job = j.code"
        " AND m.node = :node))",
        {"tenant": tenant, "node": node},
    )
    return frozenset(f"jobs:{tenant}:{row[0]}" for row in found)


# --- keys ---------------------------------------------------------------------------


def allot_keys(tx: Tx, tenant: TenantId, names: set[str]) -> None:
    """Give jobs of these names their keys; the catalogue's lock is held."""
    asked, params = tx.rows("b", {"name": "text"}, [(name,) for name in sorted(names)])
    found = tx.all(
        "SELECT j.id, j.package, j.name, j.key, p.installed,"
        f" {jobs.DECLARED} AS declared"
        f" FROM {asked} JOIN job j ON j.name = b.name"
        " LEFT JOIN package p ON p.name = j.package"
        " WHERE j.tenant = :tenant AND j.deleted_at IS NULL",
        {**params, "tenant": tenant},
    )
    rows = [
        Keyed(
            id=row.id,
            package=row.package,
            name=row.name,
            key=row.key,
            declared=bool(row.declared) or row.package in {BUILTIN, ENV},
            installed=row.installed is None or bool(row.installed),
        )
        for row in found
    ]
    keys = allot(rows)
    changed = {row.id: keys.get(row.id) for row in rows if keys.get(row.id) != row.key}
    if not changed:
        return
    given, params = tx.rows("b", {"id": "text"}, [(id_,) for id_ in sorted(changed)])
    tx.run(f"UPDATE job SET key = NULL WHERE id IN (SELECT b.id FROM {given})", params)
    given, params = tx.rows(
        "b",
        {"id": "text", "key": "text"},
        sorted((i, k) for i, k in changed.items() if k),
    )
    tx.run(f"UPDATE job SET key = b.key FROM {given} WHERE job.id = b.id", params)
