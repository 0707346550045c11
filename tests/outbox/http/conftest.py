from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from tenure.outbox.http import HttpTransport
from tests.outbox.http.servers import Names


def pytest_asyncio_loop_factories() -> dict[
    str, Callable[[], asyncio.AbstractEventLoop]
]:
    """Run every asynchronous test here on both loops."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def names() -> Names:
    return Names(localhost=["127.0.0.1"])


@pytest.fixture
async def transport(names: Names) -> AsyncIterator[HttpTransport]:
    made = HttpTransport(resolver=names)
    yield made
    await made.aclose()
