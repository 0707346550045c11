"""What the inbox keeps, and for how long."""

from __future__ import annotations

from tenure.clock import US
from tenure.ids import new_id
from tenure.inbox.ledger.retaining import (
    remove_keys,
    remove_listeners,
    remove_receipts,
)
from tenure.limits import DAY_SECONDS, LISTENER_DAYS
from tenure.outbox.ledger.retaining import Keep
from tenure.outbox.model import OutboxSettings
from tests.inbox.conftest import Rig
from tests.inbox.world import ONE, hook, make_source, send
from tests.outbox.world import count, make_app, make_endpoint, rows, run

KEEP = Keep.of(OutboxSettings())
DAY_US = round(DAY_SECONDS * US)


async def age(rig: Rig, receipt: str, days: int) -> str:
    """Let a receipt be as old as its id then says; return that id."""
    now = await rig.backend.read(lambda tx: tx.now)
    older = new_id("rcpt", at_us=now - days * DAY_US)
    for table, column in (("receipt", "id"), ("receipt_key", "receipt")):
        await run(
            rig.backend,
            f"UPDATE {table} SET {column} = :new WHERE {column} = :old",
            new=older,
            old=receipt,
        )
    return older


async def left(rig: Rig) -> set[str]:
    return {row["id"] for row in await rows(rig.backend, "SELECT id FROM receipt")}


async def test_an_old_receipt_goes_once_its_work_is_over_and_the_newest_stays(
    rig: Rig,
):
    app = await make_app(rig.outbox, tenant=ONE)
    await make_endpoint(rig.outbox, app)
    source = await make_source(rig.inbox, app=app.id)
    made = [
        str((await send(rig.inbox, source.path, hook(f"d-{n}"))).receipt)
        for n in range(4)
    ]
    waits, over, young, newest = (
        await age(rig, made[0], 31),
        await age(rig, made[1], 31),
        await age(rig, made[2], 29),
        await age(rig, made[3], 40),
    )
    await run(
        rig.backend,
        "UPDATE work SET state = 'succeeded', phase = NULL, settled_at = 1"
        " WHERE subject IN (SELECT message FROM receipt WHERE id IN (:a, :b, :c))",
        a=over,
        b=young,
        c=newest,
    )
    step = await rig.backend.write(lambda tx: remove_receipts(tx, "", KEEP))
    assert (step.removed, step.place) == (1, None)
    assert await left(rig) == {waits, young, newest}
    # The message and what it was received with stay for their own time.
    assert await count(rig.backend, "message", "relay IS NOT NULL") == 4


async def test_keys_go_past_their_window_and_listeners_that_nobody_uses(rig: Rig):
    source = await make_source(rig.inbox)
    for n in range(2):
        await send(rig.inbox, source.path, hook(f"d-{n}"))
    await run(rig.backend, "UPDATE receipt_key SET expires_at = 1 WHERE key = 'k:d-0'")
    assert (await rig.backend.write(lambda tx: remove_keys(tx, "", KEEP))).removed == 1
    held = await rows(rig.backend, "SELECT key FROM receipt_key")
    assert [row["key"] for row in held] == ["k:d-1"]
    now = str(await rig.inbox.cursor())
    for name in ("used", "unused"):
        await rig.inbox.keep_listener(ONE, name, now)
    await run(
        rig.backend,
        "UPDATE listener SET updated_at = updated_at - :age WHERE name = 'unused'",
        age=(LISTENER_DAYS + 1) * DAY_US,
    )
    step = await rig.backend.write(lambda tx: remove_listeners(tx, "", KEEP))
    assert step.removed == 1
    assert str(await rig.inbox.listener(ONE, "used")) == now
