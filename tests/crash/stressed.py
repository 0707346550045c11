"""What the stress of nodes shares: short durations, few slots, and waiting from outside.

Every kernel duration is divided by ten, so that their ratios stay.
"""

from __future__ import annotations

import asyncio
import re

from tenure.ids import NodeId
from tenure.store.backend import open_backend
from tenure.store.nodes import NodeRow, list_nodes
from tests.crash.fleet import Fleet
from tests.crash.sink import Sink

FACTOR = 10
SLOTS = 24
"""Few, so that one node cannot take everything."""
SETTINGS = {"TENURE_TEST_TIME_FACTOR": str(FACTOR), "TENURE_SLOTS": str(SLOTS)}
PATIENCE = 90.0


async def endpoints(running: Fleet, sink: Sink, number: int) -> str:
    """Make an application with so many endpoints; return its id."""
    app: str = (await running.api("POST", "/app", json={"name": "stress"}))["id"]
    for at in range(number):
        given = {"url": f"{sink.url}/{at}", "tenure": {"timeoutSeconds": 60}}
        await running.api("POST", f"/app/{app}/endpoint", json=given)
    return app


async def nodes_of(database: str) -> list[NodeRow]:
    """Every incarnation that there was."""
    backend = await open_backend(database)
    try:
        return await backend.read(lambda tx: list_nodes(tx, closed=True))
    finally:
        await backend.aclose()


async def until_nodes(database: str, states: list[str]) -> list[NodeRow]:
    """Wait until the incarnations, by id, are in these states."""
    backend = await open_backend(database)
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                rows = await backend.read(lambda tx: list_nodes(tx, closed=True))
                if [row.state for row in rows] == states:
                    return rows
                await asyncio.sleep(0.05)
    finally:
        await backend.aclose()


async def until_holding(database: str, node: NodeId, claims: int) -> int:
    """Wait until a node holds so many claims at least; return how many."""
    backend = await open_backend(database)
    held = "SELECT count(*) FROM work WHERE state = 'claimed' AND claimed_by = :node"
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await backend.read(lambda tx: tx.scalar(held, {"node": node}))
                if found >= claims:
                    return found
                await asyncio.sleep(0.01)
    finally:
        await backend.aclose()


def lines(running: Fleet, text: str) -> list[int]:
    """How many lines of each node's log say this."""
    return [len(re.findall(text, node.log.read_text())) for node in running.nodes]
