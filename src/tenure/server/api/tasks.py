"""Background tasks: `/api/v1/background-task`, what calls left to be done."""

from functools import partial

from fastapi import APIRouter, Response

from tenure.clock import to_rfc3339
from tenure.outbox.ledger import purging
from tenure.outbox.ledger.purging import Task
from tenure.server.auth import TenantCaller
from tenure.server.openapi import documented
from tenure.server.paging import Ordered
from tenure.server.problems import json_answer
from tenure.server.reading import Here
from tenure.server.schemas import ListOf, TaskOut
from tenure.server.shapes import Json, page_out

ROOT = "/api/v1/background-task"
ONE = ROOT + "/{task_id}"


async def list_all(caller: TenantCaller, here: Here, page: Ordered) -> Response:
    """List the background tasks, newest first."""
    found = await here.backend.read(
        partial(purging.list_tasks, tenant=caller.tenant, page=page)
    )
    return json_answer(page_out(found, _shown)).response()


async def get(task_id: str, caller: TenantCaller, here: Here) -> Response:
    """Return a background task with how far it got."""
    found = await here.backend.read(
        partial(purging.find_task, tenant=caller.tenant, task=task_id)
    )
    return json_answer(_shown(found)).response()


def _shown(task: Task) -> Json:
    return {
        "id": task.id,
        "status": "running" if task.finished_at is None else "finished",
        "task": task.kind,
        "data": {"appId": task.app, "done": task.done},
        "updatedAt": to_rfc3339(task.updated_at),
    }


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Background task"])
    routes.get(ROOT, **documented({200: ListOf[TaskOut]}))(list_all)
    routes.get(ONE, **documented({200: TaskOut}))(get)
    return routes
