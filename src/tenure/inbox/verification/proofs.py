"""How a request proves where it comes from: one small class for each way.

Every proof reads the raw bytes, compares in constant time and treats all input as
hostile: what cannot be read is refused, never raised. A proof answers what was signed
(its nonce), or why it does not hold.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from tenure.clock import US, from_rfc3339
from tenure.inbox.arrivals import is_within
from tenure.inbox.verification.forms import parse_form
from tenure.inbox.verification.model import Refusal, RefusalReason
from tenure.limits import PROOF_BYTES, PROOFS_MAX
from tenure.outbox import signing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from ipaddress import IPv4Network, IPv6Network

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from tenure.inbox.arrivals import Arrival
    from tenure.outbox.secrets import Secret

__all__ = [
    "Basic",
    "Bytes",
    "Hmac",
    "Mailgun",
    "Networks",
    "Nothing",
    "Proof",
    "Proved",
    "PublicKey",
    "Standard",
    "Timestamp",
    "Token",
    "Twilio",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """The proof holds; `nonce` is None where nothing but the body is signed."""

    nonce: bytes | None = None
    signature: bytes | None = None


Bytes: TypeAlias = "tuple[str, ...]"
"""What is signed: parts that are literals or `{body}`, `{timestamp}`, `{url}`."""


class Proof(Protocol):
    """One way to prove where a request comes from."""

    def check(self, arrival: Arrival, now_us: int) -> Proved | Refusal:
        """Return what was proved, or why not."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Timestamp:
    """Where the signed instant is: `header`, a member of a `pairs` header, or `body`.

    `per_second` is 1 for seconds, 1000 for milliseconds, 0 for RFC 3339 text.
    """

    place: str
    name: str
    per_second: int = 1
    tolerance_us: int

    def fault(self, text: str, now_us: int) -> Refusal | None:
        """Return what speaks against a signed instant."""
        at = self._instant(text)
        if at is None:
            units = {0: "RFC 3339", 1: "whole Unix seconds"}
            unit = units.get(self.per_second, "whole Unix milliseconds")
            return malformed(f"the timestamp is not {unit}")
        age = now_us - at
        if age > self.tolerance_us:
            return Refusal(
                reason=RefusalReason.TOO_OLD,
                detail=f"signed {age // US} s ago, by the clock here; at most"
                f" {self.tolerance_us // US} s are accepted",
            )
        if -age > self.tolerance_us:
            return Refusal(
                reason=RefusalReason.TOO_NEW,
                detail=f"signed {-age // US} s in the future, by the clock here; at"
                f" most {self.tolerance_us // US} s are accepted",
            )
        return None

    def _instant(self, text: str) -> int | None:
        if self.per_second == 0:
            try:
                return from_rfc3339(text)
            except ValueError:
                return None
        if not (text.isascii() and text.isdigit() and len(text) <= 20):
            return None
        return int(text) * US // self.per_second


def missing(name: str) -> Refusal:
    """Return the refusal of a request without this header."""
    return Refusal(
        reason=RefusalReason.MISSING_HEADER, detail=f"{name} is missing or empty"
    )


def malformed(detail: str) -> Refusal:
    """Return the refusal of a proof that cannot be read."""
    return Refusal(reason=RefusalReason.MALFORMED, detail=detail)


def unfit(name: str) -> Refusal:
    """Return the refusal of a proof that no secret made."""
    return Refusal(
        reason=RefusalReason.BAD_SIGNATURE,
        detail=f"no secret of the source fits {name} and these bytes",
    )


def one(arrival: Arrival, name: str) -> str | Refusal:
    """Return a proof's header; twice, nobody knows which one was meant."""
    values = arrival.all(name)
    if len(values) > 1:
        return malformed(f"{name} is there {len(values)} times")
    if not values or not values[0].strip():
        return missing(name)
    value = values[0].strip()
    if len(value) > PROOF_BYTES:
        return malformed(f"{name} is longer than {PROOF_BYTES} bytes")
    return value


def decoded(text: str, encoding: str) -> bytes | None:
    """Return the bytes of a signature; None when it is not in this encoding."""
    try:
        raw = text.encode("ascii")
        if encoding == "hex":
            return bytes.fromhex(text) if text.isalnum() else None
        if encoding == "base64url":
            return base64.b64decode(raw + b"=" * (-len(raw) % 4), b"-_", validate=True)
        return base64.b64decode(raw, validate=True)
    except (ValueError, binascii.Error):
        return None


