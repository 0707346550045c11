"""What the inbox is asked and what it answers: frozen values without behaviour.

`…In` is what a caller wants stored, `…Patch` a partial change (`UNSET` = leave as it is,
None = clear), the bare noun is what is stored. Instants are microseconds since the Unix
epoch, UTC. Secrets are in the clear only in `SourceIn.secrets`, `Pull.url` and rotations,
on their way in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType

from tenure.ids import AppId, MessageId, ReceiptId, SourceId, TenantId
from tenure.inbox.verification.model import Verification
from tenure.limits import DEDUPE_SECONDS

__all__ = [
    "Pull",
    "PullKind",
    "Receipt",
    "ReceiptDetail",
    "ReceiptFilter",
    "Refusals",
    "Refused",
    "Source",
    "SourceIn",
    "SourcePatch",
    "SourceSettings",
    "Verification",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """How a source treats what arrives.

    `methods` are those that make a receipt; a handshake of the verification brings its
    own. `networks` are CIDR blocks a client must be in (none = any). At most
    `rate_count` receipts per `rate_seconds` (None = any number). `body_bytes_max` None
    means the deployment's. `dedupe_key` and `event_type` say where these are found:
    `header:NAME`, `query:NAME`, `body:/json/pointer`, or for an event type `=fixed.name`;
    None = where the verification's provider puts them. A key counts for
    `dedupe_seconds`. `response_body` None is JSON with the receipt's id. `public_url` is
    the URL that the provider was given, where the address seen here differs (proxies).
    """

    methods: tuple[str, ...] = ("POST",)
    networks: tuple[str, ...] = ()
    rate_count: int | None = None
    rate_seconds: float = 1.0
    body_bytes_max: int | None = None
    dedupe_key: str | None = None
    dedupe_seconds: float = DEDUPE_SECONDS
    event_type: str | None = None
    response_status: int = 200
    response_body: str | None = None
    response_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    public_url: str | None = None


class PullKind(StrEnum):
    """Brokers that a source can pull from."""

    NATS = "nats"
    REDIS = "redis"
    AMQP = "amqp"


class Pull(Struct, frozen=True, kw_only=True):
    """Where a source pulls from; `url` may hold a password and is stored sealed.

    `name` is a NATS subject of a stream, a Redis stream or an AMQP queue; `group` the
    durable consumer or consumer group.
    """

    kind: PullKind
    url: str
    name: str
    group: str = "tenure"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceIn:
    """A source to create, or to put in the place of an existing one.

    `app` is an application's id or uid; None makes one of the source's name. `secrets`
    count at creation only; a PUT leaves the stored ones.
    """

    name: str
    uid: str | None = None
    app: str | None = None
    verification: Verification
    secrets: Sequence[str] = field(default=(), repr=False)
    settings: SourceSettings = field(default_factory=SourceSettings)
    pull: Pull | None = field(default=None, repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    disabled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePatch:
    """A partial change of a source; settings and metadata are replaced, never merged."""

    name: str | UnsetType = UNSET
    uid: str | UnsetType | None = UNSET
    verification: Verification | UnsetType = UNSET
    secrets: Sequence[str] | UnsetType = UNSET
    settings: SourceSettings | UnsetType = UNSET
    pull: Pull | UnsetType | None = UNSET
    metadata: Mapping[str, str] | UnsetType | None = UNSET
    disabled: bool | UnsetType = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where webhooks arrive. `path` is the last part of its URL; secrets are counted."""

    id: SourceId
    tenant: TenantId
    app: AppId
    uid: str | None
    name: str
    path: str
    verification: Verification
    secret_count: int
    settings: SourceSettings
    pull: Pull | None
    """Its URL masked."""
    metadata: Mapping[str, str]
    disabled: bool
    version: int
    created_at: int
    updated_at: int
    deleted_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One accepted request; `messages` of it were made, `message` when it was one."""

    id: ReceiptId
    source: SourceId
    app: AppId
    message: MessageId | None
    messages: int
    event_type: str
    event_id: str | None
    method: str
    address: str | None
    size: int
    received_at: int
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptDetail:
    """A receipt whole: header lines in order (credentials masked), query, bytes.

    `body` None = expunged. `made` are its messages in their order.
    """

    receipt: Receipt
    query: str
    headers: Sequence[tuple[str, str]]
    body: bytes | None
    made: Sequence[MessageId]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptFilter:
    """Which receipts a list shows; bounds are instants (µs), `before` exclusive."""

    source: str | None = None
    event_types: Sequence[str] | None = None
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """One refused request, kept for people; `reason` is a stable code."""

    id: str
    source: SourceId
    reason: str
    detail: str
    status: int
    method: str
    query: str
    address: str | None
    headers: Sequence[tuple[str, str]]
    body: bytes
    size: int
    received_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """How many were refused since the source exists, by reason; the newest first."""

    counts: Mapping[str, int]
    kept: Sequence[Refused]
