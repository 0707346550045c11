"""The start-up race: a receipt just committed, and everything that may look at its row.

A row that was written a moment before its node takes it up is met by start-up recovery,
a sweep, another node, an operator. Each of them is let in exactly between the commit and
the hand-over (`during`), and once the hand-over has happened (`after`): whatever meets
whom, the target gets one request, and there is one attempt for it. The control is the
same script with nobody else in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from pydantic import SecretStr

from tenure.config import Settings
from tenure.engine import Engine
from tenure.inbox.ledger.retaining import STEPS as INBOX
from tenure.inbox.model import Source
from tenure.limits import Durations
from tenure.outbox.keyring import new_key
from tenure.outbox.ledger.retaining import STEPS, Keep
from tenure.outbox.model import Application, Endpoint, EndpointPatch, OutboxSettings
from tenure.store import claims, nodes
from tenure.work.pauses import Point
from tests.inbox.world import ONE as TENANT
from tests.inbox.world import hook, make_source, send
from tests.outbox.scripted import Scripted, response
from tests.outbox.test_acceptor import Interrupted
from tests.outbox.world import make_app, make_endpoint, rows
from tests.work.rig import Gate, Held, until, until_read

FAST = Durations(20)
WAYS = ["born", "plain"]


@dataclass
class World:
    """A node that receives and sends, and one target."""

    engine: Engine
    settings: Settings
    sink: Scripted
    pauses: Held
    app: Application
    endpoint: Endpoint
    source: Source
    gate: Gate
    others: AsyncExitStack
    receipt: str = ""

    async def another(self) -> Engine:
        """Start a second node on the database: with it comes its recovery."""
        return await self.others.enter_async_context(
            Engine(self.settings, transport=self.sink, durations=FAST)
        )

    async def change(self, **fields: Any) -> None:
        await self.engine.outbox.patch_endpoint(
            self.app.tenant, self.app.id, self.endpoint.id, EndpointPatch(**fields)
        )


Rival = Callable[[World], Awaitable[None]]


async def nobody(world: World) -> None:
    del world


async def another_node_recovers(world: World) -> None:
    engine = await world.another()
    await until(lambda: engine.worker.at_ease or engine.worker.hand, "its first look")


async def the_ready_sweep(world: World) -> None:
    world.engine.wake()
    await asyncio.sleep(0)


async def the_lost_sweep(world: World) -> None:
    await world.engine.backend.write(claims.sweep)


async def the_beat_reconciles(world: World) -> None:
    # Twice, and later than what only the database knows may be given back.
    for _ in range(3):
        world.engine.beat()
        await asyncio.sleep(0.25)


async def an_operator_replays(world: World) -> None:
    (row,) = await rows(world.engine.backend, "SELECT id FROM receipt")
    await world.engine.inbox.replay_receipt(TENANT, row["id"])


async def the_endpoint_is_edited(world: World) -> None:
    await world.change(description="another")


async def the_endpoint_is_paused_and_opened(world: World) -> None:
    await world.change(disabled=True)
    await world.change(disabled=False)


async def retention_passes(world: World) -> None:
    keep = Keep.of(OutboxSettings())
    for step in (*STEPS.values(), *INBOX.values()):
        await world.engine.backend.write(lambda tx, step=step: step(tx, "", keep))


async def the_node_drains(world: World) -> None:
    await world.another()
    stopping = asyncio.create_task(world.engine.stop())
    await asyncio.sleep(0.05)
    world.gate.opened.set()
    await stopping


RIVALS: list[Rival] = [
    nobody,
    another_node_recovers,
    the_ready_sweep,
    the_lost_sweep,
    the_beat_reconciles,
    an_operator_replays,
    the_endpoint_is_edited,
    the_endpoint_is_paused_and_opened,
    retention_passes,
    the_node_drains,
]


@pytest_asyncio.fixture(params=WAYS)
async def world(
    database_url: str, request: pytest.FixtureRequest
) -> AsyncIterator[World]:
    sink, pauses = Scripted(*(response(204) for _ in range(20))), Held()
    settings = Settings(
        database_url=database_url,
        secret_keys=(SecretStr(new_key()),),
        born_claimed=request.param == "born",
    )
    engine = Engine(settings, transport=sink, durations=FAST, pauses=pauses)
    await engine.start()
    others = AsyncExitStack()
    try:
        app = await make_app(engine.outbox, tenant=TENANT)
        endpoint = await make_endpoint(engine.outbox, app)
        source = await make_source(engine.inbox, app=app.id)
        await until(lambda: engine.worker.at_ease, "a claim that found nothing")
        database = Interrupted(engine.backend)
        database.gate = Gate()
        engine.outbox.acceptor._backend = database  # pyright: ignore[reportAttributeAccessIssue]
        yield World(
            engine=engine,
            settings=settings,
            sink=sink,
            pauses=pauses,
            app=app,
            endpoint=endpoint,
            source=source,
            gate=database.gate,
            others=others,
        )
    finally:
        await engine.stop()
        await others.aclose()


async def received(world: World) -> asyncio.Task[Any]:
    """Let a receipt be committed, and its node hold still before the hand-over."""
    task = asyncio.create_task(send(world.engine.inbox, world.source.path, hook("d-1")))
    await world.gate.wait_entered()
    return task


@pytest.mark.parametrize("rival", RIVALS, ids=lambda rival: rival.__name__)
async def test_a_receipt_met_between_its_commit_and_its_hand_over_is_sent_once(
    world: World, rival: Rival
):
    # A plain row may be found by the poll meanwhile; a replay must find it unsent.
    started = world.pauses.hold(Point.LOADED) if rival is an_operator_replays else None
    task = await received(world)
    await rival(world)
    world.gate.opened.set()
    if started is not None:
        started.opened.set()
    reply = await task
    assert reply.status == 200
    if rival is the_node_drains:
        backend = (await world.another()).backend
        row = await over(backend)
    else:
        row = await over(world.engine.backend)
    assert row["state"] == "succeeded"
    assert len(world.sink.requests) == 1
    assert row["attempts"] == 1
    assert row["claim"] - row["releases"] == 1


async def over(backend: Any) -> dict[str, Any]:
    """Return what became of the row once it is over."""

    def ended(found: Any) -> bool:
        return found is not None and found[0] in {"succeeded", "cancelled", "dead"}

    await until_read(
        backend, lambda tx: tx.first("SELECT state FROM work LIMIT 1"), ended
    )
    (row,) = await rows(backend, "SELECT state, claim, releases, losses FROM work")
    (count,) = await rows(
        backend, "SELECT count(*) AS n FROM attempt WHERE outcome <> 'released'"
    )
    return {**row, "attempts": count["n"]}


@pytest.mark.parametrize(
    "rival",
    [each for each in RIVALS if each not in {an_operator_replays, the_node_drains}],
    ids=lambda rival: rival.__name__,
)
async def test_a_receipt_met_after_its_hand_over_is_sent_once(
    world: World, rival: Rival
):
    hold = world.pauses.hold(Point.SETTLE)  # sent, and not yet written down
    task = await received(world)
    world.gate.opened.set()
    assert (await task).status == 200
    await hold.wait_entered()
    await rival(world)
    hold.opened.set()
    row = await over(world.engine.backend)
    assert (row["state"], row["attempts"]) == ("succeeded", 1)
    assert len(world.sink.requests) == 1


async def test_an_operator_who_replays_what_was_sent_sends_it_once_more(world: World):
    task = await received(world)
    world.gate.opened.set()
    await task
    await over(world.engine.backend)
    await an_operator_replays(world)
    await until(lambda: len(world.sink.requests) == 2, "the replay")
    await over(world.engine.backend)
    (count,) = await rows(world.engine.backend, "SELECT count(*) AS n FROM attempt")
    assert count["n"] == 2


async def test_a_receipt_for_an_endpoint_that_is_deleted_meanwhile_is_sent_at_most_once(
    world: World,
):
    task = await received(world)
    await world.engine.outbox.delete_endpoint(
        world.app.tenant, world.app.id, world.endpoint.id
    )
    world.gate.opened.set()
    assert (await task).status == 200
    row = await over(world.engine.backend)
    sent = len(world.sink.requests)
    assert (row["state"], sent) in {("cancelled", 0), ("succeeded", 1)}
    assert row["attempts"] == sent


async def test_a_row_released_between_scan_and_claim_is_acquired_by_one(world: World):
    """A claim is held between its commit and memory while another node looks."""
    hold = world.pauses.hold(Point.CLAIMED)
    task = await received(world)
    world.gate.opened.set()
    await task
    rival = await world.another()
    await until(lambda: rival.worker.at_ease, "its first look")
    await the_lost_sweep(world)
    hold.opened.set()
    row = await over(world.engine.backend)
    assert (row["state"], row["attempts"], row["losses"]) == ("succeeded", 1, 0)
    assert len(world.sink.requests) == 1


async def test_a_hand_over_of_a_node_that_was_closed_meanwhile_sends_nothing_itself(
    world: World,
):
    started = world.pauses.hold(Point.LOADED)  # nor may the poll have sent it before
    task = await received(world)
    first = world.engine.node
    assert first is not None
    await world.engine.backend.write(
        lambda tx: nodes.close_node(tx, first, claims.CERTAIN)
    )
    await the_lost_sweep(world)
    await until(lambda: world.engine.node != first, "a new incarnation")
    world.gate.opened.set()
    started.opened.set()
    assert (await task).status == 200
    row = await over(world.engine.backend)
    # What was born and never begun is lost, without a request.
    assert (row["state"], row["attempts"]) == ("succeeded", 1 + row["losses"])
    assert len(world.sink.requests) == 1


@pytest.mark.parametrize(
    "rival",
    [nobody, another_node_recovers, the_ready_sweep, the_lost_sweep],
    ids=lambda rival: rival.__name__,
)
async def test_a_receipt_that_is_due_again_meets_the_same_and_is_tried_twice(
    world: World, rival: Rival
):
    world.sink.answers[0] = response(503)
    hold = world.pauses.hold(Point.SETTLED)  # its retry is written down, and due soon
    task = await received(world)
    world.gate.opened.set()
    await task
    await hold.wait_entered()
    await rival(world)
    hold.opened.set()
    row = await over(world.engine.backend)
    assert (row["state"], row["attempts"]) == ("succeeded", 2)
    assert len(world.sink.requests) == 2
