"""What an operator would look at after a crash: rows counted from outside."""

from __future__ import annotations

import asyncio

from tenure.store.backend import open_backend
from tests.invariants import faults

SETTLED_SECONDS = 60.0


async def count(database: str, where: str, *, table: str = "work") -> int:
    """Count rows from outside, as an operator would."""
    backend = await open_backend(database)
    try:
        return await backend.read(
            lambda tx: tx.scalar(f"SELECT count(*) FROM {table} WHERE {where}")
        )
    finally:
        await backend.aclose()


async def wait_settled(database: str, rows: int) -> None:
    """Wait until every work row succeeded and no node's claim is left."""
    async with asyncio.timeout(SETTLED_SECONDS):
        while await count(database, "state = 'succeeded'") < rows:
            await asyncio.sleep(0.2)
    assert await count(database, "state <> 'succeeded'") == 0
    backend = await open_backend(database)
    try:
        assert await backend.read(faults) == []
    finally:
        await backend.aclose()


async def attempts_of(database: str, where: str = "true") -> int:
    return await count(database, where, table="attempt")
