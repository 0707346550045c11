"""Requests as each provider signs them: by its own published library where there is one,
else by an independent computation from its documentation.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import stripe
import svix
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from slack_sdk.signature import Clock, SignatureVerifier
from standardwebhooks import Webhook
from twilio.request_validator import RequestValidator

from tenure.inbox.arrivals import Arrival

NOW_S = 1_700_000_000
NOW_US = NOW_S * 1_000_000
URL = "https://hooks.example.com/in/source"
WHSEC = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
ED25519 = Ed25519PrivateKey.from_private_bytes(b"7" * 32)
ECDSA = ec.derive_private_key(0x1234567890ABCDEF, ec.SECP256R1())


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A provider's request: how it is verified, and what it must be taken for."""

    preset: str
    secret: str
    other: str
    headers: Mapping[str, str]
    body: bytes
    event_type: str
    key: str | None
    proof: str = ""
    moment: str | None = None
    query: bytes = b""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body_is_proved: bool = True

    def arrival(self, **changes: Any) -> Arrival:
        """Return it as it arrives."""
        given: dict[str, Any] = {
            "method": "POST",
            "url": URL,
            "query": self.query,
            "headers": tuple(
                (name.lower().encode(), value.encode("latin-1"))
                for name, value in self.headers.items()
            ),
            "body": self.body,
            "address": "203.0.113.7",
        }
        return Arrival(**(given | changes))

    def with_header(self, name: str, value: str | None) -> Arrival:
        """Return it with another value of a header, or without it."""
        lines = [(n, v) for n, v in self.arrival().headers if n != name.encode()]
        if value is not None:
            lines.append((name.encode(), value.encode("latin-1")))
        return self.arrival(headers=tuple(lines))


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def mac(secret: bytes, content: bytes, algorithm: str = "sha256") -> bytes:
    return hmac.new(secret, content, algorithm).digest()


def standard(at: int) -> Signed:
    body = compact({"type": "invoice.paid", "data": {"total": 12}})
    when = datetime.fromtimestamp(at, UTC)
    signature = Webhook(WHSEC).sign("msg_1", when, body.decode())
    return Signed(
        preset="standard-webhooks",
        secret=WHSEC,
        other="whsec_" + base64.b64encode(b"x" * 24).decode(),
        headers={
            "webhook-id": "msg_1",
            "webhook-timestamp": str(at),
            "webhook-signature": signature,
        },
        body=body,
        event_type="invoice.paid",
        key="msg_1",
        proof="webhook-signature",
        moment="webhook-timestamp",
    )


def of_svix(at: int) -> Signed:
    body = compact({"type": "user.created"})
    when = datetime.fromtimestamp(at, UTC)
    signature = svix.Webhook(WHSEC).sign("msg_2", when, body.decode())
    return Signed(
        preset="svix",
        secret=WHSEC,
        other="whsec_" + base64.b64encode(b"x" * 24).decode(),
        headers={
            "svix-id": "msg_2",
            "svix-timestamp": str(at),
            "svix-signature": signature,
        },
        body=body,
        event_type="user.created",
        key="msg_2",
        proof="svix-signature",
        moment="svix-timestamp",
    )


def of_stripe(at: int) -> Signed:
    body = compact({"id": "evt_1", "object": "event", "type": "invoice.paid"})
    secret = "whsec_test_secret"
    signature = stripe.WebhookSignature._compute_signature(
        f"{at}.{body.decode()}", secret
    )
    header = f"t={at},v1={signature},v0=6ffbb59b2300aae63f272406069a9788"
    assert stripe.Webhook.construct_event(body, header, secret, tolerance=1 << 40)
    return Signed(
        preset="stripe",
        secret=secret,
        other="whsec_other",
        headers={"stripe-signature": header},
        body=body,
        event_type="invoice.paid",
        key="evt_1",
        proof="stripe-signature",
        moment="stripe-signature",
    )


