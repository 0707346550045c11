"""An outbox on each real database, and the pieces that tests put together with it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tenure.clock import SystemClock
from tenure.outbox.keyring import KeyRing, new_key
from tenure.outbox.model import OutboxSettings
from tenure.outbox.outbox import Outbox
from tenure.store.backend import Backend


@pytest.fixture
def ring() -> KeyRing:
    return KeyRing([new_key()])


@pytest.fixture
def settings() -> OutboxSettings:
    return OutboxSettings()


@pytest_asyncio.fixture
async def outbox(
    backend: Backend, ring: KeyRing, settings: OutboxSettings
) -> AsyncIterator[Outbox]:
    """An outbox that accepts; nobody sends."""
    made = Outbox(backend, settings, ring, SystemClock())
    made.start()
    yield made
    await made.aclose()
