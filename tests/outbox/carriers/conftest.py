"""A node that carries for every kind of endpoint, by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tenure.clock import SystemClock
from tenure.outbox.carriers.functions import Functions
from tenure.outbox.carriers.offered import Carriers
from tenure.outbox.delivery import Delivery
from tenure.outbox.http import HttpTransport
from tenure.outbox.keyring import KeyRing
from tenure.outbox.model import OutboxSettings
from tenure.store.backend import Backend
from tenure.store.claims import Walker
from tenure.telemetry.events import Events
from tests.invariants import faults
from tests.outbox.http.servers import Names
from tests.outbox.sending import LOCAL, SERVES, Sender, open_sender


@pytest.fixture
def settings() -> OutboxSettings:
    return LOCAL


@pytest.fixture
def functions() -> Functions:
    return Functions()


@pytest.fixture
def events() -> Events:
    return Events()


@pytest_asyncio.fixture
async def sender(
    backend: Backend, ring: KeyRing, functions: Functions, events: Events
) -> AsyncIterator[Sender]:
    """A node of every kind; functions are registered before its first `claim`."""
    clock = SystemClock()
    transport = HttpTransport(resolver=Names())
    carriers = Carriers(functions, clock, events)
    made = await open_sender(backend, ring, transport)
    made.kind = Delivery(
        transport=transport,
        ring=ring,
        settings=LOCAL,
        clock=clock,
        user_agent="Tenure/test",
        carriers=carriers.by_kind,
    )
    made.walker = Walker(node=made.node, serves=SERVES | carriers.needs)
    yield made
    assert await backend.read(faults) == []
    carriers.close()
    await transport.aclose()
