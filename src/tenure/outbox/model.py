"""What the outbox is asked and what it answers: frozen values without behaviour.

`…In` is what a caller wants stored, `…Patch` a partial change (`UNSET` = leave as it is,
None = clear), the bare noun is what is stored. Instants are microseconds since the Unix
epoch, UTC. Nothing here holds a secret in the clear except `EndpointIn.secret` and
`headers` on their way in, and the one-time token of a new API key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from ipaddress import IPv4Network, IPv6Network
from typing import Generic, TypeVar

from msgspec import UNSET, Struct, UnsetType

from tenure.ids import (
    AppId,
    AttemptId,
    EndpointId,
    EventTypeName,
    KeyId,
    LaneId,
    MessageId,
    TenantId,
    WorkId,
)
from tenure.limits import (
    DAY_SECONDS,
    ENDPOINTS_PER_APPLICATION_MAX,
    HISTORY_DAYS,
    IDEMPOTENCY_SECONDS,
    LIST_DEFAULT,
    PAYLOAD_BYTES,
    PAYLOAD_RETENTION_MAX_SECONDS,
    REQUEST_SECONDS,
    RESPONSE_DAYS,
    RETRY_SECONDS,
    SECRET_GRACE_SECONDS,
    Durations,
)
from tenure.outbox.kept import Kept
from tenure.outbox.particulars import EndpointSettings
from tenure.outbox.relayed import Relay
from tenure.outbox.secrets import SecretKind

T = TypeVar("T")


class Order(StrEnum):
    """In which order of ids a list shows its items."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


class SchemaCheck(StrEnum):
    """What becomes of a message whose payload misses its event type's schema."""

    OFF = "off"
    WARN = "warn"
    ENFORCE = "enforce"


class AttemptStatus(IntEnum):
    """How a delivery or attempt stands, with the numbers of the Svix API."""

    SUCCESS = 0
    PENDING = 1
    FAIL = 2
    SENDING = 3


class Trigger(IntEnum):
    """Who asked for an attempt."""

    SCHEDULED = 0
    MANUAL = 1


class Scope(StrEnum):
    """What an API key may do; each includes the ones before."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageIn:
    """Which page of a list: at most `limit` items after (`-`: before) a cursor.

    `order` None means the list's own default.
    """

    limit: int = LIST_DEFAULT
    iterator: str | None = None
    order: Order | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page: `done` = nothing further exists in the direction travelled.

    `iterator` is the last item's cursor, `prev_iterator` the first item's with `-`
    before it; both None only when `data` is empty.
    """

    data: Sequence[T]
    iterator: str | None
    prev_iterator: str | None
    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Idempotency:
    """A caller's Idempotency-Key and a hash of the body that came with it."""

    key: str
    body_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Generic[T]):
    """A created or changed thing; `created` tells 201 from 200.

    `replayed` = this is the stored answer of an earlier call with the same key.
    """

    value: T
    created: bool
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSettings:
    """What a deployment decides about its outbox.

    `allow_networks` are reachable although they are not public. `retry_seconds` is the
    default schedule; `durations` scales it, and every deadline, in tests.
    `svix_headers` sends `svix-*` beside `webhook-*` to every endpoint.
    """

    payload_max_bytes: int = PAYLOAD_BYTES
    retention_seconds: float = PAYLOAD_RETENTION_MAX_SECONDS
    history_seconds: float = HISTORY_DAYS * DAY_SECONDS
    response_seconds: float = RESPONSE_DAYS * DAY_SECONDS
    idempotency_seconds: float = IDEMPOTENCY_SECONDS
    request_seconds: float = REQUEST_SECONDS
    retry_seconds: tuple[float, ...] = RETRY_SECONDS
    allow_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    https_only: bool = False
    svix_headers: bool = False
    secret_kind: SecretKind = SecretKind.HMAC256
    endpoints_max: int = ENDPOINTS_PER_APPLICATION_MAX
    durations: Durations = field(default_factory=Durations)


