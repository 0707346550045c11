from collections.abc import AsyncIterator

import pytest_asyncio

from tenure.store.backend import Backend
from tests.work.rig import Rig, rigged


@pytest_asyncio.fixture
async def rig(backend: Backend) -> AsyncIterator[Rig]:
    """A fleet on a fresh database: SQLite, then PostgreSQL."""
    async with rigged(backend) as made:
        yield made
