from collections.abc import AsyncIterator

import pytest_asyncio

from tenure.store.backend import Backend
from tests.invariants import faults
from tests.work.rig import Rig, rigged


@pytest_asyncio.fixture
async def rig(backend: Backend) -> AsyncIterator[Rig]:
    """A fleet on a fresh database: SQLite, then PostgreSQL."""
    async with rigged(backend) as made:
        yield made
    # Suspects are made by writing `losses`, which no claim stands behind then.
    made_up = "counters never exceed the claims"
    found = await backend.read(faults)
    assert [fault for fault in found if not fault.startswith(made_up)] == []
