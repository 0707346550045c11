"""What verification is asked and what it answers: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

__all__ = [
    "HINTS",
    "Event",
    "Handshake",
    "Outcome",
    "Refusal",
    "RefusalReason",
    "Verification",
    "Verified",
]


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """How a source is verified: a preset's name and its options, none of them secret.

    Options of every preset: `tolerance_seconds`; `format` = `cloudevents`;
    `strict_replay`. Others are the preset's own.
    """

    preset: str
    options: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])


class RefusalReason(StrEnum):
    """Why a request is not believed. Codes are stable."""

    MISSING_HEADER = "missing_header"
    MALFORMED = "malformed"
    BAD_SIGNATURE = "bad_signature"
    TOO_OLD = "too_old"
    TOO_NEW = "too_new"
    NO_SECRET = "no_secret"  # noqa: S105 -- a code
    ADDRESS = "address"
    REPLAYED = "replayed"
    DISABLED = "disabled"
    METHOD = "method"
    RATE = "rate"
    TOO_LARGE = "too_large"


HINTS: Final[Mapping[RefusalReason, str]] = {
    RefusalReason.MISSING_HEADER: "The proof is not there: the sender signs nothing, a"
    " proxy dropped the header, or the source has the wrong preset.",
    RefusalReason.MALFORMED: "The proof cannot be read: it is of another provider, or"
    " was changed on the way.",
    RefusalReason.BAD_SIGNATURE: "No secret of the source made this signature over"
    " these bytes: compare the secret with the provider's page, and look for a proxy"
    " that rewrites bodies. `tenure verify` names the fault.",
    RefusalReason.TOO_OLD: "It was signed too long ago, by the clock here: compare the"
    " clocks, or look for a queue in front.",
    RefusalReason.TOO_NEW: "It is signed in the future, by the clock here: compare the"
    " clocks.",
    RefusalReason.NO_SECRET: "The source has no secret that counts: give it one.",
    RefusalReason.ADDRESS: "The sender's address is in none of the source's networks.",
    RefusalReason.REPLAYED: "This very signature was accepted before, under another"
    " event id: somebody sends a captured request again.",
    RefusalReason.DISABLED: "The source is disabled.",
    RefusalReason.METHOD: "The source does not take this method.",
    RefusalReason.RATE: "More requests came than the source's limit allows.",
    RefusalReason.TOO_LARGE: "The body is larger than the source allows.",
}
"""What people should look at, by reason."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a request that carries several; `body` is cut out as it was sent."""

    body: bytes
    content_type: str
    event_type: str
    key: str | None


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """It is believed. `key` is the provider's id of the event.

    `nonce` identifies the signed request where a timestamp or an id is signed: it can
    be accepted once. `events` is not None for a batch.
    """

    event_type: str
    key: str | None = None
    nonce: bytes | None = None
    events: tuple[Event, ...] | None = None


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """It is not believed; `detail` says why and holds no secret."""

    reason: RefusalReason
    detail: str
    status: int = 401


class Handshake(msgspec.Struct, frozen=True, kw_only=True):
    """The provider asks whether somebody is here: answered, nothing is stored."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])


Outcome: TypeAlias = "Verified | Refusal | Handshake"
