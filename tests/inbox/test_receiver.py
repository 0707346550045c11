"""The receiver: judged, committed, then answered."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.errors import DatabaseUnavailable, NotFound, PayloadTooLarge
from tenure.inbox.arrivals import Arrival
from tenure.inbox.ledger import receiving
from tenure.inbox.model import Source, SourcePatch
from tenure.inbox.receiver import Reply
from tenure.limits import REFUSED_KEPT
from tenure.outbox.model import EndpointSettings
from tenure.store.backend import Backend
from tests.inbox.conftest import Rig
from tests.inbox.signed import compact, mac
from tests.inbox.world import ONE, SECRET, hook, make_source, send
from tests.outbox.world import count, make_app, make_endpoint, rows, run


def receipt_of(reply: Reply) -> str:
    assert reply.status == 200, reply.body
    assert reply.receipt is not None
    assert json.loads(reply.body) == {"receipt": reply.receipt}
    return reply.receipt


async def test_what_arrived_is_kept_byte_for_byte_and_made_a_message(rig: Rig):
    app = await make_app(rig.outbox, tenant=ONE)
    await make_endpoint(rig.outbox, app)
    source = await make_source(rig.inbox, app=app.id)
    body = '{"emoji": "\U0001f9e8", "a": 1, "a": 2, "n": 1e400}\n'.encode()
    twice = ((b"x-twice", b"1"), (b"x-twice", b"\xe92"))
    receipt = receipt_of(
        await send(rig.inbox, source.path, hook("d-1", body=body, headers=twice))
    )
    found = await rig.inbox.get_receipt(ONE, receipt)
    assert found.body == body
    assert [line for line in found.headers if line[0] == "x-twice"] == [
        ("x-twice", "1"),
        ("x-twice", "é2"),
    ]
    assert (found.receipt.event_type, found.receipt.event_id) == ("issues", "d-1")
    assert (found.receipt.address, found.receipt.size) == ("203.0.113.7", len(body))
    (message,) = found.made
    made = await rows(
        rig.backend,
        "SELECT m.app, m.event_type, p.body, d.work FROM message m"
        " JOIN payload p ON p.message = m.id JOIN delivery d ON d.message = m.id"
        " WHERE m.id = :id",
        id=message,
    )
    assert [(row["app"], bytes(row["body"])) for row in made] == [(app.id, body)]


async def test_case_46_the_same_event_twice_at_once_is_one_message_and_one_answer(
    rig: Rig,
):
    source = await make_source(rig.inbox)
    other = rig.another()
    other.start()
    try:
        replies = await asyncio.gather(
            *(
                send(inbox, source.path, hook("d-1"))
                for inbox in (rig.inbox, other) * 10
            )
        )
    finally:
        await other.aclose()
    assert len({receipt_of(reply) for reply in replies}) == 1
    assert await count(rig.backend, "message") == 1
    assert await count(rig.backend, "receipt") == 1


async def test_an_event_is_new_again_after_its_window(rig: Rig):
    source = await make_source(rig.inbox)
    first = receipt_of(await send(rig.inbox, source.path, hook("d-1")))
    assert receipt_of(await send(rig.inbox, source.path, hook("d-1"))) == first
    await run(rig.backend, "UPDATE receipt_key SET expires_at = 1")
    second = receipt_of(await send(rig.inbox, source.path, hook("d-1")))
    assert second != first
    assert receipt_of(await send(rig.inbox, source.path, hook("d-1"))) == second
    assert await count(rig.backend, "message") == 2


def dated(at: int, event: str, secret: str = "whsec_s") -> Arrival:
    """Return an event of Stripe's, signed at an instant."""
    body = compact({"id": event, "type": "invoice.paid"})
    signature = mac(secret.encode(), f"{at}.".encode() + body).hex()
    header = f"t={at},v1={signature}".encode()
    return Arrival(
        method="POST",
        url="http://127.0.0.1/in/x",
        query=b"",
        headers=((b"stripe-signature", header),),
        body=body,
        address=None,
    )


async def stripe_source(rig: Rig, **settings: Any) -> Source:
    return await make_source(
        rig.inbox,
        preset="stripe",
        secrets=("whsec_s",),
        options={"tolerance_seconds": 600},
        **settings,
    )


async def now_s(backend: Backend) -> int:
    return await backend.read(lambda tx: tx.now) // 1_000_000


