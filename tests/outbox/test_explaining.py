"""Explain: nothing waits without a reason, a rule, and the next instant if any."""

from __future__ import annotations

import pytest

from tenure.clock import SystemClock
from tenure.errors import NotFound
from tenure.outbox.keyring import KeyRing
from tenure.outbox.model import OutboxSettings
from tenure.outbox.outbox import Outbox
from tenure.store import nodes
from tenure.store.backend import Backend
from tests.outbox.world import ONE, OTHER, accept, make_app, make_endpoint, run


async def test_a_due_row_waits_for_a_node_that_serves_its_lane(
    outbox: Outbox, backend: Backend
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)

    async def code() -> str:
        found = await outbox.explain(ONE, accepted.message.id)
        return found.deliveries[0].code

    async def open_node(serves: str) -> None:
        await backend.write(
            lambda tx: nodes.open_node(
                tx,
                name="n",
                host="h",
                pid=1,
                version="0",
                serves=serves,
                lock_path=None,
            )
        )

    assert await code() == "no_capable_node"
    await open_node("job:other deliveryman")
    assert await code() == "no_capable_node"
    await open_node("delivery job:other")
    assert await code() == "due"
    await run(backend, "UPDATE node SET beat_at = beat_at - 20 * 1000000")
    assert await code() == "no_capable_node"
    found = await outbox.explain(ONE, accepted.message.id)
    assert "has been heard for 2" in found.deliveries[0].why
    await run(backend, "UPDATE node SET beat_at = beat_at + 20 * 1000000")
    await run(backend, "UPDATE lane SET concurrency = 0")
    assert await code() == "no_room"


async def test_a_work_row_is_explained_by_its_own_id(outbox: Outbox) -> None:
    app = await make_app(outbox)
    first = await make_endpoint(outbox, app)
    await make_endpoint(outbox, app, channels=["x"])
    await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)
    whole = await outbox.explain(ONE, accepted.message.id)
    assert len(whole.deliveries) == 2
    assert len(whole.unmatched) == 1
    one = next(each for each in whole.deliveries if each.endpoint == first.id)
    alone = await outbox.explain(ONE, one.work)
    assert alone.deliveries == (one,)
    assert alone.unmatched == ()
    with pytest.raises(NotFound):
        await outbox.explain(OTHER, one.work)


async def test_a_deployment_that_sends_nothing_says_so(
    backend: Backend, ring: KeyRing, outbox: Outbox
) -> None:
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    accepted = await accept(outbox, app)
    quiet = Outbox(backend, OutboxSettings(), ring, SystemClock(), sending=False)
    found = await quiet.explain(ONE, accepted.message.id)
    assert found.deliveries[0].why == "off by deployment policy"
