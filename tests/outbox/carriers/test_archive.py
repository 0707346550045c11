"""The archive: a row in the commit that settles, once, and for as long as it says."""

from __future__ import annotations

from tenure.clock import US
from tenure.kernel.commands import Answer
from tenure.outbox.carriers.model import Archived
from tenure.outbox.keyring import KeyRing
from tenure.outbox.ledger.retaining import STEPS, Keep
from tenure.outbox.model import EndpointSettings
from tenure.outbox.outbox import Outbox
from tenure.outbox.relayed import Relay, dump
from tenure.store.backend import Backend
from tests.outbox.sending import LOCAL, Sender
from tests.outbox.world import ONE, accept, count, make_app, make_endpoint, rows, run


async def test_a_message_is_kept_once_by_the_commit_that_settles_its_delivery(
    outbox: Outbox, sender: Sender, backend: Backend, ring: KeyRing
) -> None:
    app = await make_app(outbox)
    days = EndpointSettings(kind="archive", archive_days=2)
    endpoint = await make_endpoint(outbox, app, "archive", settings=days)
    relay = Relay(
        receipt="rcpt_1",
        source="src_a",
        method="POST",
        query="",
        headers=(("X-Sig", "a"), ("Authorization", "Bearer b"), ("X-Own", "key")),
    )
    body = b'\x00\xff {"n": 1}'
    accepted = await accept(
        outbox,
        app,
        body=body,
        content_type="application/octet-stream",
        relay=dump(relay, ring.seal, {"x-own"}),
    )
    (claimed,) = await sender.claim()
    ran = await sender.send(claimed)
    assert await count(backend, "archived") == 0  # the attempt itself writes nothing
    assert await sender.settle(claimed, ran) is Answer.APPLIED
    assert await sender.settle(claimed, ran) is not Answer.APPLIED
    (kept,) = await rows(backend, "SELECT * FROM archived")
    assert (kept["endpoint"], kept["message"]) == (endpoint.id, accepted.message.id)
    assert (bytes(kept["body"]), kept["work"]) == (body, claimed.work.id)
    assert kept["content_type"] == "application/octet-stream"
    headers = b'[["X-Sig","a"],["Authorization","***"],["X-Own","***"]]'
    assert bytes(kept["headers"]) == headers
    assert kept["expires_at"] - kept["archived_at"] == 2 * 86_400 * US
    # Sent again, it is there already.
    await outbox.resend(ONE, app.id, accepted.message.id, endpoint.id)
    await sender.work_off()
    assert await rows(backend, "SELECT * FROM archived") == [kept]
    fields = set(Archived.__struct_fields__) | {"work"}
    assert fields == set(kept)


async def test_an_attempt_that_lost_its_claim_archives_nothing(
    outbox: Outbox, sender: Sender, backend: Backend
) -> None:
    app = await make_app(outbox)
    wanted = EndpointSettings(kind="archive")
    await make_endpoint(outbox, app, "archive", settings=wanted)
    await accept(outbox, app)
    (claimed,) = await sender.claim()
    ran = await sender.send(claimed)
    await run(backend, "UPDATE work SET claim = claim + 1")
    assert await sender.settle(claimed, ran) is not Answer.APPLIED
    assert await count(backend, "archived") == 0
    await run(backend, "UPDATE work SET claim = claim - 1")
    assert await sender.settle(claimed, ran) is Answer.APPLIED  # the control
    assert await count(backend, "archived", "expires_at IS NULL") == 1


async def test_what_an_archive_keeps_for_days_goes_after_them_and_the_rest_stays(
    outbox: Outbox, sender: Sender, backend: Backend
) -> None:
    app = await make_app(outbox)
    for days in (None, 1, 2):
        wanted = EndpointSettings(kind="archive", archive_days=days)
        await make_endpoint(outbox, app, "archive", settings=wanted)
    await accept(outbox, app)
    await sender.work_off()
    ago = (86_400 + 60) * US
    await run(backend, "UPDATE archived SET expires_at = expires_at - :ago", ago=ago)
    keep = Keep.of(LOCAL)
    step = await backend.write(lambda tx: STEPS["archived"](tx, "", keep))
    assert (step.removed, step.place) == (1, None)
    assert await count(backend, "archived") == 2