async def test_a_retry_that_is_signed_anew_is_the_same_event(rig: Rig):
    source, at = await stripe_source(rig), await now_s(rig.backend)
    first = receipt_of(await send(rig.inbox, source.path, dated(at, "evt_1")))
    for later in (at + 1, at + 1, at):
        again = await send(rig.inbox, source.path, dated(later, "evt_1"))
        assert receipt_of(again) == first
    assert await count(rig.backend, "message") == 1
    held = await rows(rig.backend, "SELECT DISTINCT receipt FROM receipt_key")
    assert [row["receipt"] for row in held] == [first]


async def test_a_captured_signature_under_another_event_id_is_refused(rig: Rig):
    # The id is read from a header here, which nobody signed.
    source = await stripe_source(rig, dedupe_key="header:x-id")
    signed = dated(await now_s(rig.backend), "evt_1")

    def under(name: bytes) -> Arrival:
        return replace(signed, headers=(*signed.headers, (b"x-id", name)))

    first = receipt_of(await send(rig.inbox, source.path, under(b"one")))
    replayed = await send(rig.inbox, source.path, under(b"two"))
    assert replayed.status == 401
    assert json.loads(replayed.body)["code"] == "replayed"
    assert receipt_of(await send(rig.inbox, source.path, under(b"one"))) == first
    # The id that the replay came under is not used up by it.
    keys = await rows(rig.backend, "SELECT key FROM receipt_key ORDER BY key")
    assert keys[0]["key"] == "k:one"
    assert len(keys) == 2


