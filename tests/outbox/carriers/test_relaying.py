"""A relayed request: the provider's proof goes on, ours goes beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import standardwebhooks
import svix.webhooks
from standardwebhooks import webhooks

from tenure.outbox.carriers.relaying import relay_headers, relay_method, relay_url
from tenure.outbox.http.url import parse_url
from tenure.outbox.keyring import KeyRing
from tenure.outbox.model import EndpointSettings
from tenure.outbox.outbox import Outbox
from tenure.outbox.relayed import Relay, dump
from tenure.testing import Receiver
from tests.outbox.sending import Sender
from tests.outbox.world import ONE, accept, make_app, make_endpoint

PROVIDER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"n":  1}'


def _signed(family: str) -> tuple[tuple[str, str], ...]:
    """What a provider of Standard Webhooks sends, by the published library."""
    now = datetime.now(UTC)
    signature = standardwebhooks.Webhook(PROVIDER).sign("p_1", now, BODY.decode())
    values = ("p_1", str(int(now.timestamp())), signature)
    parts = ("Id", "Timestamp", "Signature")
    return tuple((f"{family}-{part}", v) for part, v in zip(parts, values, strict=True))


def _relay(*headers: tuple[str, str], **changes: Any) -> Relay:
    fields: dict[str, Any] = {"method": "PUT", "query": "a=1&b=%20\xe9"}
    return Relay(
        receipt="rcpt_1", source="src_a", headers=headers, **(fields | changes)
    )


def _sent(relay: Relay, **changes: Any) -> list[tuple[str, str]]:
    fields: dict[str, Any] = {
        "message_id": "msg_1",
        "timestamp": 1,
        "signatures": "v1,ours",
        "attempt_number": 2,
        "content_type": None,
        "custom": (),
        "drop": None,
        "user_agent": "Tenure/test",
        "svix_headers": False,
        "userinfo": None,
    }
    made = relay_headers(relay, **(fields | changes))
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in made]


@pytest.mark.parametrize("family", ["Webhook", "Svix"])
async def test_a_target_checks_the_providers_signature_and_ours_by_published_clients(
    family: str, outbox: Outbox, sender: Sender, ring: KeyRing
) -> None:
    async with Receiver() as receiver:
        app = await make_app(outbox)
        wanted = EndpointSettings(method="same", relay_query=True)
        made = await make_endpoint(
            outbox, app, f"{receiver.url}/hook?x=1", settings=wanted
        )
        secret = await outbox.endpoint_secret(ONE, app.id, made.id)
        relay = _relay(("Content-Type", "application/x-a; B=C"), *_signed(family))
        await accept(outbox, app, body=BODY, relay=dump(relay, ring.seal, ()))
        await sender.work_off()
        (got,) = receiver.requests
    assert (got.method, got.body) == ("PUT", BODY)
    assert got.target == "/hook?x=1&a=1&b=%20%E9"
    assert got.header("content-type") == "application/x-a; B=C"
    assert (got.header("tenure-source"), got.header("tenure-receipt")) == (
        "src_a",
        "rcpt_1",
    )
    theirs = svix.webhooks if family == "Svix" else webhooks
    headers = dict(got.headers)
    theirs.Webhook(PROVIDER).verify(BODY, headers)  # raises, or it is theirs
    with pytest.raises(theirs.WebhookVerificationError):
        theirs.Webhook(PROVIDER).verify(BODY + b" ", headers)  # the control
    ours = "tenure-webhook" if family == "Webhook" else "webhook"
    renamed = {
        f"webhook-{part}": headers[f"{ours}-{part}"]
        for part in ("id", "timestamp", "signature")
    }
    assert standardwebhooks.Webhook(secret).verify(BODY, renamed) == {"n": 1}


def test_headers_are_passed_on_in_order_with_repeats_less_what_is_dropped() -> None:
    relay = _relay(
        ("X-Stripe", "t=1"),
        ("Host", "a"),
        ("Connection", "keep-alive, X-Hop"),
        ("x-hop", "1"),
        ("x-stripe", "again\xe9"),
        ("Cookie", "c"),
        ("Authorization", "Bearer b"),
        ("X-Forwarded-For", "1.2.3.4"),
        ("Forwarded", "for=1"),
        ("Proxy-Authorization", "p"),
        ("Tenure-Source", "forged"),
        ("Content-Length", "9"),
        ("Transfer-Encoding", "chunked"),
        ("Expect", "100-continue"),
        ("User-Agent", "provider"),
    )
    assert _sent(relay) == [
        ("webhook-id", "msg_1"),
        ("webhook-timestamp", "1"),
        ("webhook-signature", "v1,ours"),
        ("tenure-attempt", "2"),
        ("tenure-source", "src_a"),
        ("tenure-receipt", "rcpt_1"),
        ("accept", "*/*"),
        ("X-Stripe", "t=1"),
        ("x-stripe", "again\xe9"),
        ("User-Agent", "provider"),
    ]
    own = _sent(relay, drop=("x-str*",), custom=(("Cookie", "mine"),))
    names = [name for name, _ in own]
    assert "X-Stripe" not in names
    assert "x-stripe" not in names
    assert ("Authorization", "Bearer b") in own
    assert own[-1] == ("Cookie", "mine")
    assert names.count("Cookie") == 1
    assert not {"Host", "Expect", "x-hop", "Tenure-Source"} & set(names)
    basic = _sent(relay, drop=(), userinfo="me:pw")
    assert [v for n, v in basic if n.lower() == "authorization"] == ["Basic bWU6cHc="]


def test_a_provider_that_signs_as_svix_keeps_its_names_beside_ours() -> None:
    sent = dict(_sent(_relay(("Svix-Id", "p_1")), svix_headers=True))
    assert (sent["Svix-Id"], sent["webhook-id"]) == ("p_1", "msg_1")
    assert "svix-id" not in sent
    assert dict(_sent(_relay(), svix_headers=True))["svix-id"] == "msg_1"


def test_the_method_and_the_query_are_repeated_where_they_can_be() -> None:
    assert relay_method("PATCH", _relay()) == "PATCH"
    assert relay_method("same", _relay()) == "PUT"
    assert relay_method("same", _relay(method="GET")) == "POST"
    assert relay_method("same", None) == "POST"
    url = parse_url("https://a.example/x")
    assert relay_url(url, _relay()).target == b"/x?a=1&b=%20%E9"
    assert relay_url(url, _relay(query="")) is url