def github(at: int) -> Signed:
    del at
    # The example of GitHub's documentation: secret, payload and signature.
    secret, body = "It's a Secret to Everybody", b"Hello, World!"
    known = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert mac(secret.encode(), body).hex() == known
    return Signed(
        preset="github",
        secret=secret,
        other="other",
        headers={
            "x-hub-signature-256": f"sha256={known}",
            "x-github-event": "ping",
            "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        },
        body=body,
        event_type="ping",
        key="72d3162e-cc78-11e3-81ab-4c9367dc0958",
        proof="x-hub-signature-256",
    )


def gitlab(at: int) -> Signed:
    del at
    return Signed(
        preset="gitlab",
        secret="a-token",
        other="b-token",
        headers={
            "x-gitlab-token": "a-token",
            "x-gitlab-event": "Push Hook",
            "x-gitlab-event-uuid": "1b6f",
        },
        body=compact({"object_kind": "push"}),
        event_type="push",
        key="1b6f",
        proof="x-gitlab-token",
        body_is_proved=False,
    )


def shopify(at: int) -> Signed:
    del at
    body = compact({"id": 820982911946154508})
    signature = base64.b64encode(mac(b"hush", body)).decode()
    return Signed(
        preset="shopify",
        secret="hush",
        other="hash",
        headers={
            "x-shopify-hmac-sha256": signature,
            "x-shopify-topic": "orders/create",
            "x-shopify-event-id": "98880550",
        },
        body=body,
        event_type="orders.create",
        key="98880550",
        proof="x-shopify-hmac-sha256",
    )


class _At(Clock):
    def __init__(self, at: int) -> None:
        self._at = at

    def now(self) -> float:
        return self._at


def slack(at: int) -> Signed:
    body = compact(
        {"type": "event_callback", "event_id": "Ev1", "event": {"type": "m"}}
    )
    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    signature = SignatureVerifier(secret, _At(at)).generate_signature(
        timestamp=str(at), body=body
    )
    assert signature is not None
    return Signed(
        preset="slack",
        secret=secret,
        other="other",
        headers={"x-slack-signature": signature, "x-slack-request-timestamp": str(at)},
        body=body,
        event_type="m",
        key="Ev1",
        proof="x-slack-signature",
        moment="x-slack-request-timestamp",
    )


def twilio(at: int) -> Signed:
    del at
    form = {"MessageSid": "SM1", "MessageStatus": "delivered", "Body": "grüß & gott"}
    signature = RequestValidator("12345").compute_signature(URL, form)
    return Signed(
        preset="twilio",
        secret="12345",
        other="54321",
        headers={
            "x-twilio-signature": signature,
            "content-type": "application/x-www-form-urlencoded; charset=UTF-8",
        },
        body=urlencode(form).encode(),
        event_type="delivered",
        key=None,
        proof="x-twilio-signature",
    )


def mailgun(at: int) -> Signed:
    token = "a8ce0edb2dd8301dee6c2405235584e45aa91d1e9f979f3de0"
    body = {
        "signature": {
            "timestamp": str(at),
            "token": token,
            "signature": mac(b"key", f"{at}{token}".encode()).hex(),
        },
        "event-data": {"event": "opened", "id": "Ase7i2zsRYeDXztHGENqRA"},
    }
    return Signed(
        preset="mailgun",
        secret="key",
        other="yek",
        headers={"content-type": "application/json"},
        body=compact(body),
        event_type="opened",
        key="Ase7i2zsRYeDXztHGENqRA",
        body_is_proved=False,
    )


def sendgrid(at: int) -> Signed:
    body = compact([{"event": "delivered", "sg_event_id": "e1"}])
    raw = ECDSA.sign(str(at).encode() + body, ec.ECDSA(hashes.SHA256()))
    form = serialization.PublicFormat.SubjectPublicKeyInfo

    def public(key: ec.EllipticCurvePrivateKey) -> str:
        der = key.public_key().public_bytes(serialization.Encoding.DER, form)
        return base64.b64encode(der).decode()

    return Signed(
        preset="sendgrid",
        secret=public(ECDSA),
        other=public(ec.derive_private_key(77, ec.SECP256R1())),
        headers={
            "x-twilio-email-event-webhook-signature": base64.b64encode(raw).decode(),
            "x-twilio-email-event-webhook-timestamp": str(at),
        },
        body=body,
        event_type="delivered",
        key=None,
        proof="x-twilio-email-event-webhook-signature",
        moment="x-twilio-email-event-webhook-timestamp",
    )


def square(at: int) -> Signed:
    del at
    body = compact({"type": "payment.updated", "event_id": "6a8f5f28"})
    signature = base64.b64encode(mac(b"key", URL.encode() + body)).decode()
    return Signed(
        preset="square",
        secret="key",
        other="yek",
        headers={"x-square-hmacsha256-signature": signature},
        body=body,
        event_type="payment.updated",
        key="6a8f5f28",
        proof="x-square-hmacsha256-signature",
    )


def zendesk(at: int) -> Signed:
    body = compact({"type": "zen:event-type:ticket.created", "id": "01H"})
    when = datetime.fromtimestamp(at, UTC).isoformat()
    signature = base64.b64encode(mac(b"dGhp", when.encode() + body)).decode()
    return Signed(
        preset="zendesk",
        secret="dGhp",
        other="cGhp",
        headers={
            "x-zendesk-webhook-signature": signature,
            "x-zendesk-webhook-signature-timestamp": when,
        },
        body=body,
        event_type="zen_event-type_ticket.created",
        key="01H",
        proof="x-zendesk-webhook-signature",
        moment="x-zendesk-webhook-signature-timestamp",
    )


def linear(at: int) -> Signed:
    body = compact({"action": "create", "type": "Issue", "webhookTimestamp": at * 1000})
    return Signed(
        preset="linear",
        secret="lin_wh_1",
        other="lin_wh_2",
        headers={
            "linear-signature": mac(b"lin_wh_1", body).hex(),
            "linear-delivery": "234d1a4e",
        },
        body=body,
        event_type="Issue.create",
        key="234d1a4e",
        proof="linear-signature",
    )


def discord(at: int) -> Signed:
    body = compact({"type": 2, "id": "786008729715212338", "token": "t"})
    signature = ED25519.sign(str(at).encode() + body).hex()
    other = Ed25519PrivateKey.from_private_bytes(b"8" * 32)
    return Signed(
        preset="discord",
        secret=ED25519.public_key().public_bytes_raw().hex(),
        other=other.public_key().public_bytes_raw().hex(),
        headers={"x-signature-ed25519": signature, "x-signature-timestamp": str(at)},
        body=body,
        event_type="2",
        key="786008729715212338",
        proof="x-signature-ed25519",
        moment="x-signature-timestamp",
    )


def meta(at: int) -> Signed:
    del at
    body = compact({"object": "page", "entry": []})
    return Signed(
        preset="meta",
        secret="app",
        other="ppa",
        headers={"x-hub-signature-256": f"sha256={mac(b'app', body).hex()}"},
        body=body,
        event_type="page",
        key=None,
        proof="x-hub-signature-256",
    )


def of_x(at: int) -> Signed:
    del at
    body = compact({"for_user_id": "2244994945"})
    signature = base64.b64encode(mac(b"consumer", body)).decode()
    return Signed(
        preset="x",
        secret="consumer",
        other="remusnoc",
        headers={"x-twitter-webhooks-signature": f"sha256={signature}"},
        body=body,
        event_type="webhook.received",
        key=None,
        proof="x-twitter-webhooks-signature",
    )


def generic(at: int) -> Signed:
    body = compact({"type": "thing.done"})
    signature = mac(b"\x01\x02", f"{at * 1000}|".encode() + body + b"|end", "sha512")
    return Signed(
        preset="hmac",
        secret="0102",
        other="0103",
        headers={
            "x-sum": "v=" + base64.urlsafe_b64encode(signature).decode().rstrip("="),
            "x-at": str(at * 1000),
        },
        body=body,
        event_type="thing.done",
        key=None,
        proof="x-sum",
        moment="x-at",
        options={
            "header": "X-Sum",
            "algorithm": "sha512",
            "encoding": "base64url",
            "prefix": "v=",
            "secret_encoding": "hex",
            "signed": "{timestamp}|{body}|end",
            "timestamp": "header:X-At",
            "timestamp_unit": "ms",
        },
    )


def basic(at: int) -> Signed:
    del at
    token = base64.b64encode(b"user:pass word").decode()
    return Signed(
        preset="basic",
        secret="user:pass word",
        other="user:password",
        headers={"authorization": f"Basic {token}", "x-event-type": "a.b"},
        body=b"{}",
        event_type="a.b",
        key=None,
        proof="authorization",
        body_is_proved=False,
    )


def bearer(at: int) -> Signed:
    del at
    return Signed(
        preset="bearer",
        secret="s3cr3t",
        other="s3cr3t2",
        headers={"authorization": "Bearer s3cr3t"},
        body=compact({"type": "a.b"}),
        event_type="a.b",
        key=None,
        proof="authorization",
        body_is_proved=False,
    )


def api_key(at: int) -> Signed:
    del at
    return Signed(
        preset="api-key",
        secret="k1",
        other="k2",
        headers={"x-my-key": "k1"},
        body=compact({"type": "a.b"}),
        event_type="a.b",
        key=None,
        proof="x-my-key",
        options={"header": "X-My-Key"},
        body_is_proved=False,
    )


def mtls(at: int) -> Signed:
    del at
    return Signed(
        preset="mtls-header",
        secret="aa:bb",
        other="aa:bc",
        headers={"x-client-cert-fingerprint": "aa:bb"},
        body=b"{}",
        event_type="webhook.received",
        key=None,
        proof="x-client-cert-fingerprint",
        body_is_proved=False,
    )


SIGNED: Mapping[str, Callable[[int], Signed]] = {
    "standard-webhooks": standard,
    "svix": of_svix,
    "stripe": of_stripe,
    "github": github,
    "gitlab": gitlab,
    "shopify": shopify,
    "slack": slack,
    "twilio": twilio,
    "mailgun": mailgun,
    "sendgrid": sendgrid,
    "square": square,
    "zendesk": zendesk,
    "linear": linear,
    "discord": discord,
    "meta": meta,
    "x": of_x,
    "hmac": generic,
    "basic": basic,
    "bearer": bearer,
    "api-key": api_key,
    "mtls-header": mtls,
}
"""How each preset's provider signs at an instant (Unix seconds)."""
