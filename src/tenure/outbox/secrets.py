"""Endpoint secrets: their text forms, and the set of those that sign now.

Forms (Standard Webhooks): `whsec_` + base64 of the HMAC key, `whsk_` + base64 of an
Ed25519 seed and its public key, `whpk_` + base64 of that public key alone (given to
receivers, never accepted as an endpoint's secret). A key is never guessed from another
form: two sides that guess differently sign and verify with different bytes.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, assert_never

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tenure.errors import LimitReached
from tenure.ids import random_bytes
from tenure.limits import (
    OLD_SECRETS_MAX,
    SECRET_GRACE_MAX_SECONDS,
    SECRET_MAX_BYTES,
    SECRET_MIN_BYTES,
)

HMAC_PREFIX: Final = "whsec_"
ED25519_PREFIX: Final = "whsk_"
ED25519_PUBLIC_PREFIX: Final = "whpk_"

_WANTED: Final = (
    f"wanted: {HMAC_PREFIX} followed by the standard base64 of"
    f" {SECRET_MIN_BYTES} to {SECRET_MAX_BYTES} bytes, or {ED25519_PREFIX}"
    " followed by the base64 of a 32-byte Ed25519 seed and its 32-byte public key"
)
_SEED_BYTES: Final = 32


class SecretKind(StrEnum):
    """How a secret signs: `v1` (HMAC-SHA256) or `v1a` (Ed25519)."""

    HMAC256 = "hmac256"
    ED25519 = "ed25519"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Secret:
    """One signing key; its repr never shows the key.

    `key` holds the HMAC key itself, or the 32-byte seed and 32-byte public key of
    Ed25519. Made by `parse_secret` or `new_secret`, which check it.
    """

    kind: SecretKind
    key: bytes
    _private: list[Ed25519PrivateKey] = field(
        default_factory=list[Ed25519PrivateKey], init=False, compare=False
    )

    def __repr__(self) -> str:
        return f"Secret(kind={self.kind.value!r}, key=<masked>)"

    def secret_text(self) -> str:
        """Return the form that signs (`whsec_…` or `whsk_…`): keep it sealed."""
        match self.kind:
            case SecretKind.HMAC256:
                prefix = HMAC_PREFIX
            case SecretKind.ED25519:
                prefix = ED25519_PREFIX
            case _:
                assert_never(self.kind)
        return prefix + base64.b64encode(self.key).decode()

    def public_text(self) -> str:
        """Return what a receiver verifies with: `whsec_…`, or `whpk_…` for Ed25519."""
        match self.kind:
            case SecretKind.HMAC256:
                return self.secret_text()
            case SecretKind.ED25519:
                public = base64.b64encode(self.key[_SEED_BYTES:]).decode()
                return ED25519_PUBLIC_PREFIX + public
            case _:
                assert_never(self.kind)

    def private_key(self) -> Ed25519PrivateKey:
        """Return the Ed25519 key object, made once; only for that kind.

        Making it costs more than signing with it.
        """
        if not self._private:
            self._private.append(
                Ed25519PrivateKey.from_private_bytes(self.key[:_SEED_BYTES])
            )
        return self._private[0]


def parse_secret(text: str) -> Secret:
    """Read a secret in one of the two forms that can sign.

    Raises ValueError that says what is wrong and which form is wanted; the message
    never repeats the secret.
    """
    if not text:
        raise ValueError(f"the secret is empty; {_WANTED}")
    if text.startswith(HMAC_PREFIX):
        key = _decoded(text.removeprefix(HMAC_PREFIX))
        if not SECRET_MIN_BYTES <= len(key) <= SECRET_MAX_BYTES:
            size = "short" if len(key) < SECRET_MIN_BYTES else "long"
            raise ValueError(
                f"the secret's key is too {size} ({len(key)} bytes); {_WANTED}"
            )
        return Secret(kind=SecretKind.HMAC256, key=key)
    if text.startswith(ED25519_PREFIX):
        key = _decoded(text.removeprefix(ED25519_PREFIX))
        if len(key) != 2 * _SEED_BYTES:
            raise ValueError(
                f"an Ed25519 secret holds 64 bytes, this one {len(key)}; {_WANTED}"
            )
        if _public_of(key[:_SEED_BYTES]) != key[_SEED_BYTES:]:
            raise ValueError(
                "the public half of the Ed25519 secret does not belong to its seed;"
                f" {_WANTED}"
            )
        return Secret(kind=SecretKind.ED25519, key=key)
    if text.startswith(ED25519_PUBLIC_PREFIX):
        raise ValueError(
            f"{ED25519_PUBLIC_PREFIX} is a public key, which verifies but cannot sign;"
            f" {_WANTED}"
        )
    if text != text.strip():
        raise ValueError(f"there is white space around the secret; {_WANTED}")
    raise ValueError(f"the secret has no known prefix; {_WANTED}")


def new_secret(kind: SecretKind = SecretKind.HMAC256) -> Secret:
    """Make a secret from the system's randomness."""
    match kind:
        case SecretKind.HMAC256:
            return Secret(kind=kind, key=random_bytes(SECRET_MIN_BYTES))
        case SecretKind.ED25519:
            seed = random_bytes(_SEED_BYTES)
            return Secret(kind=kind, key=seed + _public_of(seed))
        case _:
            assert_never(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldSecret:
    """A rotated-out secret that goes on signing until `expires_at` (µs, exclusive)."""

    secret: Secret
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSet:
    """The secrets of one endpoint: the current one, and old ones, newest first."""

    current: Secret
    old: tuple[OldSecret, ...] = ()

    def live(self, now: int) -> tuple[Secret, ...]:
        """Return the secrets that sign at `now`, the current one first."""
        return (
            self.current,
            *(each.secret for each in self.old if each.expires_at > now),
        )

    def rotate(
        self,
        key: Secret | None,
        *,
        grace_seconds: int,
        now: int,
        kind: SecretKind | None = None,
    ) -> "SecretSet":
        """Return the set with `key` current, the former one live for the grace.

        Without a key a new one of `kind` (default: the current one's) is made. An
        earlier or the same key may be used again; no key is ever in the set twice, so
        none signs twice. Grace 0 drops the former key at once. Expired keys are
        forgotten. Raises LimitReached when too many old keys would be live, ValueError
        for a grace out of bounds.
        """
        if not 0 <= grace_seconds <= SECRET_GRACE_MAX_SECONDS:
            raise ValueError(
                f"the grace period is {grace_seconds} s;"
                f" wanted: 0 to {SECRET_GRACE_MAX_SECONDS}"
            )
        fresh = new_secret(kind or self.current.kind) if key is None else key
        former = (
            OldSecret(secret=self.current, expires_at=now + grace_seconds * 1_000_000),
        )
        kept = tuple(
            each
            for each in former + self.old
            if each.expires_at > now and each.secret != fresh
        )
        if len(kept) > OLD_SECRETS_MAX:
            raise LimitReached(
                f"{OLD_SECRETS_MAX} former secrets of this endpoint still sign;"
                " wait until one expires, or rotate with a grace period of 0"
            )
        return SecretSet(current=fresh, old=kept)


class _StoredOld(msgspec.Struct, frozen=True):
    secret: str
    expires_at: int


class _StoredSet(msgspec.Struct, frozen=True):
    current: str
    old: Sequence[_StoredOld] = ()


def dump_secrets(secrets: SecretSet) -> bytes:
    """Return the set as JSON bytes to seal with the key ring; never store them bare."""
    return msgspec.json.encode(
        _StoredSet(
            current=secrets.current.secret_text(),
            old=[
                _StoredOld(secret=each.secret.secret_text(), expires_at=each.expires_at)
                for each in secrets.old
            ],
        )
    )


def load_secrets(stored: bytes) -> SecretSet:
    """Read back what `dump_secrets` wrote; raises ValueError for anything else."""
    raw = msgspec.json.decode(stored, type=_StoredSet)
    return SecretSet(
        current=parse_secret(raw.current),
        old=tuple(
            OldSecret(secret=parse_secret(each.secret), expires_at=each.expires_at)
            for each in raw.old
        ),
    )


def _public_of(seed: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def _decoded(text: str) -> bytes:
    """Decode canonical standard base64, so that what is read back equals the input."""
    if not text:
        raise ValueError(f"nothing follows the secret's prefix; {_WANTED}")
    if re.search(r"\s", text):
        raise ValueError(f"there is white space in the secret; {_WANTED}")
    if re.fullmatch(r"[A-Za-z0-9_\-]+={0,2}", text) and re.search(r"[_\-]", text):
        raise ValueError(
            f"the secret is URL-safe base64 (`-`, `_` for `+`, `/`); {_WANTED}"
        )
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        if len(text) % 4 and re.fullmatch(r"[A-Za-z0-9+/]+=?", text):
            reason = "the secret's base64 has lost its padding or was cut short"
        else:
            reason = "what follows the secret's prefix is not base64"
        raise ValueError(f"{reason}; {_WANTED}") from None
    if base64.b64encode(key).decode() != text:
        raise ValueError(f"the secret's base64 has stray bits at its end; {_WANTED}")
    return key