# --- Applications ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationIn:
    """An application to create or put in place; `kept` None leaves what is stored."""

    name: str
    uid: str | None = None
    throttle_rate: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    kept: Kept | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationPatch:
    """A partial change of an application; metadata is replaced, never merged."""

    name: str | UnsetType = UNSET
    uid: str | UnsetType | None = UNSET
    throttle_rate: int | UnsetType | None = UNSET
    metadata: Mapping[str, str] | UnsetType | None = UNSET
    kept: Kept | UnsetType = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """Who sends: a customer of the tenant, with endpoints of its own."""

    id: AppId
    tenant: TenantId
    uid: str | None
    name: str
    throttle_rate: int | None
    metadata: Mapping[str, str]
    lane_group: int
    config_version: int
    created_at: int
    updated_at: int
    kept: Kept = field(default_factory=Kept)


# --- Endpoints -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointIn:
    """An endpoint to create, or to put in the place of an existing one.

    `secret` and `headers` count at creation only: a PUT leaves the stored ones.
    `settings` None means the defaults at creation and the stored ones at a PUT.
    """

    url: str
    description: str = ""
    throttle_rate: int | None = None
    uid: str | None = None
    disabled: bool = False
    event_types: Sequence[str] | None = None
    channels: Sequence[str] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    secret: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    svix_version: int = 1
    settings: EndpointSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPatch:
    """A partial change of an endpoint; metadata is replaced, never merged."""

    url: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    throttle_rate: int | UnsetType | None = UNSET
    uid: str | UnsetType | None = UNSET
    disabled: bool | UnsetType = UNSET
    event_types: Sequence[str] | UnsetType | None = UNSET
    channels: Sequence[str] | UnsetType | None = UNSET
    metadata: Mapping[str, str] | UnsetType | None = UNSET
    svix_version: int | UnsetType = UNSET
    settings: EndpointSettings | UnsetType = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where to: a URL, what it wants to hear, and its lane. User info is masked."""

    id: EndpointId
    app: AppId
    tenant: TenantId
    uid: str | None
    url: str
    description: str
    disabled: bool
    disabled_why: str | None
    throttle_rate: int | None
    event_types: tuple[str, ...] | None
    channels: tuple[str, ...] | None
    metadata: Mapping[str, str]
    settings: EndpointSettings
    lane: LaneId
    svix_version: int
    created_at: int
    updated_at: int
    deleted_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointHeaders:
    """The custom headers of an endpoint; sensitive ones by name only."""

    headers: Mapping[str, str]
    sensitive: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRotation:
    """A rotation to `key` (None = a new one); the old one signs on for the grace."""

    key: str | None = field(default=None, repr=False)
    grace_seconds: int = SECRET_GRACE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointStats:
    """Counts of an endpoint's attempts in a window, and of what waits or runs now."""

    success: int
    pending: int
    sending: int
    fail: int
    canceled: int = 0


# --- Event types -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTypeIn:
    """An event type to create or put in place; `schema_check` None = as it is, or off."""

    name: str
    description: str
    archived: bool = False
    deprecated: bool = False
    schemas: Mapping[str, object] | None = None
    feature_flags: Sequence[str] | None = None
    group_name: str | None = None
    schema_check: SchemaCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTypePatch:
    """A partial change of an event type."""

    description: str | UnsetType = UNSET
    archived: bool | UnsetType = UNSET
    deprecated: bool | UnsetType = UNSET
    schemas: Mapping[str, object] | UnsetType | None = UNSET
    feature_flags: Sequence[str] | UnsetType | None = UNSET
    group_name: str | UnsetType | None = UNSET
    schema_check: SchemaCheck | UnsetType = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """A kind of message; `schemas` maps a version to a JSON Schema."""

    name: EventTypeName
    description: str
    archived: bool
    deprecated: bool
    schemas: Mapping[str, object] | None
    feature_flags: tuple[str, ...] | None
    group_name: str | None
    schema_check: SchemaCheck
    created_at: int
    updated_at: int


# --- Messages --------------------------------------------------------------------------


class NewMessage(Struct, frozen=True, kw_only=True):
    """A message to accept; `body` is stored, signed and sent byte for byte.

    `content_type` None means application/json. `deliver_at` is the first attempt's
    earliest instant, `delay_us` the same counted from the acceptance; at most one of
    them. `expires_at` is the instant past which nothing is sent any more.
    `application` is created when the path names none that exists. `relay` says of a
    message that arrived as a webhook how it arrived.
    """

    event_type: str
    body: bytes
    event_id: str | None = None
    content_type: str | None = None
    channels: Sequence[str] | None = None
    tags: Sequence[str] | None = None
    headers: Mapping[str, str] | None = None
    deliver_at: int | None = None
    delay_us: int | None = None
    expires_at: int | None = None
    retention_seconds: float | None = None
    application: ApplicationIn | None = None
    relay: Relay | None = None


