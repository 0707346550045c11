"""Signing as providers do: the other side of `tenure.inbox.verification`.

It signs what it is told with the secret it is given; nothing here reads a source.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tenure.clock import US, to_rfc3339
from tenure.errors import BadRequest
from tenure.ids import new_id, random_bytes, token
from tenure.inbox.samples.bodies import EVENTS, FALLBACK
from tenure.inbox.verification import PRESETS
from tenure.inbox.verification.presets import Scheme
from tenure.outbox.secrets import new_secret as standard_secret
from tenure.outbox.secrets import parse_secret
from tenure.outbox.signing import sign

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Sample", "new_secret", "sample"]

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A signed request."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    query: str = ""


def new_secret(preset: str) -> tuple[str, str]:
    """Return a secret that signs samples of a preset, and the one that verifies them."""
    match PRESETS[preset].scheme:
        case Scheme.STANDARD:
            text = standard_secret().secret_text()
            return text, text
        case Scheme.ED25519:
            key = Ed25519PrivateKey.from_private_bytes(random_bytes(32))
            return (
                key.private_bytes_raw().hex(),
                key.public_key().public_bytes_raw().hex(),
            )
        case Scheme.ECDSA:
            private = ec.generate_private_key(ec.SECP256R1())
            return _der(private), _public_der(private)
        case Scheme.BASIC:
            text = f"sample:{token(18)}"
            return text, text
        case Scheme.NETWORKS | Scheme.NOTHING:
            return "", ""
        case _:
            text = token(24)
            return text, text


def sample(
    preset: str,
    event: str,
    secret: str,
    *,
    url: str,
    now_us: int,
    options: Mapping[str, Any] | None = None,
) -> Sample:
    """Return an event as this preset's provider would send it.

    Raises BadRequest for an unknown preset, and where the secret only verifies.
    """
    if preset not in PRESETS:
        raise BadRequest(f"{preset!r} is no preset; there are {', '.join(PRESETS)}")
    id_ = new_id("smpl").removeprefix("smpl_")
    known = EVENTS.get(preset, {})
    text = known.get(event, FALLBACK.replace("{event}", event))
    now_s = now_us // US
    text = text.replace("{id}", id_).replace("{now}", str(now_s))
    made = _Made(
        preset=preset,
        event=event,
        id=id_,
        secret=secret,
        url=url,
        now_s=now_s,
        options=options or {},
    )
    try:
        return made.signed(text.encode())
    except ValueError as error:
        raise BadRequest(f"cannot be signed with this secret: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    preset: str
    event: str
    id: str
    secret: str
    url: str
    now_s: int
    options: Mapping[str, Any]

    @property
    def _key(self) -> bytes:
        return self.secret.encode()

    def _mac(self, content: bytes, algorithm: str = "sha256") -> bytes:
        return hmac.new(self._key, content, algorithm).digest()

    def signed(self, body: bytes) -> Sample:
        """Sign a body as the preset says."""
        match self.preset:
            case "standard-webhooks" | "svix":
                return self._standard(body)
            case "stripe":
                mac = self._mac(b"%d." % self.now_s + body).hex()
                return self._with(
                    body, {"stripe-signature": f"t={self.now_s},v1={mac}"}
                )
            case "twilio":
                return self._twilio(body)
            case "mailgun":
                return self._mailgun(body)
            case "sendgrid" | "discord":
                return self._asymmetric(body)
            case _:
                return self._with(body, self._headers(body))

    def _with(
        self, body: bytes, headers: Mapping[str, str], kind: str = JSON
    ) -> Sample:
        return Sample(body=body, headers={"content-type": kind, **headers})

    def _headers(self, body: bytes) -> dict[str, str]:
        mac, encoded = self._mac(body), base64.b64encode(self._mac(body)).decode()
        family, _, action = self.event.partition(".")
        match self.preset:
            case "github":
                return {
                    "x-github-event": family if action else self.event,
                    "x-github-delivery": self.id,
                    "x-hub-signature-256": f"sha256={mac.hex()}",
                }
            case "gitlab":
                return {"x-gitlab-token": self.secret, "x-gitlab-event-uuid": self.id}
            case "shopify":
                return {
                    "x-shopify-topic": self.event,
                    "x-shopify-event-id": self.id,
                    "x-shopify-hmac-sha256": encoded,
                }
            case "slack":
                content = b"v0:%d:" % self.now_s + body
                return {
                    "x-slack-request-timestamp": str(self.now_s),
                    "x-slack-signature": f"v0={self._mac(content).hex()}",
                }
            case "square":
                raw = base64.b64encode(self._mac(self.url.encode() + body))
                return {"x-square-hmacsha256-signature": raw.decode()}
            case "zendesk":
                when = to_rfc3339(self.now_s * US)
                raw = base64.b64encode(self._mac(when.encode() + body))
                return {
                    "x-zendesk-webhook-signature-timestamp": when,
                    "x-zendesk-webhook-signature": raw.decode(),
                }
            case "linear":
                return {"linear-signature": mac.hex(), "linear-delivery": self.id}
            case "meta":
                return {"x-hub-signature-256": f"sha256={mac.hex()}"}
            case "x":
                return {"x-twitter-webhooks-signature": f"sha256={encoded}"}
            case _:
                return self._generic(body)

    def _generic(self, body: bytes) -> dict[str, str]:
        scheme = PRESETS[self.preset].with_
        header = str(self.options.get("header", scheme.get("header", ""))).lower()
        match self.preset:
            case "hmac":
                return self._hmac(body, header)
            case "basic":
                return {
                    "authorization": f"Basic {base64.b64encode(self._key).decode()}"
                }
            case "bearer" | "api-key" | "mtls-header":
                return {header: f"{scheme.get('prefix', '')}{self.secret}"}
            case _:
                return {}

    def _hmac(self, body: bytes, header: str) -> dict[str, str]:
        options = self.options
        for name in ("member", "timestamp"):
            if name in options:
                raise ValueError(f"samples are not made for the option `{name}`")
        form = options.get("secret_encoding", "text")
        key = {"hex": bytes.fromhex, "base64": base64.b64decode}.get(form, str.encode)(
            self.secret
        )
        template = str(options.get("signed", "{body}"))
        before, _, after = template.partition("{body}")
        content = before.replace("{url}", self.url).encode() + body
        content += after.replace("{url}", self.url).encode()
        mac = hmac.new(key, content, options.get("algorithm", "sha256")).digest()
        encoding = options.get("encoding", "hex")
        text = {
            "hex": mac.hex(),
            "base64": base64.b64encode(mac).decode(),
            "base64url": base64.urlsafe_b64encode(mac).decode().rstrip("="),
        }[encoding]
        return {header: f"{options.get('prefix', '')}{text}"}

    def _standard(self, body: bytes) -> Sample:
        family = "svix" if self.preset == "svix" else "webhook"
        signature = sign(parse_secret(self.secret), f"msg_{self.id}", self.now_s, body)
        return self._with(
            body,
            {
                f"{family}-id": f"msg_{self.id}",
                f"{family}-timestamp": str(self.now_s),
                f"{family}-signature": signature,
            },
        )

    def _twilio(self, body: bytes) -> Sample:
        form = sorted(parse_qsl(body.decode(), keep_blank_values=True))
        content = self.url + "".join(name + value for name, value in form)
        mac = base64.b64encode(self._mac(content.encode(), "sha1")).decode()
        return self._with(body, {"x-twilio-signature": mac}, FORM)

    def _mailgun(self, body: bytes) -> Sample:
        mark = hashlib.sha256(self.id.encode()).hexdigest()[:50]
        signature = {
            "timestamp": str(self.now_s),
            "token": mark,
            "signature": self._mac(f"{self.now_s}{mark}".encode()).hex(),
        }
        whole = {"signature": signature, "event-data": json.loads(body)}
        return self._with(json.dumps(whole).encode(), {})

    def _asymmetric(self, body: bytes) -> Sample:
        content = str(self.now_s).encode() + body
        if self.preset == "discord":
            key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(self.secret))
            return self._with(
                body,
                {
                    "x-signature-timestamp": str(self.now_s),
                    "x-signature-ed25519": key.sign(content).hex(),
                },
            )
        private = serialization.load_der_private_key(
            base64.b64decode(self.secret), password=None
        )
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ValueError("wanted: a private P-256 key")  # noqa: TRY004 -- its text
        name = "x-twilio-email-event-webhook"
        raw = private.sign(content, ec.ECDSA(hashes.SHA256()))
        return self._with(
            body,
            {
                f"{name}-timestamp": str(self.now_s),
                f"{name}-signature": base64.b64encode(raw).decode(),
            },
        )


def _der(private: ec.EllipticCurvePrivateKey) -> str:
    raw = private.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return base64.b64encode(raw).decode()


def _public_der(private: ec.EllipticCurvePrivateKey) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    raw = private.public_key().public_bytes(serialization.Encoding.DER, form)
    return base64.b64encode(raw).decode()
