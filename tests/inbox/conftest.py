"""An inbox over each database."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

import pytest_asyncio

from tenure.clock import SystemClock
from tenure.inbox.inbox import Inbox
from tenure.limits import RECEIPT_BYTES
from tenure.outbox.keyring import KeyRing, new_key
from tenure.outbox.model import OutboxSettings
from tenure.outbox.outbox import Outbox
from tenure.store.backend import Backend
from tenure.telemetry.events import Events


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """An inbox with its outbox, and how to open another over the same database."""

    backend: Backend
    ring: KeyRing
    outbox: Outbox
    inbox: Inbox

    def another(self) -> Inbox:
        """Return a second node's inbox; start and close it."""
        return make_inbox(self.backend, self.outbox, self.ring)


def make_inbox(backend: Backend, outbox: Outbox, ring: KeyRing) -> Inbox:
    return Inbox(
        backend,
        outbox,
        ring,
        SystemClock(),
        Events(),
        body_bytes_max=RECEIPT_BYTES,
        keep_seconds=3600,
    )


@contextlib.asynccontextmanager
async def opened(backend: Backend) -> AsyncGenerator[Rig]:
    """Open an inbox over a database."""
    ring = KeyRing([new_key()])
    outbox = Outbox(backend, OutboxSettings(), ring, SystemClock())
    outbox.start()
    inbox = make_inbox(backend, outbox, ring)
    inbox.start()
    yield Rig(backend=backend, ring=ring, outbox=outbox, inbox=inbox)
    await inbox.aclose()
    await outbox.aclose()


@pytest_asyncio.fixture
async def rig(backend: Backend) -> AsyncIterator[Rig]:
    """An inbox on each database, with no node: nothing is sent."""
    async with opened(backend) as rig:
        yield rig
