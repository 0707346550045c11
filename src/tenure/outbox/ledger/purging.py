"""Background tasks: payloads of deleted applications go, in steps with progress.

A task is written by the call that needs it, in the same transaction. It waits until the
open work of every endpoint has been ended (`deleting`), then empties payloads along the
application's messages. Histories stay until retention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from tenure.errors import NotFound
from tenure.ids import AppId, Prefix, TaskId, TenantId, new_task_id
from tenure.limits import RETENTION_ROWS
from tenure.outbox import tables
from tenure.outbox.ledger import paging
from tenure.outbox.model import Order, Page, PageIn
from tenure.outbox.rules import check_page, findable

if TYPE_CHECKING:
    from tenure.store.tx import Tx

_T: Final = tables.task
PURGE: Final = "application.purge_content"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A background task: rows it has done, and when it ended (µs), if it did."""

    id: TaskId
    kind: str
    app: AppId
    done: int
    created_at: int
    updated_at: int
    finished_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """What one step emptied, and the task after which to go on; None = no more."""

    count: int
    place: str | None


def plan_purge(tx: Tx, tenant: TenantId, app: AppId) -> TaskId:
    """Leave a task that empties the payloads of a deleted application."""
    task = new_task_id()
    row = {
        "id": task,
        "tenant": tenant,
        "kind": PURGE,
        "app": app,
        "created_at": tx.now,
        "updated_at": tx.now,
    }
    tx.insert(_T, [row])
    return task


def purge_next(tx: Tx, place: str) -> Purged:
    """Do a step of the first running task after `place`; pass over one that waits."""
    task = tx.first(
        "SELECT id, app, place FROM task WHERE finished_at IS NULL AND id > :place"
        " ORDER BY id LIMIT 1",
        {"place": place},
    )
    if task is None:
        return Purged(count=0, place=None)
    still_open = "SELECT 1 FROM endpoint WHERE app = :app AND cleared_to <> '~' LIMIT 1"
    if tx.first(still_open, {"app": task.app}) is not None:
        return Purged(count=0, place=task.id)
    found = tx.all(
        "SELECT id FROM message WHERE app = :app AND id > :place"
        " ORDER BY id LIMIT :limit",
        {"app": task.app, "place": task.place, "limit": RETENTION_ROWS},
    )
    asked, params = tx.rows("b", {"id": "text"}, [(row.id,) for row in found])
    count = tx.run(
        "UPDATE payload SET body = NULL, expunged_at = :now WHERE expunged_at IS NULL"
        f" AND message IN (SELECT b.id FROM {asked})",
        {**params, "now": tx.now},
    )
    over = len(found) < RETENTION_ROWS
    tx.run(
        "UPDATE task SET done = done + :count, place = :place, updated_at = :now,"
        " finished_at = :finished WHERE id = :id",
        {
            "id": task.id,
            "count": count,
            "place": found[-1].id if found else task.place,
            "now": tx.now,
            "finished": tx.now if over else None,
        },
    )
    return Purged(count=count, place=task.id if over else place)


def remove_tasks(tx: Tx, before_at: int) -> int:
    """Remove tasks that ended before an instant; return how many."""
    return tx.run(
        "DELETE FROM task WHERE id IN (SELECT id FROM task"
        " WHERE finished_at <= :before ORDER BY id LIMIT :limit)",
        {"before": before_at, "limit": RETENTION_ROWS},
    )


def list_tasks(tx: Tx, tenant: TenantId, page: PageIn) -> Page[Task]:
    """Return one page of the tenant's tasks, newest first unless asked otherwise."""
    cursor = check_page(page, paging.valid_id(Prefix.TASK))
    fetched = paging.fetch(
        tx,
        sa.select(_T).where(_T.c.tenant == tenant),
        _T.c.id,
        cursor,
        limit=page.limit,
        descending=page.order is not Order.ASCENDING,
    )
    return paging.page_of(fetched, _as_task, lambda row: row.id)


def find_task(tx: Tx, tenant: TenantId, task: str) -> Task:
    """Return one task; raises NotFound."""
    mine = sa.select(_T).where(_T.c.tenant == tenant, _T.c.id == task)
    found = tx.first(mine) if findable(task) else None
    if found is None:
        raise NotFound(f"background task {task[:100]!r} was not found")
    return _as_task(found)


def _as_task(row: sa.Row[Any]) -> Task:
    return Task(
        id=TaskId(row.id),
        kind=row.kind,
        app=AppId(row.app),
        done=row.done,
        created_at=row.created_at,
        updated_at=row.updated_at,
        finished_at=row.finished_at,
    )
