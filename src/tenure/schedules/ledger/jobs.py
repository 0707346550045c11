"""Job rows: found by id, coordinate, key or name, and read as people see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from tenure.errors import NameAmbiguous, NotFound
from tenure.ids import JobId, Prefix, TenantId, is_id
from tenure.naming.coordinates import Coordinate, parse_coordinate
from tenure.naming.resolving import Ambiguous, Resolved, resolve
from tenure.schedules.model import Definition, Job

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tenure.store.tx import AnyRow, Tx

__all__ = [
    "JobRow",
    "body_of",
    "fetch",
    "find",
    "list_jobs",
    "lock",
    "read",
    "shown",
    "state_of",
]

_COLUMNS: Final = (
    "id",
    "tenant",
    "package",
    "name",
    "key",
    "code",
    "lane",
    "definition",
    "body",
    "overrides",
    "nominal_at",
    "due_at",
    "fired_to",
    "edited_at",
    "paused_at",
    "paused_by",
    "paused_note",
    "deleted_at",
    "created_at",
    "version",
)
COLUMNS: Final = ", ".join(f"j.{name}" for name in _COLUMNS)


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job as stored; see `tables.job`."""

    id: JobId
    tenant: TenantId
    package: str | None
    name: str
    key: str | None
    code: JobId
    lane: int
    definition: str | None
    body: str
    overrides: str
    nominal_at: int | None
    due_at: int | None
    fired_to: int | None
    edited_at: int
    paused_at: int | None
    paused_by: str | None
    paused_note: str | None
    deleted_at: int | None
    created_at: int
    version: int


def as_row(row: Sequence[Any]) -> JobRow:
    """Build a row from the columns of `COLUMNS`, in order."""
    return JobRow(**dict(zip(_COLUMNS, row, strict=False)))


def body_of(row: JobRow) -> Definition:
    """Return what is in force. Raises msgspec.MsgspecError for what it cannot read."""
    return msgspec.json.decode(row.body, type=Definition)


def lock(tx: Tx, ids: Iterable[str]) -> dict[str, JobRow]:
    """Lock jobs in the order of their ids and return them as they are now."""
    wanted = sorted(set(ids))
    if not wanted:
        return {}
    asked, params = tx.rows("b", {"id": "text"}, [(id_,) for id_ in wanted])
    locking = " FOR NO KEY UPDATE OF j" if tx.dialect == "postgresql" else ""
    found = tx.all(
        f"SELECT {COLUMNS} FROM {asked} JOIN job j ON j.id = b.id ORDER BY j.id{locking}",
        params,
    )
    return {row[0]: as_row(row) for row in found}


def fetch(tx: Tx, id_: str) -> JobRow:
    """Return a job as this snapshot shows it. Raises NotFound."""
    found = tx.first(f"SELECT {COLUMNS} FROM job j WHERE j.id = :id", {"id": id_})
    if found is None:
        raise NotFound(f"job {id_} does not exist")
    return as_row(found)


def find(tx: Tx, tenant: TenantId, ref: str, *, keys: bool = False) -> JobId:
    """Return the id of the job that `ref` names: id, `package:name`, or a bare name.

    With `keys` a bare name may be a job's key. Raises NotFound, and NameAmbiguous with
    every candidate where several packages hold the name.
    """
    if not (ref.isascii() and ref.isprintable()):
        return _existing(None, ref)
    if is_id(ref, Prefix.JOB):
        found = tx.scalar(
            "SELECT id FROM job WHERE id = :id AND tenant = :tenant"
            " AND deleted_at IS NULL",
            {"id": ref, "tenant": tenant},
        )
        return _existing(found, ref)
    if ":" in ref:
        return _by_coordinate(tx, tenant, ref)
    if keys:
        found = tx.scalar(
            "SELECT id FROM job WHERE tenant = :tenant AND key = :key",
            {"tenant": tenant, "key": ref},
        )
        if found is not None:
            return JobId(found)
    return _by_name(tx, tenant, ref)


def _existing(found: str | None, ref: str) -> JobId:
    if found is None:
        raise NotFound(
            f"no job is named {ref!r}: `tenure jobs list` shows those there are"
        )
    return JobId(found)


def _by_coordinate(tx: Tx, tenant: TenantId, ref: str) -> JobId:
    try:
        coordinate = parse_coordinate(ref, reserved_ok=True)
    except ValueError as error:
        raise NotFound(str(error)) from None
    found = tx.scalar(
        "SELECT s.job FROM job_spelling s JOIN job j ON j.id = s.job"
        " WHERE s.tenant = :tenant AND s.package = :package AND s.name = :name"
        " AND j.deleted_at IS NULL",
        {"tenant": tenant, "package": coordinate.package, "name": coordinate.name},
    )
    return _existing(found, ref)


