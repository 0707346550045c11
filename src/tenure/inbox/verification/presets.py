"""Presets: each provider's way to sign, as data.

A preset names how a request proves where it comes from, where its event type and event
id stand, and which handshake its provider makes. What differs from provider to provider
is here; what is done with it is in `proofs` and `checks`. `docs` says what people need to
know, and where the rules are published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

__all__ = ["PRESETS", "Preset", "Scheme", "Shake"]


class Scheme(StrEnum):
    """The class of `tenure.inbox.verification.proofs` that checks it."""

    HMAC = "hmac"
    STANDARD = "standard"
    TOKEN = "token"  # noqa: S105 -- a scheme's name
    BASIC = "basic"
    TWILIO = "twilio"
    MAILGUN = "mailgun"
    ECDSA = "ecdsa"
    ED25519 = "ed25519"
    NETWORKS = "networks"
    NOTHING = "nothing"


class Shake(StrEnum):
    """A handshake that a provider makes before it sends, or now and then."""

    SLACK = "slack"
    META = "meta"
    X = "x"
    DISCORD = "discord"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One provider, or one generic way.

    `with_` are the scheme's own values; an option of the same name of a source wins
    where `settable` names it. `event_type` and `event_id` are tried in order: locators
    (`header:`, `body:`), joined by `+` where a type has two parts.
    """

    name: str
    title: str
    scheme: Scheme
    secret: str
    event_type: tuple[str, ...] = ()
    event_id: tuple[str, ...] = ()
    with_: Mapping[str, Any] = field(default_factory=dict[str, Any])
    settable: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    shake: Shake | None = None
    docs: str = ""


def _timestamp(place: str, name: str, per_second: int = 1) -> Mapping[str, Any]:
    return {"place": place, "name": name, "per_second": per_second}


_URL_NOTE: Final = (
    "The URL is signed: set `publicUrl` where a proxy changes scheme, host or path."
)
_BODY_NOTE: Final = (
    "Only the body is signed, so a captured request can come again under another event"
    " id; `strict_replay` accepts each signature once."
)

