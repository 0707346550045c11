"""Signatures as Standard Webhooks defines them.

Signed are the bytes `{id}.{timestamp}.{body}`; the body is exactly what goes on the
wire. `v1` is HMAC-SHA256, `v1a` Ed25519; a header carries one signature for each live
secret, separated by spaces, so receivers survive a rotation.
"""

import base64
import binascii
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tenure.limits import SIGNATURE_TOLERANCE_SECONDS
from tenure.outbox.secrets import (
    ED25519_PUBLIC_PREFIX,
    HMAC_PREFIX,
    Secret,
    SecretKind,
    parse_secret,
)

HEADER_FAMILIES: Final = ("webhook", "svix")
"""The two sets of header names, `webhook-id` … and `svix-id` …, preferred first."""


class SignatureFault(StrEnum):
    """Why a signature was not accepted."""

    MISSING_HEADER = "missing_header"
    BAD_TIMESTAMP = "bad_timestamp"
    TOO_OLD = "too_old"
    TOO_NEW = "too_new"
    MISMATCH = "mismatch"


class SignatureRefused(ValueError):
    """A request whose signature does not hold; `fault` says which check failed."""

    def __init__(self, fault: SignatureFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


def signed_content(message_id: str, timestamp_s: int | str, body: bytes) -> bytes:
    """Return the bytes that are signed."""
    return b"%b.%b.%b" % (message_id.encode(), str(timestamp_s).encode(), body)


def sign(secret: Secret, message_id: str, timestamp_s: int, body: bytes) -> str:
    """Return one signature, `v1,…` or `v1a,…`, with the timestamp in Unix seconds."""
    return _signature(secret, signed_content(message_id, timestamp_s, body))


def signature_header(
    secrets: Sequence[Secret], message_id: str, timestamp_s: int, body: bytes
) -> str:
    """Return the value of `webhook-signature`: one signature per secret, in order.

    Raises ValueError without a secret: nothing is ever sent unsigned.
    """
    if not secrets:
        raise ValueError(f"message {message_id} has no live secret to sign with")
    content = signed_content(message_id, timestamp_s, body)
    return " ".join(_signature(secret, content) for secret in secrets)


def verify(
    secrets: Sequence[Secret | Ed25519PublicKey],
    headers: Mapping[str, str],
    body: bytes,
    *,
    now_s: float,
    tolerance_seconds: float = SIGNATURE_TOLERANCE_SECONDS,
) -> None:
    """Check that one of the secrets signed this request within the tolerance.

    Header names are matched in any letter case; `webhook-*` is preferred to `svix-*`.
    Raises SignatureRefused.
    """
    found = signature_headers(headers)
    if found is None:
        raise SignatureRefused(
            SignatureFault.MISSING_HEADER,
            "webhook-id, webhook-timestamp or webhook-signature is missing",
        )
    message_id, timestamp, signatures = found
    check_timestamp(timestamp, now_s=now_s, tolerance_seconds=tolerance_seconds)
    content = signed_content(message_id, timestamp, body)
    if not any(holds(secret, content, signatures) for secret in secrets):
        raise SignatureRefused(
            SignatureFault.MISMATCH,
            "no signature fits the secret and these bytes of the body",
        )


def signature_headers(headers: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Return (id, timestamp, signatures) of the first complete family, or None."""
    folded = {name.lower(): value for name, value in headers.items()}
    for family in HEADER_FAMILIES:
        values = tuple(
            folded.get(f"{family}-{part}", "")
            for part in ("id", "timestamp", "signature")
        )
        match values:
            case (str(message_id), str(timestamp), str(signatures)) if all(values):
                return message_id, timestamp, signatures
            case _:
                continue
    return None


def check_timestamp(timestamp: str, *, now_s: float, tolerance_seconds: float) -> None:
    """Raise SignatureRefused unless the header's Unix seconds are near `now_s`."""
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 20):
        raise SignatureRefused(
            SignatureFault.BAD_TIMESTAMP, "the timestamp is not whole Unix seconds"
        )
    age = now_s - int(timestamp)
    if age > tolerance_seconds:
        raise SignatureRefused(
            SignatureFault.TOO_OLD,
            f"signed {age:.0f} s ago, by the clock here;"
            f" at most {tolerance_seconds:.0f} s are accepted",
        )
    if -age > tolerance_seconds:
        raise SignatureRefused(
            SignatureFault.TOO_NEW,
            f"signed {-age:.0f} s in the future, by the clock here;"
            f" at most {tolerance_seconds:.0f} s are accepted",
        )


def holds(secret: Secret | Ed25519PublicKey, content: bytes, signatures: str) -> bool:
    """Tell whether one of the space-separated signatures is the secret's."""
    return any(
        _fits(secret, content, version, encoded)
        for version, comma, encoded in (
            each.partition(",") for each in signatures.split()
        )
        if comma
    )


def parse_public(text: str) -> Ed25519PublicKey:
    """Read a `whpk_…` key, which verifies `v1a` signatures; raises ValueError."""
    if not text.startswith(ED25519_PUBLIC_PREFIX):
        raise ValueError(f"a public key starts with {ED25519_PUBLIC_PREFIX}")
    try:
        raw = base64.b64decode(text.removeprefix(ED25519_PUBLIC_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(
            f"what follows {ED25519_PUBLIC_PREFIX} is not base64"
        ) from None
    if len(raw) != 32:
        raise ValueError(f"an Ed25519 public key holds 32 bytes, this one {len(raw)}")
    return Ed25519PublicKey.from_public_bytes(raw)


class FindingCode(StrEnum):
    """What the signature debugger can find."""

    VERIFIED = "verified"
    SECRET_FORM = "secret_form"  # noqa: S105 -- a code
    SECRET_AS_BYTES = "secret_as_bytes"  # noqa: S105 -- a code
    WRONG_HEADER = "wrong_header"
    CLOCK = "clock"
    REENCODED_BODY = "reencoded_body"
    MISMATCH = "mismatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is so, and what to change."""

    code: FindingCode
    message: str


def diagnose(
    secret_text: str, headers: Mapping[str, str], body: bytes, *, now_s: float
) -> list[Finding]:
    """Name why a received request does not verify, likeliest fault first.

    Accepts `whsec_`, `whsk_` and `whpk_` secrets. The list holds VERIFIED exactly when
    the signature fits these bytes; a clock fault can stand beside it. No finding
    repeats the secret.
    """
    found = signature_headers(headers)
    if found is None:
        return [_header_finding(headers)]
    message_id, timestamp, signatures = found
    findings = list(_clock_findings(timestamp, now_s))
    content = signed_content(message_id, timestamp, body)
    secret: Secret | Ed25519PublicKey | None = None
    try:
        is_public = secret_text.startswith(ED25519_PUBLIC_PREFIX)
        secret = parse_public(secret_text) if is_public else parse_secret(secret_text)
    except ValueError as error:
        findings.append(Finding(code=FindingCode.SECRET_FORM, message=str(error)))
    if secret is not None and holds(secret, content, signatures):
        findings.append(
            Finding(
                code=FindingCode.VERIFIED,
                message="the signature fits this secret and these bytes",
            )
        )
        return findings
    if _signed_with_text(secret_text, content, signatures):
        findings.append(
            Finding(
                code=FindingCode.SECRET_AS_BYTES,
                message="the sender used the secret's text as the key;"
                f" what follows {HMAC_PREFIX} must be decoded from base64 first",
            )
        )
    elif secret is not None:
        findings.append(_body_finding(secret, found, body))
    return findings


def _header_finding(headers: Mapping[str, str]) -> Finding:
    folded = {name.lower() for name in headers}
    wanted = {f"{HEADER_FAMILIES[0]}-{part}" for part in ("id", "timestamp")}
    wanted.add(f"{HEADER_FAMILIES[0]}-signature")
    lookalikes = sorted(
        name
        for name in folded
        if name not in wanted and ("signature" in name or "webhook" in name)
    )
    seen = f"; there is {', '.join(lookalikes)}" if lookalikes else ""
    return Finding(
        code=FindingCode.WRONG_HEADER,
        message=f"missing or empty: {', '.join(sorted(wanted - folded)) or 'a value'}"
        f"{seen}. A proxy or framework may have dropped or renamed them;"
        " the three come from one family, webhook-* or svix-*",
    )


def _clock_findings(timestamp: str, now_s: float) -> Iterator[Finding]:
    try:
        check_timestamp(
            timestamp, now_s=now_s, tolerance_seconds=SIGNATURE_TOLERANCE_SECONDS
        )
    except SignatureRefused as refused:
        code = FindingCode.CLOCK
        hint = "check the receiver's clock, or a queue before it"
        if refused.fault is SignatureFault.BAD_TIMESTAMP:
            code = FindingCode.WRONG_HEADER
            hint = "it is sent as whole Unix seconds, for instance 1614265330"
        elif timestamp.isdigit() and len(timestamp) == len("1614265330000"):
            hint = "this looks like milliseconds; the header holds seconds"
        yield Finding(code=code, message=f"{refused}; {hint}")


def _signed_with_text(secret_text: str, content: bytes, signatures: str) -> bool:
    """Tell whether the secret's text, with or without prefix, was the HMAC key."""
    texts = {secret_text, secret_text.partition("_")[2]} - {""}
    return any(
        holds(Secret(kind=SecretKind.HMAC256, key=text.encode()), content, signatures)
        for text in texts
    )


def _body_finding(
    secret: Secret | Ed25519PublicKey, found: tuple[str, str, str], body: bytes
) -> Finding:
    message_id, timestamp, signatures = found
    for how, other in rewritings(body):
        if holds(secret, signed_content(message_id, timestamp, other), signatures):
            return Finding(
                code=FindingCode.REENCODED_BODY,
                message=f"the signature fits the body {how}: these are not the bytes"
                " that were sent. Verify the raw request body, before any parsing",
            )
    return Finding(
        code=FindingCode.MISMATCH,
        message="no signature fits: another secret (of another endpoint, or rotated"
        " away), or the id, timestamp or body were changed on the way",
    )


def rewritings(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the body as senders and frameworks commonly rewrite it: (how, bytes)."""
    yield "without the white space around it", body.strip()
    yield "with a line break at its end", body + b"\n"
    yield "without the line break at its end", body.removesuffix(b"\n")
    feeds = body.replace(b"\r\n", b"\n")
    yield "with CR LF as line breaks", feeds.replace(b"\n", b"\r\n")
    yield "with LF as line breaks", feeds
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return
    for order, sort in (("", False), (" with sorted keys", True)):
        for style, separators in (("compact", (",", ":")), ("spaced", (", ", ": "))):
            for ascii_only in (False, True):
                text = json.dumps(
                    value,
                    separators=separators,
                    ensure_ascii=ascii_only,
                    sort_keys=sort,
                )
                escaped = " with escapes" if ascii_only else ""
                yield (
                    f"as {style} JSON{order}{escaped}",
                    text.encode(errors="surrogatepass"),
                )
        text = json.dumps(value, indent=2, ensure_ascii=False, sort_keys=sort)
        yield f"as indented JSON{order}", text.encode(errors="surrogatepass")


def _signature(secret: Secret, content: bytes) -> str:
    match secret.kind:
        case SecretKind.HMAC256:
            mac = hmac.digest(secret.key, content, "sha256")
            return "v1," + binascii.b2a_base64(mac, newline=False).decode()
        case SecretKind.ED25519:
            raw = secret.private_key().sign(content)
            return "v1a," + binascii.b2a_base64(raw, newline=False).decode()
        case _:
            assert_never(secret.kind)


def _fits(
    secret: Secret | Ed25519PublicKey, content: bytes, version: str, encoded: str
) -> bool:
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return False
    if isinstance(secret, Secret) and secret.kind is SecretKind.HMAC256:
        mac = hmac.digest(secret.key, content, "sha256")
        return version == "v1" and hmac.compare_digest(mac, raw)
    if version != "v1a":
        return False
    public = secret.private_key().public_key() if isinstance(secret, Secret) else secret
    try:
        public.verify(raw, content)
    except InvalidSignature:
        return False
    return True