def _by_name(tx: Tx, tenant: TenantId, name: str) -> JobId:
    holders = tx.all(
        "SELECT j.package, j.id FROM job j WHERE j.tenant = :tenant AND j.name = :name"
        " AND j.deleted_at IS NULL AND j.package IS NOT NULL",
        {"tenant": tenant, "name": name},
    )
    ids = {Coordinate(package=row[0], name=name): row[1] for row in holders}
    match resolve(name, ids):
        case Resolved(coordinate=coordinate):
            return JobId(ids[coordinate])
        case Ambiguous(candidates=candidates):
            named = ", ".join(str(each) for each in candidates)
            raise NameAmbiguous(
                f"{name!r} is the name of several jobs: say which of {named}"
            )
        case _:
            return _existing(None, name)


DECLARED: Final = (
    "EXISTS (SELECT 1 FROM job_declared d JOIN node n ON n.id = d.node"
    " WHERE d.job = j.code AND n.state = 'open')"
)
"""Whether an open node has the code of the job `j`."""
_COUNTS: Final = (
    "succeeded",
    "degraded",
    "failed",
    "timed_out",
    "cancelled",
    "skipped",
    "failing",
)
_SHOWN: Final = (
    f"SELECT {COLUMNS}, {DECLARED} AS declared, p.installed, c.last_outcome,"
    f" c.last_ended_at, {', '.join(f'c.{name} AS n_{name}' for name in _COUNTS)}"
    " FROM job j LEFT JOIN package p ON p.name = j.package"
    " LEFT JOIN job_counter c ON c.job = j.id"
)


def read(tx: Tx, tenant: TenantId, id_: JobId) -> Job:
    """Return one job. Raises NotFound."""
    row = tx.first(
        f"{_SHOWN} WHERE j.id = :id AND j.tenant = :tenant",
        {"id": id_, "tenant": tenant},
    )
    if row is None:
        _existing(None, id_)
        raise AssertionError  # pragma: no cover - the line above raises
    return shown(row)


def list_jobs(
    tx: Tx,
    tenant: TenantId,
    *,
    after: str = "",
    limit: int = 50,
    package: str | None = None,
    name: str | None = None,
    order: Literal["ascending", "descending"] = "ascending",
) -> list[Job]:
    """Return jobs by id, one page; `package` and `name` narrow it."""
    wanted = ["j.tenant = :tenant", "j.deleted_at IS NULL"]
    params: dict[str, Any] = {"tenant": tenant, "limit": limit}
    if after:
        wanted.append("j.id > :after" if order == "ascending" else "j.id < :after")
        params["after"] = after
    for column, value in (("package", package), ("name", name)):
        if value is not None:
            wanted.append(f"j.{column} = :{column}")
            params[column] = value
    way = "ASC" if order == "ascending" else "DESC"
    found = tx.all(
        f"{_SHOWN} WHERE {' AND '.join(wanted)} ORDER BY j.id {way} LIMIT :limit",
        params,
    )
    return [shown(row) for row in found]


def shown(row: AnyRow) -> Job:
    """Make of a row of `_SHOWN` what people see."""
    stored = as_row(row)
    body = body_of(stored)
    more: Any = row
    return Job(
        id=stored.id,
        tenant=stored.tenant,
        package=stored.package,
        name=stored.name,
        key=stored.key,
        code=stored.code,
        lane=stored.lane,  # pyright: ignore[reportArgumentType]
        definition=body,
        state=state_of(
            stored,
            scheduled=body.schedule is not None,
            declared=bool(more.declared),
            installed=more.installed is None or bool(more.installed),
        ),
        nominal_at=stored.nominal_at,
        due_at=stored.due_at,
        fired_to=stored.fired_to,
        edited_at=stored.edited_at,
        paused_at=stored.paused_at,
        paused_by=stored.paused_by,
        paused_note=stored.paused_note,
        created_at=stored.created_at,
        version=stored.version,
        overridden=stored.overrides != "{}",
        counts={name: getattr(more, f"n_{name}") or 0 for name in _COUNTS},
        last_outcome=more.last_outcome,
        last_ended_at=more.last_ended_at,
    )


def state_of(row: JobRow, *, scheduled: bool, declared: bool, installed: bool) -> str:
    """Return the one word that says why a job does or does not fire."""
    if row.deleted_at is not None:
        return "deleted"
    if not installed:
        return "uninstalled"
    if not declared:
        return "orphaned"
    if row.paused_at is not None:
        return "paused"
    if not scheduled:
        return "on demand"
    return "never" if row.nominal_at is None else "active"
