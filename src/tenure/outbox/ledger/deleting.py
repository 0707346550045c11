"""Deleting endpoints and applications: open work ends with that reason, in batches.

Theory. One transaction closes the lane, marks the row and ends what the lane's own
indexes show: rows that are due, claimed or in line. Rows due later, parked or accepted
meanwhile are found through the endpoint's deliveries, from a place that is kept on the
endpoint's row: the periodic pass goes on from there, on any node, until it has seen
each delivery once (`cleared_to` is then the last word, "~").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from tenure.errors import NotFound
from tenure.ids import LaneId, TenantId, WorkId
from tenure.limits import CANCEL_BATCH_ROWS
from tenure.outbox import tables
from tenure.outbox.ledger.applications import (
    bump_config,
    find_application,
    mark_application_deleted,
)
from tenure.outbox.ledger.endpoints import lock_endpoint
from tenure.outbox.ledger.purging import plan_purge
from tenure.store import claims, lanes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.store.tx import Tx

_T: Final = tables.endpoint
DELETED: Final = "endpoint deleted"
APPLICATION_DELETED: Final = "application deleted"
CLEARED: Final = "~"
"""Stands behind every message id: all deliveries were looked at."""


def delete_endpoint(tx: Tx, tenant: TenantId, app_ref: str, ref: str) -> None:
    """Delete an endpoint: its lane closes, its open work ends with that reason.

    A send in flight finishes and is recorded; history stays. What this transaction
    does not reach is ended by `clear_deleted` and `sweep_deleted_lanes`.
    """
    app = find_application(tx, tenant, app_ref)
    stored = lock_endpoint(tx, tenant, app.id, ref)
    _delete_lane(tx, stored.lane, DELETED, CANCEL_BATCH_ROWS)
    tx.run(_marked_deleted(tx.now).where(_T.c.id == stored.id))
    bump_config(tx, app.id)
    _clear(tx, stored.id, "", CANCEL_BATCH_ROWS)


def delete_application(tx: Tx, tenant: TenantId, app_ref: str) -> None:
    """Delete an application with all its endpoints, as `delete_endpoint` does.

    A background task empties its payloads; history goes by its retention. Raises
    NotFound.
    """
    app = find_application(tx, tenant, app_ref)
    live = (_T.c.app == app.id, _T.c.deleted_at.is_(None))
    left = CANCEL_BATCH_ROWS  # of all lanes together: one transaction stays small
    for lane in tx.all(sa.select(_T.c.lane).where(*live).order_by(_T.c.lane)):
        left -= _delete_lane(tx, lane[0], APPLICATION_DELETED, left)
    if not mark_application_deleted(tx, app):
        raise NotFound(f"application {app_ref[:100]!r} was not found")
    plan_purge(tx, tenant, app.id)
    # One that was created between the two statements; its lane is found by the sweep.
    tx.run(_marked_deleted(tx.now).where(*live))


def sweep_deleted_lanes(tx: Tx, limit: int = CANCEL_BATCH_ROWS) -> int:
    """End up to `limit` due rows of deleted endpoints; return how many were ended.

    Such rows are left when a deletion met more than one batch, or a message was
    accepted while it committed. Run it now and then, at once again while it ends any.
    """
    tx.run(
        "UPDATE lane SET state = 'deleted', reason = :reason, version = version + 1"
        " WHERE state <> 'deleted' AND kind = 'delivery' AND id IN"
        " (SELECT lane FROM endpoint WHERE deleted_at IS NOT NULL"
        " AND cleared_to <> '~')",
        {"reason": DELETED},
    )
    found = tx.all(
        "SELECT w.id, l.reason FROM lane l JOIN work w ON w.lane = l.id"
        " AND w.phase = 'due' WHERE l.state = 'deleted' AND l.kind = 'delivery'"
        " LIMIT :limit",
        {"limit": limit},
    )
    by_reason: dict[str, list[WorkId]] = {}
    for row in found:
        by_reason.setdefault(row.reason or DELETED, []).append(WorkId(row.id))
    return sum(len(claims.cancel(tx, ids, reason)) for reason, ids in by_reason.items())


def clear_deleted(tx: Tx, limit: int = CANCEL_BATCH_ROWS) -> int:
    """Look at up to `limit` deliveries of a deleted endpoint, from where it stopped.

    Ends those that are still open. Returns how many were looked at; 0 says that no
    deleted endpoint is left to look at.
    """
    skip = " FOR NO KEY UPDATE SKIP LOCKED" if tx.dialect == "postgresql" else ""
    found = tx.first(
        "SELECT e.id, e.cleared_to FROM endpoint e WHERE e.deleted_at IS NOT NULL"
        f" AND e.cleared_to <> '~' ORDER BY e.id LIMIT 1{skip}"
    )
    if found is None:
        return 0
    return max(1, _clear(tx, found.id, found.cleared_to, limit))


def remove_endpoints(
    tx: Tx, place: str, before_at: int, limit: int
) -> tuple[int, str | None]:
    """Remove deleted endpoints among the next `limit`, with lane, queues and archive.

    Only those deleted before an instant (µs) that no delivery refers to. Returns how
    many rows went, and the id to go on after; None when all were looked at. A long
    archive goes first, `limit` rows at a time.
    """
    upto = _upto(tx, "endpoint", place, limit)
    if upto is None:
        return 0, None
    found = tx.all(
        "SELECT e.id, e.lane FROM endpoint e WHERE e.id > :place AND e.id <= :upto"
        " AND e.deleted_at <= :before AND e.cleared_to = '~'"
        " AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.endpoint = e.id)"
        " AND NOT EXISTS (SELECT 1 FROM order_line o WHERE o.lane = e.lane)",
        {"place": place, "upto": upto, "before": before_at},
    )
    if found:
        gone = _remove_archives(tx, [row.id for row in found], limit)
        if gone == limit:
            return gone, place
        asked, params = tx.rows("b", {"lane": "bigint"}, [(row.lane,) for row in found])
        for table, column in (
            ("order_head", "lane"),
            ("lane", "id"),
            ("endpoint", "lane"),
        ):
            tx.run(
                f"DELETE FROM {table} WHERE {column} IN (SELECT b.lane FROM {asked})",
                params,
            )
    return len(found), upto


def remove_applications(
    tx: Tx, place: str, before_at: int, limit: int
) -> tuple[int, str | None]:
    """Remove deleted applications among the next `limit`, with their lane group.

    Only those deleted before an instant (µs) to which no endpoint, message, task or key
    refers. Returns how many went, and the id to go on after; None = all were looked at.
    """
    upto = _upto(tx, "application", place, limit)
    if upto is None:
        return 0, None
    referring = " ".join(
        f"AND NOT EXISTS (SELECT 1 FROM {table} r WHERE r.app = a.id)"
        for table in ("endpoint", "message", "task", "api_key")
    )
    found = tx.all(
        "SELECT a.id, a.lane_group FROM application a WHERE a.id > :place"
        f" AND a.id <= :upto AND a.deleted_at <= :before {referring}",
        {"place": place, "upto": upto, "before": before_at},
    )
    if found:
        asked, params = tx.rows(
            "b",
            {"id": "text", "own": "bigint"},
            [(row.id, row.lane_group) for row in found],
        )
        for table, named in (("lane_group", "own"), ("application", "id")):
            tx.run(
                f"DELETE FROM {table} WHERE id IN (SELECT b.{named} FROM {asked})",
                params,
            )
    return len(found), upto


def _upto(tx: Tx, table: str, place: str, limit: int) -> str | None:
    """Return the last of the next `limit` ids after a place; None = there is none."""
    last: str | None = tx.scalar(
        f"SELECT max(x.id) FROM (SELECT id FROM {table} WHERE id > :place"
        " ORDER BY id LIMIT :limit) x",
        {"place": place, "limit": limit},
    )
    return last


def _remove_archives(tx: Tx, endpoints: Sequence[str], limit: int) -> int:
    asked, params = tx.rows("b", {"id": "text"}, [(id_,) for id_ in endpoints])
    return tx.run(
        "DELETE FROM archived WHERE (endpoint, message) IN (SELECT a.endpoint,"
        f" a.message FROM {asked} JOIN archived a ON a.endpoint = b.id LIMIT :limit)",
        {**params, "limit": limit},
    )


def _clear(tx: Tx, endpoint: str, place: str, limit: int) -> int:
    """End open deliveries above a message id and keep how far that got."""
    seen = tx.all(
        "SELECT d.message, d.work FROM delivery d WHERE d.endpoint = :endpoint"
        " AND d.message > :place ORDER BY d.message LIMIT :limit",
        {"endpoint": endpoint, "place": place, "limit": limit},
    )
    asked, params = tx.rows("b", {"id": "text"}, [(row.work,) for row in seen])
    still = tx.all(
        f"SELECT w.id FROM {asked} JOIN work w ON w.id = b.id"
        " WHERE w.state IN ('ready', 'parked')",
        params,
    )
    reason = tx.scalar(
        "SELECT l.reason FROM endpoint e JOIN lane l ON l.id = e.lane"
        " WHERE e.id = :endpoint",
        {"endpoint": endpoint},
    )
    claims.cancel(tx, [WorkId(row.id) for row in still], reason or DELETED)
    reached = seen[-1].message if len(seen) == limit else CLEARED
    tx.run(sa.update(_T).where(_T.c.id == endpoint).values(cleared_to=reached))
    return len(seen)


def _delete_lane(tx: Tx, lane: int, reason: str, limit: int) -> int:
    """Close a lane and end up to `limit` rows of it; return how many."""
    lanes.change_lane(tx, LaneId(lane), state="deleted", reason=reason)
    return claims.cancel_lane(tx, LaneId(lane), reason, limit) if limit > 0 else 0


def _marked_deleted(now: int) -> sa.Update:
    return sa.update(_T).values(deleted_at=now, updated_at=now)