def digest_of(key: bytes, parts: Iterable[bytes], algorithm: str) -> bytes:
    """Return the HMAC of the joined parts."""
    mac = hmac.new(key, digestmod=algorithm)
    for part in parts:
        mac.update(part)
    return mac.digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hmac:
    """A keyed hash in a header, over parts of the request.

    `member` names the signatures inside of a `k=v,k=v` header; None means that the
    header is the signature, behind `prefix`. `names` of a `{header:…}` part are lower
    case.
    """

    keys: tuple[bytes, ...]
    header: str
    content: Bytes
    algorithm: str = "sha256"
    encoding: str = "hex"
    prefix: str = ""
    member: str | None = None
    timestamp: Timestamp | None = None
    url: str | None = None

    def check(self, arrival: Arrival, now_us: int) -> Proved | Refusal:
        """Return what was proved, or why not."""
        value = one(arrival, self.header)
        if isinstance(value, Refusal):
            return value
        pairs = _pairs(value) if self.member is not None else []
        signatures = self._signatures(value, pairs)
        if isinstance(signatures, Refusal):
            return signatures
        moment = self._moment(arrival, pairs)
        if isinstance(moment, Refusal):
            return moment
        if self.timestamp is not None:
            fault = self.timestamp.fault(moment, now_us)
            if fault is not None:
                return fault
        content = list(self._content(arrival, moment))
        for key in self.keys:
            wanted = digest_of(key, content, self.algorithm)
            for given in signatures:
                if hmac.compare_digest(wanted, given):
                    nonce = None if self.timestamp is None else moment.encode() + given
                    return Proved(nonce=nonce, signature=given)
        return unfit(self.header)

    def _signatures(
        self, value: str, pairs: list[tuple[str, str]]
    ) -> list[bytes] | Refusal:
        if self.member is not None:
            texts = [text for name, text in pairs if name == self.member]
            if not texts:
                return malformed(f"{self.header} has no {self.member}=")
        elif self.prefix and not value.startswith(self.prefix):
            return malformed(f"{self.header} does not start with {self.prefix}")
        else:
            texts = [value.removeprefix(self.prefix)]
        if len(texts) > PROOFS_MAX:
            return malformed(f"{self.header} holds more than {PROOFS_MAX} signatures")
        found = [raw for text in texts if (raw := decoded(text, self.encoding))]
        if not found:
            return malformed(f"{self.header} is not {self.encoding}")
        return found

    def _moment(self, arrival: Arrival, pairs: list[tuple[str, str]]) -> str | Refusal:
        where = self.timestamp
        if where is None:
            return ""
        match where.place:
            case "pair":
                found = [text for name, text in pairs if name == where.name]
                if len(found) != 1:
                    return malformed(f"{self.header} has not one {where.name}=")
                return found[0]
            case "body":
                member = _member(arrival.body, where.name)
                return (
                    missing(f"{where.name} in the body") if member is None else member
                )
            case _:
                return one(arrival, where.name)

    def _content(self, arrival: Arrival, moment: str) -> Iterable[bytes]:
        for part in self.content:
            match part:
                case "{body}":
                    yield arrival.body
                case "{timestamp}":
                    yield moment.encode()
                case "{url}":
                    yield seen_url(arrival, self.url).encode("latin-1", "replace")
                case str() if part.startswith("{header:"):
                    yield (arrival.first(part[8:-1]) or "").encode("latin-1")
                case _:
                    yield part.encode()


def seen_url(arrival: Arrival, public: str | None) -> str:
    """Return the URL that the provider signed: as configured, or as it was called."""
    query = arrival.query.decode("latin-1")
    base = public or arrival.url
    return f"{base}?{query}" if query and "?" not in base else base


