"""`tenure nodes`: the processes that share this database's work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli.databases import existing
from tenure.cli.screen import when
from tenure.cli.verbs import Call, verb
from tenure.errors import NotFound
from tenure.ids import NodeId

if TYPE_CHECKING:
    from tenure.config import Settings

nodes = typer.Typer(
    help="The processes that share this database's work.", no_args_is_help=True
)


@verb(nodes, "list")
def list_nodes(
    call: Call,
    closed: Annotated[
        bool, typer.Option("--closed", help="Those that are gone as well.")
    ] = False,
) -> None:
    """List the nodes."""
    found = call.api().get("/api/v1/node", include_closed=closed)["data"]
    if call.screen.as_json:
        call.screen.json(found)
        return
    call.screen.table(
        ("NODE", "NAME", "HOST", "PID", "STATE", "STARTED", "LAST BEAT", "BECAUSE"),
        [
            (
                node["id"],
                node["name"],
                node["host"],
                node["pid"],
                node["state"],
                when(node["startedAt"]),
                when(node["beatAt"]),
                node["closedWhy"],
            )
            for node in found
        ],
        empty="no node is open: `tenure serve` starts one",
    )


@verb(nodes, "close", asks=False)
def close(
    call: Call,
    node: Annotated[int, typer.Argument(help="Its number in `nodes list`.")],
) -> None:
    """Close a node that will not come back, so that others take over its work.

    A node that still runs notices, starts nothing more under this number, and goes on
    under a new one.
    """
    if not asyncio.run(_close(existing(call.settings()), NodeId(node))):
        raise NotFound(
            f"node {node} is not open: `tenure nodes list --closed` shows all"
        )
    if call.screen.as_json:
        call.screen.json({"closed": node})
    else:
        call.screen.line(f"node {node} is closed")


async def _close(settings: Settings, node: NodeId) -> bool:
    from tenure.store import nodes as ledger
    from tenure.store.backend import open_backend
    from tenure.store.claims import OPERATOR

    backend = await open_backend(settings.database_url)
    try:
        return await backend.write(lambda tx: ledger.close_node(tx, node, OPERATOR))
    finally:
        await backend.aclose()