async def test_case_47_what_was_not_stored_uses_nothing_up(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    source, at = await stripe_source(rig), await now_s(rig.backend)
    arrival = dated(at, "evt_1")
    insert = receiving._insert

    def away(*args: Any) -> None:
        insert(*args)
        raise DatabaseUnavailable("gone", retry_after=5)

    monkeypatch.setattr(receiving, "_insert", away)
    with pytest.raises(DatabaseUnavailable):
        await send(rig.inbox, source.path, arrival)
    for table in ("receipt", "receipt_key", "message", "payload"):
        assert await count(rig.backend, table) == 0
    monkeypatch.setattr(receiving, "_insert", insert)
    receipt_of(await send(rig.inbox, source.path, arrival))


async def test_case_44_what_is_verified_is_what_was_sent(rig: Rig):
    source = await make_source(rig.inbox)
    sent = hook("d-1", body=b'{"a": 1}')
    again = replace(sent, body=b'{"a":1}')
    refused = await send(rig.inbox, source.path, again)
    assert refused.status == 401
    receipt_of(await send(rig.inbox, source.path, sent))


async def test_a_change_on_another_node_holds_for_the_next_request(rig: Rig):
    source = await make_source(rig.inbox)
    other = rig.another()
    other.start()
    try:
        receipt_of(await send(other, source.path, hook("d-1")))
        await rig.inbox.rotate_source_secret(
            ONE, source.id, "another-secret", grace_seconds=0
        )
        old = await send(other, source.path, hook("d-2"))
        assert old.status == 401
        new = await send(other, source.path, hook("d-2", secret="another-secret"))
        receipt_of(new)
        await rig.inbox.patch_source(ONE, source.id, SourcePatch(disabled=True))
        gone = await send(other, source.path, hook("d-3", secret="another-secret"))
        assert gone.status == 410
        await rig.inbox.patch_source(ONE, source.id, SourcePatch(disabled=False))
        receipt_of(await send(other, source.path, hook("d-3", secret="another-secret")))
        await rig.inbox.delete_source(ONE, source.id)
        with pytest.raises(NotFound):
            await send(other, source.path, hook("d-4", secret="another-secret"))
    finally:
        await other.aclose()
    assert await count(rig.backend, "receipt") == 3


async def test_a_rotated_secret_counts_until_its_grace_is_over(rig: Rig):
    source = await make_source(rig.inbox)
    await rig.inbox.rotate_source_secret(ONE, source.id, "new", grace_seconds=3600)
    receipt_of(await send(rig.inbox, source.path, hook("d-1")))
    receipt_of(await send(rig.inbox, source.path, hook("d-2", secret="new")))
    await rig.inbox.remove_source_secret(ONE, source.id, 1)
    assert (await send(rig.inbox, source.path, hook("d-3"))).status == 401


async def test_without_verification_only_the_unguessable_path_counts(rig: Rig):
    source = await make_source(rig.inbox, preset="none", secrets=(), uid="open")
    assert len(source.path) >= 22
    receipt_of(await send(rig.inbox, source.path, hook("d-1")))
    for guessed in ("open", source.id, source.path[:-1]):
        with pytest.raises(NotFound):
            await send(rig.inbox, guessed, hook("d-2"))


async def test_a_verified_source_answers_to_its_uid_and_its_id(rig: Rig):
    source = await make_source(rig.inbox, uid="github")
    assert source.path == "github"
    receipt_of(await send(rig.inbox, "github", hook("d-1")))
    receipt_of(await send(rig.inbox, source.id, hook("d-2")))


async def test_method_network_and_cap_are_refused_before_the_signature(rig: Rig):
    source = await make_source(
        rig.inbox, networks=("203.0.113.0/24",), body_bytes_max=10
    )

    async def never(most: int) -> bytes:
        raise AssertionError(most)

    got = await rig.inbox.receive(source.path, hook("d-1", method="GET"), never)
    assert (got.status, got.headers["allow"]) == (405, "POST")
    far = hook("d-1", address="198.51.100.9")
    assert (await rig.inbox.receive(source.path, far, never)).status == 403

    async def long(most: int) -> bytes:
        raise PayloadTooLarge(f"over {most}")

    with pytest.raises(PayloadTooLarge, match="over 10"):
        await rig.inbox.receive(source.path, hook("d-1"), long)
    counts = (await rig.inbox.refusals(ONE, source.id)).counts
    assert counts == {"method": 1, "address": 1, "too_large": 1}


async def test_a_rate_is_exact_over_nodes_and_tells_when_to_come_back(rig: Rig):
    source = await make_source(rig.inbox, rate_count=5, rate_seconds=3600)
    other = rig.another()
    other.start()
    try:
        replies = await asyncio.gather(
            *(
                send((rig.inbox, other)[n % 2], source.path, hook(f"d-{n}"))
                for n in range(12)
            )
        )
    finally:
        await other.aclose()
    statuses = sorted(reply.status for reply in replies)
    assert statuses == [200] * 5 + [429] * 7
    limited = [reply for reply in replies if reply.status == 429]
    assert all(0 < int(each.headers["retry-after"]) <= 720 for each in limited)
    # What was refused is new when it comes again.
    assert await count(rig.backend, "receipt_key") == 5


async def test_refusals_are_counted_and_the_newest_are_shown_without_secrets(
    rig: Rig,
):
    source = await make_source(rig.inbox)
    credential = ((b"authorization", b"Bearer hunter2"),)
    for n in range(REFUSED_KEPT + 5):
        bad = hook(f"d-{n}", secret="wrong", headers=credential)
        assert (await send(rig.inbox, source.path, bad)).status == 401
    found = await rig.inbox.refusals(ONE, source.id)
    assert found.counts == {"bad_signature": REFUSED_KEPT + 5}
    assert len(found.kept) == REFUSED_KEPT
    ids = [dict(each.headers)["x-github-delivery"] for each in found.kept]
    assert ids[0] == f"d-{REFUSED_KEPT + 4}"
    assert "hunter2" not in str(found)
    assert SECRET not in str(found)
    assert await count(rig.backend, "message") == 0


async def test_an_answer_is_what_the_source_says(rig: Rig):
    source = await make_source(
        rig.inbox,
        response_status=202,
        response_body="<ok/>",
        response_headers={"Content-Type": "text/xml", "X-A": "1"},
    )
    first = await send(rig.inbox, source.path, hook("d-1"))
    again = await send(rig.inbox, source.path, hook("d-1"))
    assert (first.status, first.body) == (202, b"<ok/>")
    assert first.headers["X-A"] == "1"
    assert first == again


async def test_a_batch_of_cloudevents_is_one_receipt_and_a_message_for_each(rig: Rig):
    source = await make_source(
        rig.inbox,
        preset="bearer",
        secrets=("t",),
        options={"format": "cloudevents"},
    )

    def event(n: int) -> bytes:
        return b'{"specversion":"1.0", "type":"t.%d","source":"/s","id":"%d"}' % (n, n)

    def batch(*numbers: int) -> Arrival:
        return Arrival(
            method="POST",
            url="http://127.0.0.1/in/x",
            query=b"",
            headers=(
                (b"authorization", b"Bearer t"),
                (b"content-type", b"application/cloudevents-batch+json"),
            ),
            body=b"[" + b" ,\n".join(event(n) for n in numbers) + b"]",
            address=None,
        )

    first = receipt_of(await send(rig.inbox, source.path, batch(1, 2, 2)))
    found = await rig.inbox.get_receipt(ONE, first)
    assert found.body == batch(1, 2, 2).body
    assert ("authorization", "***") in found.headers
    bodies = await rows(rig.backend, "SELECT body FROM payload ORDER BY message")
    assert [bytes(row["body"]) for row in bodies] == [event(1), event(2)]
    second = receipt_of(await send(rig.inbox, source.path, batch(2, 3)))
    assert second != first
    assert receipt_of(await send(rig.inbox, source.path, batch(1, 3))) == first
    assert receipt_of(await send(rig.inbox, source.path, batch()))
    types = await rows(rig.backend, "SELECT event_type FROM message ORDER BY 1")
    assert [row["event_type"] for row in types] == ["t.1", "t.2", "t.3"]
    # The credential is nowhere in the clear.
    assert await count(rig.backend, "message", "relay LIKE '%Bearer t%'") == 0


async def test_an_event_whose_holder_is_refused_is_not_lost(rig: Rig):
    # One batch: a replay takes the key first, the true event comes second.
    source = await stripe_source(rig, dedupe_key="header:x-id")
    at = await now_s(rig.backend)

    def under(signed: Arrival, name: bytes) -> Arrival:
        return replace(signed, headers=(*signed.headers, (b"x-id", name)))

    old = dated(at, "evt_1")
    receipt_of(await send(rig.inbox, source.path, under(old, b"one")))
    true = dated(at, "evt_2")
    replies = await asyncio.gather(
        send(rig.inbox, source.path, under(old, b"two")),
        send(rig.inbox, source.path, under(true, b"two")),
    )
    assert [reply.status for reply in replies] == [401, 200]
    assert await count(rig.backend, "message") == 2


async def test_a_source_that_cannot_verify_refuses(rig: Rig):
    source = await make_source(rig.inbox)
    await run(rig.backend, "UPDATE source SET secrets = :s, version = 2", s=b"nonsense")
    other = rig.another()
    other.start()
    try:
        reply = await send(other, source.path, hook("d-1"))
    finally:
        await other.aclose()
    assert reply.status == 401


async def test_where_a_type_and_a_key_are_found_can_be_said(rig: Rig):
    source = await make_source(
        rig.inbox,
        event_type="body:/kind/0",
        dedupe_key="query:id",
    )
    arrival = replace(hook("x", body=b'{"kind": ["a b/c"]}'), query=b"id=7%208&id=9")
    receipt = receipt_of(await send(rig.inbox, source.path, arrival))
    found = (await rig.inbox.get_receipt(ONE, receipt)).receipt
    assert (found.event_type, found.event_id) == ("a_b.c", "7 8")


@pytest.mark.parametrize(
    "odd", ["a\\u0000b", "x" * 5000, "\u2028", "'; --"], ids=range(4)
)
async def test_an_event_id_of_any_text_is_told_from_others(rig: Rig, odd: str):
    source = await make_source(rig.inbox, dedupe_key="body:/id")
    body = f'{{"id": "{odd}"}}'.encode()
    first = receipt_of(await send(rig.inbox, source.path, hook("a", body=body)))
    assert receipt_of(await send(rig.inbox, source.path, hook("b", body=body))) == first
    other = f'{{"id": "{odd}-"}}'.encode()
    second = receipt_of(await send(rig.inbox, source.path, hook("a", body=other)))
    assert second != first
    found = await rig.inbox.get_receipt(ONE, first)
    assert found.receipt.event_id is not None


async def test_filters_that_may_take_long_are_asked_before_the_commit(rig: Rig):
    app = await make_app(rig.outbox, tenant=ONE)
    text = "body.items.exists(i, i == 7)"
    wanted = await make_endpoint(
        rig.outbox, app, settings=EndpointSettings(filter=text)
    )
    source = await make_source(rig.inbox, app=app.id)
    bodies = [compact({"items": [n, n + 1]}) for n in range(12)]
    replies = await asyncio.gather(
        *(
            send(rig.inbox, source.path, hook(f"d-{n}", body=body))
            for n, body in enumerate(bodies)
        ),
        # The same event twice in one batch, while its filter is still to be asked.
        send(rig.inbox, source.path, hook("d-7", body=bodies[7])),
    )
    assert receipt_of(replies[7]) == receipt_of(replies[-1])
    made = await rows(
        rig.backend,
        "SELECT p.body, d.endpoint FROM delivery d JOIN payload p"
        " ON p.message = d.message ORDER BY d.message",
    )
    found = sorted((bytes(row["body"]), row["endpoint"]) for row in made)
    assert found == sorted([(bodies[6], wanted.id), (bodies[7], wanted.id)])
    assert await count(rig.backend, "receipt") == 12


async def test_an_unchanged_source_is_asked_of_the_database_once(rig: Rig):
    source = await make_source(rig.inbox)
    await send(rig.inbox, source.path, hook("d-1"))
    ready = await rig.inbox._known.find(source.path)
    await send(rig.inbox, source.path, hook("d-2"))
    assert await rig.inbox._known.find(source.path) is ready
