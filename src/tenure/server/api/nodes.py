"""Nodes: `/api/v1/node`, the processes of this deployment."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from tenure.clock import to_rfc3339
from tenure.server.auth import TenantCaller
from tenure.server.openapi import documented
from tenure.server.paging import Bool, Single
from tenure.server.problems import json_answer
from tenure.server.reading import Here
from tenure.server.schemas import NodesOut
from tenure.server.shapes import Json
from tenure.store import nodes
from tenure.store.nodes import NodeRow

ROOT = "/api/v1/node"


async def list_all(
    caller: TenantCaller,
    here: Here,
    include_closed: Annotated[Bool, Query()] = False,  # noqa: FBT002 -- a query parameter
    _once: None = Single,
) -> Response:
    """List the nodes; closed ones when they are asked for."""
    del caller
    found = await here.backend.read(
        lambda tx: nodes.list_nodes(tx, closed=include_closed)
    )
    return json_answer({"data": [_shown(node) for node in found]}).response()


def _shown(node: NodeRow) -> Json:
    return {
        "id": node.id,
        "name": node.name,
        "host": node.host,
        "pid": node.pid,
        "version": node.version,
        "state": node.state,
        "serves": node.serves.split(),
        "startedAt": to_rfc3339(node.started_at),
        "beatAt": to_rfc3339(node.beat_at),
        "closedAt": None if node.closed_at is None else to_rfc3339(node.closed_at),
        "closedWhy": node.closed_why,
    }


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Node"])
    routes.get(ROOT, **documented({200: NodesOut}))(list_all)
    return routes