def _pairs(value: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for item in value.split(","):
        name, equals, text = item.strip().partition("=")
        if equals:
            found.append((name.strip(), text.strip()))
    return found


def _member(body: bytes, name: str) -> str | None:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    match value:
        case dict():
            found: object = value.get(name)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            return str(found) if isinstance(found, int | str) else None
        case _:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    """Standard Webhooks: id, timestamp and body under `webhook-*` or `svix-*`."""

    secrets: tuple[Secret | Ed25519PublicKey, ...]
    tolerance_us: int

    def check(self, arrival: Arrival, now_us: int) -> Proved | Refusal:
        """Return what was proved, or why not."""
        headers: dict[str, str] = {}
        for family in signing.HEADER_FAMILIES:
            for part in ("id", "timestamp", "signature"):
                name = f"{family}-{part}"
                value = one(arrival, name)
                if isinstance(value, str):
                    headers[name] = value
                elif value.reason is RefusalReason.MALFORMED:
                    return value
        found = signing.signature_headers(headers)
        if found is None:
            return missing("webhook-id, webhook-timestamp or webhook-signature")
        message_id, moment, signatures = found
        if signatures.count(" ") >= PROOFS_MAX:
            return malformed(f"more than {PROOFS_MAX} signatures")
        when = Timestamp(place="header", name="", tolerance_us=self.tolerance_us)
        fault = when.fault(moment, now_us)
        if fault is not None:
            return fault
        content = signing.signed_content(message_id, moment, arrival.body)
        if any(signing.holds(secret, content, signatures) for secret in self.secrets):
            # The id is signed, and a retry keeps it: it says all that a nonce could.
            return Proved(nonce=f"{message_id} {moment}".encode())
        return unfit("webhook-signature")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A secret that is sent as it is, in a header, behind `prefix`."""

    secrets: tuple[bytes, ...]
    header: str
    prefix: str = ""

    def check(self, arrival: Arrival, now_us: int) -> Proved | Refusal:
        """Return what was proved, or why not."""
        del now_us
        value = one(arrival, self.header)
        if isinstance(value, Refusal):
            return value
        if not value.lower().startswith(self.prefix.lower()):
            return malformed(f"{self.header} does not start with {self.prefix.strip()}")
        given = value[len(self.prefix) :].strip().encode("latin-1")
        if _among(given, self.secrets):
            return Proved()
        return unfit(self.header)


@dataclass(frozen=True, slots=True, kw_only=True)
class Basic:
    """HTTP basic authentication; secrets are `user:password`."""

    secrets: tuple[bytes, ...]

    def check(self, arrival: Arrival, now_us: int) -> Proved | Refusal:
        """Return what was proved, or why not."""
        del now_us
        value = one(arrival, "authorization")
        if isinstance(value, Refusal):
            return value
        scheme, _, text = value.partition(" ")
        given = decoded(text.strip(), "base64") if scheme.lower() == "basic" else None
        if given is None:
            return malformed("authorization is not `Basic` and base64")
        return Proved() if _among(given, self.secrets) else unfit("authorization")


def _among(given: bytes, secrets: Sequence[bytes]) -> bool:
    """Compare with every secret, in a time that tells nothing of either."""
    digest = hashlib.sha256(given).digest()
    found = False
    for secret in secrets:
        found |= hmac.compare_digest(digest, hashlib.sha256(secret).digest())
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Twilio:
    """HMAC-SHA1 over the URL and the sorted form, or the URL with a body hash."""

    keys: tuple[bytes, ...]
    url: str | None

    def check(self, arrival: Arrival, now_us: int) -> Proved | Refusal:
        """Return what was proved, or why not."""
        del now_us
        value = one(arrival, "x-twilio-signature")
        if isinstance(value, Refusal):
            return value
        given = decoded(value, "base64")
        if given is None:
            return malformed("x-twilio-signature is not base64")
        content = self._content(arrival)
        if isinstance(content, Refusal):
            return content
        for url in _with_and_without_port(seen_url(arrival, self.url)):
            signed = (url.encode("latin-1", "replace"), content)
            for key in self.keys:
                if hmac.compare_digest(digest_of(key, signed, "sha1"), given):
                    return Proved(signature=given)
        return unfit("x-twilio-signature")

    def _content(self, arrival: Arrival) -> bytes | Refusal:
        asked = dict(parse_form(arrival.query))
        hashed = asked.get("bodySHA256")
        if hashed is not None:
            actual = hashlib.sha256(arrival.body).hexdigest().encode()
            given = hashed.lower().encode(errors="surrogatepass")
            if not hmac.compare_digest(actual, given):
                return unfit("bodySHA256")
            return b""
        form = arrival.first("content-type") or ""
        if not form.lower().startswith("application/x-www-form-urlencoded"):
            return b""
        values: dict[str, set[str]] = {}
        for name, text in parse_form(arrival.body):
            values.setdefault(name, set()).add(text)
        return "".join(
            name + text for name in sorted(values) for text in sorted(values[name])
        ).encode(errors="surrogatepass")


def _with_and_without_port(url: str) -> tuple[str, ...]:
    """Return the URL both ways: with its scheme's own port named and left out."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    port = {"https": "443", "http": "80"}.get(scheme, "")
    if host.endswith(f":{port}"):
        return url, f"{scheme}://{host.removesuffix(f':{port}')}{slash}{path}"
    if ":" in host.rpartition("]")[2]:
        return (url,)
    return url, f"{scheme}://{host}:{port}{slash}{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mailgun:
    """HMAC over timestamp and token, which stand in the body beside it."""

    keys: tuple[bytes, ...]
    tolerance_us: int

    def check(self, arrival: Arrival, now_us: int) -> Proved | Refusal:
        """Return what was proved, or why not."""
        fields = self._fields(arrival)
        moment, token, signature = (
            fields.get(name, "") for name in ("timestamp", "token", "signature")
        )
        if not (moment and token and signature):
            return missing("timestamp, token or signature in the body")
        when = Timestamp(place="body", name="timestamp", tolerance_us=self.tolerance_us)
        fault = when.fault(moment, now_us)
        if fault is not None:
            return fault
        given = decoded(signature, "hex")
        if given is None:
            return malformed("the body's signature is not hex")
        content = ((moment + token).encode(errors="surrogatepass"),)
        for key in self.keys:
            if hmac.compare_digest(digest_of(key, content, "sha256"), given):
                return Proved(nonce=content[0], signature=given)
        return unfit("the body's signature")

    def _fields(self, arrival: Arrival) -> dict[str, str]:
        kind = (arrival.first("content-type") or "").lower()
        if kind.startswith("application/x-www-form-urlencoded"):
            return dict(parse_form(arrival.body))
        try:
            return msgspec.json.decode(arrival.body, type=_MailgunBody).signature
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return {}


class _MailgunBody(msgspec.Struct):
    signature: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """SendGrid (ECDSA P-256, SHA-256) and Discord (Ed25519), over timestamp and body."""

    keys: tuple[ec.EllipticCurvePublicKey | Ed25519PublicKey, ...]
    header: str
    encoding: str
    timestamp: Timestamp

    def check(self, arrival: Arrival, now_us: int) -> Proved | Refusal:
        """Return what was proved, or why not."""
        value, moment = one(arrival, self.header), one(arrival, self.timestamp.name)
        if isinstance(value, Refusal):
            return value
        if isinstance(moment, Refusal):
            return moment
        fault = self.timestamp.fault(moment, now_us)
        if fault is not None:
            return fault
        given = decoded(value, self.encoding)
        if given is None:
            return malformed(f"{self.header} is not {self.encoding}")
        content = moment.encode() + arrival.body
        if any(_fits(key, given, content) for key in self.keys):
            # An ECDSA signature can be altered and still hold: not a nonce.
            return Proved(nonce=hashlib.sha256(content).digest(), signature=given)
        return unfit(self.header)


def _fits(
    key: ec.EllipticCurvePublicKey | Ed25519PublicKey, given: bytes, content: bytes
) -> bool:
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(given, content, ec.ECDSA(hashes.SHA256()))
        else:
            key.verify(given, content)
    except InvalidSignature:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Networks:
    """Whoever calls from these networks is believed."""

    networks: tuple[IPv4Network | IPv6Network, ...]

    def check(self, arrival: Arrival, now_us: int) -> Proved | Refusal:
        """Return what was proved, or why not."""
        del now_us
        if is_within(arrival.address, self.networks):
            return Proved()
        return Refusal(
            reason=RefusalReason.ADDRESS,
            detail=f"{arrival.address} is in none of the networks",
            status=403,
        )


@dataclass(frozen=True, slots=True)
class Nothing:
    """Whoever knows the address is believed."""

    def check(self, arrival: Arrival, now_us: int) -> Proved | Refusal:
        """Return what was proved, or why not."""
        del arrival, now_us
        return Proved()