class Message(Struct, frozen=True, kw_only=True):
    """An accepted message; `body` is None when not asked for or expunged.

    `relay` is there only while the message is accepted: reads leave it out.
    """

    id: MessageId
    app: AppId
    tenant: TenantId
    event_id: str | None
    event_type: str
    channels: tuple[str, ...] | None
    tags: tuple[str, ...] | None
    headers: Mapping[str, str] | None
    content_type: str | None
    deliver_at: int | None
    expires_at: int | None
    created_at: int
    body: bytes | None = None
    expunged: bool = False
    relay: Relay | None = None


class Accepted(Struct, frozen=True, kw_only=True):
    """The answer to an accepted message: `matched` endpoints got a work row each."""

    message: Message
    matched: int
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """Which messages a list shows; bounds are instants (µs).

    `before` is exclusive, `after` inclusive, both at the millisecond of an id.
    """

    channel: str | None = None
    tag: str | None = None
    event_types: Sequence[str] | None = None
    before: int | None = None
    after: int | None = None
    with_content: bool = True


# --- Attempts --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFilter:
    """Which attempts a list shows; `status_class` 0 means no HTTP answer."""

    status: AttemptStatus | None = None
    status_class: int | None = None
    channel: str | None = None
    tag: str | None = None
    event_types: Sequence[str] | None = None
    endpoint: str | None = None
    before: int | None = None
    after: int | None = None
    with_content: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt: who, when, what came back.

    `status_code` 0 means no HTTP answer; `outcome` and `reason` then say why.
    `response_body` is None when not asked for or never received.
    """

    id: AttemptId
    work: WorkId
    claim: int
    number: int
    message: MessageId
    endpoint: EndpointId
    url: str
    status: AttemptStatus
    outcome: str
    reason: str | None
    status_code: int
    cause: str | None
    response_body: bytes | None
    response_headers: Sequence[tuple[str, str]]
    request_headers: Sequence[tuple[str, str]]
    truncated: bool
    expunged: bool
    duration_us: int
    address: str | None
    tls_version: str | None
    trigger: Trigger
    begun_at: int | None
    ended_at: int
    next_due_at: int | None
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptedMessage:
    """A message as one endpoint saw it, with the state of its delivery."""

    message: Message
    status: AttemptStatus
    next_attempt_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptedDestination:
    """An endpoint as one message saw it, with the state of its delivery."""

    endpoint: Endpoint
    status: AttemptStatus
    next_attempt_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resent:
    """What a resend did: `ready`, `woken` or `in_flight` (a claimed row stays)."""

    work: WorkId
    answer: str


# --- Explaining ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmatched:
    """An endpoint that got no work row, and the stored reason why."""

    endpoint: EndpointId | None
    url: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedAttempt:
    """One line of a delivery's past."""

    id: AttemptId
    number: int
    ended_at: int
    outcome: str
    reason: str | None
    status_code: int | None
    cause: str | None
    next_due_at: int | None
    late_outcome: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedDelivery:
    """One work row: how it stands, why it waits, when it goes on, which rule says so.

    `waits` has a stable `code` (`paused`, `not_due`, `in_flight`, …) and a sentence.
    """

    work: WorkId
    endpoint: EndpointId
    url: str
    state: str
    code: str
    why: str
    rule: str
    next_at: int | None
    attempts: Sequence[ExplainedAttempt]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything that decided what became of a message."""

    message: Message
    deliveries: Sequence[ExplainedDelivery]
    unmatched: Sequence[Unmatched]


# --- API keys --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A stored API key; `app` limits it to that application."""

    id: KeyId
    tenant: TenantId
    name: str
    scope: Scope
    app: AppId | None
    created_at: int
    expires_at: int | None
    last_used_at: int | None
    revoked_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApiKey:
    """A key just made; `token` is shown this once and stored nowhere."""

    key: ApiKey
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls: the tenant and scope of a verified key; `app` None = whole tenant.

    `key` None is the bootstrap key.
    """

    tenant: TenantId
    scope: Scope
    app: AppId | None = None
    key: KeyId | None = None

    @property
    def name(self) -> str:
        """Who calls, as notes and logs name it."""
        return self.key or "bootstrap key"