_ALL: Final = (
    Preset(
        name="standard-webhooks",
        title="Standard Webhooks",
        scheme=Scheme.STANDARD,
        secret="whsec_… (or whsk_…, whpk_… for v1a)",  # noqa: S106 -- a form
        event_type=("body:/type", "body:/eventType", "body:/event_type"),
        event_id=("header:webhook-id", "header:svix-id"),
        docs="Symmetric (v1) and asymmetric (v1a) signatures; several of each.",
    ),
    Preset(
        name="svix",
        title="Svix",
        scheme=Scheme.STANDARD,
        secret="whsec_…",  # noqa: S106 -- a form
        event_type=("body:/type", "body:/eventType", "body:/event_type"),
        event_id=("header:svix-id", "header:webhook-id"),
        docs="As Standard Webhooks, with `svix-*` headers.",
    ),
    Preset(
        name="stripe",
        title="Stripe",
        scheme=Scheme.HMAC,
        secret="whsec_…, used as it is",  # noqa: S106 -- a form
        event_type=("body:/type",),
        event_id=("body:/id",),
        with_={
            "header": "stripe-signature",
            "member": "v1",
            "timestamp": _timestamp("pair", "t"),
            "content": ("{timestamp}", ".", "{body}"),
        },
        docs="Any of several `v1` signatures may fit (secret roll); `v0` is ignored.",
    ),
    Preset(
        name="github",
        title="GitHub",
        scheme=Scheme.HMAC,
        secret="the webhook's secret",  # noqa: S106 -- a form
        event_type=("header:x-github-event+body:/action", "header:x-github-event"),
        event_id=("header:x-github-delivery",),
        with_={
            "header": "x-hub-signature-256",
            "prefix": "sha256=",
            "content": ("{body}",),
        },
        docs=f"The SHA-1 header is ignored. {_BODY_NOTE}",
    ),
    Preset(
        name="gitlab",
        title="GitLab",
        scheme=Scheme.TOKEN,
        secret="the secret token",  # noqa: S106 -- a form
        event_type=("body:/object_kind", "header:x-gitlab-event"),
        event_id=("header:x-gitlab-event-uuid", "header:idempotency-key"),
        with_={"header": "x-gitlab-token"},
        docs="The token is sent with each request; it proves nothing about the body.",
    ),
    Preset(
        name="shopify",
        title="Shopify",
        scheme=Scheme.HMAC,
        secret="the app's client secret",  # noqa: S106 -- a form
        event_type=("header:x-shopify-topic",),
        event_id=("header:x-shopify-event-id", "header:x-shopify-webhook-id"),
        with_={
            "header": "x-shopify-hmac-sha256",
            "encoding": "base64",
            "content": ("{body}",),
        },
        docs=_BODY_NOTE,
    ),
    Preset(
        name="slack",
        title="Slack",
        scheme=Scheme.HMAC,
        secret="the app's signing secret",  # noqa: S106 -- a form
        event_type=("body:/event/type", "body:/type"),
        event_id=("body:/event_id",),
        with_={
            "header": "x-slack-signature",
            "prefix": "v0=",
            "timestamp": _timestamp("header", "x-slack-request-timestamp"),
            "content": ("v0:", "{timestamp}", ":", "{body}"),
        },
        shake=Shake.SLACK,
        docs="`url_verification` is answered when its signature holds.",
    ),
    Preset(
        name="twilio",
        title="Twilio",
        scheme=Scheme.TWILIO,
        secret="the account's auth token",  # noqa: S106 -- a form
        event_type=(
            "form:MessageStatus",
            "form:SmsStatus",
            "form:CallStatus",
            "body:/type",
        ),
        event_id=("header:i-twilio-idempotency-token",),
        docs=_URL_NOTE,
    ),
    Preset(
        name="mailgun",
        title="Mailgun",
        scheme=Scheme.MAILGUN,
        secret="the HTTP webhook signing key",  # noqa: S106 -- a form
        event_type=("body:/event-data/event", "form:event"),
        event_id=("body:/event-data/id", "form:token"),
        docs="Timestamp and token are signed, the event beside them is not.",
    ),
    Preset(
        name="sendgrid",
        title="SendGrid",
        scheme=Scheme.ECDSA,
        secret="the verification key (base64 of a public key)",  # noqa: S106 -- a form
        event_type=("body:/0/event",),
        with_={
            "header": "x-twilio-email-event-webhook-signature",
            "timestamp": _timestamp("header", "x-twilio-email-event-webhook-timestamp"),
        },
        docs="One request carries several events; it stays one receipt.",
    ),
    Preset(
        name="square",
        title="Square",
        scheme=Scheme.HMAC,
        secret="the subscription's signature key",  # noqa: S106 -- a form
        event_type=("body:/type",),
        event_id=("body:/event_id",),
        with_={
            "header": "x-square-hmacsha256-signature",
            "encoding": "base64",
            "content": ("{url}", "{body}"),
        },
        docs=_URL_NOTE,
    ),
    Preset(
        name="zendesk",
        title="Zendesk",
        scheme=Scheme.HMAC,
        secret="the webhook's signing secret",  # noqa: S106 -- a form
        event_type=("body:/type",),
        event_id=("body:/id", "header:x-zendesk-webhook-invocation-id"),
        with_={
            "header": "x-zendesk-webhook-signature",
            "encoding": "base64",
            "timestamp": _timestamp(
                "header", "x-zendesk-webhook-signature-timestamp", 0
            ),
            "content": ("{timestamp}", "{body}"),
        },
    ),
    Preset(
        name="linear",
        title="Linear",
        scheme=Scheme.HMAC,
        secret="the webhook's signing secret",  # noqa: S106 -- a form
        event_type=("body:/type+body:/action", "header:linear-event"),
        event_id=("header:linear-delivery",),
        with_={
            "header": "linear-signature",
            "timestamp": _timestamp("body", "webhookTimestamp", 1000),
            "content": ("{body}",),
        },
        docs="The instant stands in the signed body, in milliseconds.",
    ),
    Preset(
        name="discord",
        title="Discord",
        scheme=Scheme.ED25519,
        secret="the application's public key (hex)",  # noqa: S106 -- a form
        event_type=("body:/event/type", "body:/type"),
        event_id=("body:/id",),
        with_={
            "header": "x-signature-ed25519",
            "timestamp": _timestamp("header", "x-signature-timestamp"),
        },
        shake=Shake.DISCORD,
        docs="A ping is answered after its signature was checked.",
    ),
    Preset(
        name="meta",
        title="Meta (Facebook, Instagram, WhatsApp)",
        scheme=Scheme.HMAC,
        secret="the app secret, and verify:TOKEN",  # noqa: S106 -- a form
        event_type=("body:/object",),
        with_={
            "header": "x-hub-signature-256",
            "prefix": "sha256=",
            "content": ("{body}",),
        },
        shake=Shake.META,
        docs="`hub.challenge` is answered when the verify token fits: give that as a"
        f" further secret, `verify:TOKEN`. {_BODY_NOTE}",
    ),
    Preset(
        name="x",
        title="X (Twitter)",
        scheme=Scheme.HMAC,
        secret="the app's consumer secret",  # noqa: S106 -- a form
        with_={
            "header": "x-twitter-webhooks-signature",
            "prefix": "sha256=",
            "encoding": "base64",
            "content": ("{body}",),
        },
        shake=Shake.X,
        docs=f"The challenge-response check (GET with `crc_token`) is answered."
        f" {_BODY_NOTE}",
    ),
    Preset(
        name="hmac",
        title="Generic HMAC",
        scheme=Scheme.HMAC,
        secret="the shared secret, as text",  # noqa: S106 -- a form
        event_type=("header:x-event-type", "body:/type"),
        with_={
            "header": "x-signature",
            "content": ("{body}",),
            "secret_encoding": "text",
        },
        settable=frozenset(
            {
                "header",
                "algorithm",
                "encoding",
                "prefix",
                "signed",
                "member",
                "timestamp",
                "timestamp_unit",
                "secret_encoding",
            }
        ),
        docs="Options: `header`, `algorithm` (sha1, sha256, sha384, sha512), `encoding`"
        " (hex, base64, base64url), `prefix`, `member` (of a `k=v,k=v` header),"
        " `signed` (a template of `{body}`, `{timestamp}`, `{url}`, `{header:name}`),"
        " `timestamp` (`header:name` or `pair:name`), `timestamp_unit` (s, ms),"
        " `secret_encoding` (text, hex, base64).",
    ),
    Preset(
        name="basic",
        title="HTTP basic authentication",
        scheme=Scheme.BASIC,
        secret="user:password",  # noqa: S106 -- a form
        event_type=("header:x-event-type", "body:/type"),
    ),
    Preset(
        name="bearer",
        title="Bearer token",
        scheme=Scheme.TOKEN,
        secret="the token",  # noqa: S106 -- a form
        event_type=("header:x-event-type", "body:/type"),
        with_={"header": "authorization", "prefix": "Bearer "},
    ),
    Preset(
        name="api-key",
        title="API key in a header",
        scheme=Scheme.TOKEN,
        secret="the key",  # noqa: S106 -- a form
        event_type=("header:x-event-type", "body:/type"),
        with_={"header": "x-api-key"},
        settable=frozenset({"header"}),
        docs="Option: `header`.",
    ),
    Preset(
        name="mtls-header",
        title="Client certificate, told by a proxy",
        scheme=Scheme.TOKEN,
        secret="what the header says of the certificate",  # noqa: S106 -- a form
        event_type=("header:x-event-type", "body:/type"),
        with_={"header": "x-client-cert-fingerprint"},
        settable=frozenset({"header"}),
        docs="The proxy must remove this header from what it receives. Option:"
        " `header`.",
    ),
    Preset(
        name="ip-list",
        title="Networks",
        scheme=Scheme.NETWORKS,
        secret="",
        event_type=("header:x-event-type", "body:/type"),
        settable=frozenset({"networks"}),
        required=frozenset({"networks"}),
        docs="Option: `networks`, a list of CIDR blocks.",
    ),
    Preset(
        name="none",
        title="None: whoever knows the URL",
        scheme=Scheme.NOTHING,
        secret="",
        event_type=("header:x-event-type", "body:/type"),
        docs="The source's path cannot be guessed; treat it as a secret.",
    ),
)

PRESETS: Final[Mapping[str, Preset]] = {preset.name: preset for preset in _ALL}
"""Every preset by its name."""
