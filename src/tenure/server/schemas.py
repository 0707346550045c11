"""Response bodies as OpenAPI documents them; `tenure.server.shapes` builds them.

Nothing is validated against these at run time. The tests hold every answer to them.
"""

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from tenure.outbox.model import AttemptStatus, Scope, Trigger

T = TypeVar("T")


class Out(BaseModel):
    """A response body."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Problem(Out):
    """An error: a stable code, what happened in words, and which request it was."""

    code: str
    detail: str
    request_id: str | None = None


class Fault(Out):
    """One fault of a request: where it is, what is wrong, and its stable type."""

    loc: list[str]
    msg: str
    type: str


class ValidationProblem(Out):
    """Every fault of a request."""

    detail: list[Fault]


class ListOf(Out, Generic[T]):
    """One page of a list."""

    data: list[T]
    iterator: str | None
    prev_iterator: str | None = None
    done: bool


class TaskOut(Out):
    """A background task; `data` says what it is about and how far it got."""

    id: str
    status: str
    task: str
    data: dict[str, str | int]
    updated_at: datetime


class KeptOut(Out):
    """For how many days an application keeps what is over; null = the deployment's."""

    history_days: int | None
    payload_days: int | None
    response_days: int | None


class ApplicationOut(Out):
    """An application."""

    id: str
    name: str
    uid: str | None = None
    throttle_rate: int | None = None
    rate_limit: int | None = None
    metadata: dict[str, str]
    tenure: KeptOut
    created_at: datetime
    updated_at: datetime


class SettingsOut(Out):
    """An endpoint's settings beyond the Svix API."""

    timeout_seconds: float | None
    method: str
    retry_seconds: list[float] | None
    retry_statuses: list[int]
    insecure: bool
    allow_networks: list[str]
    at_most_once: bool
    svix_headers: bool
    kind: str
    filter: str | None
    transform: str | None
    drop_headers: list[str] | None
    relay_query: bool
    archive_days: int | None


class EndpointFacts(Out):
    """What every view of an endpoint shows."""

    id: str
    url: str
    description: str
    disabled: bool
    disabled_reason: str | None = None
    version: int
    uid: str | None = None
    throttle_rate: int | None = None
    rate_limit: int | None = None
    event_types: list[str] | None = None
    filter_types: list[str] | None = None
    channels: list[str] | None = None
    created_at: datetime
    updated_at: datetime


class EndpointOut(EndpointFacts):
    """An endpoint; never its secret."""

    metadata: dict[str, str]
    tenure: SettingsOut


class EndpointHeadersOut(Out):
    """Custom headers; `sensitive` names those whose values are withheld."""

    headers: dict[str, str]
    sensitive: list[str]


class EndpointSecretOut(Out):
    """The signing secret: `whsec_…`, or the public `whpk_…` of an ed25519 key."""

    key: str


class EndpointStatsOut(Out):
    """Counts of attempts."""

    success: int
    pending: int
    sending: int
    fail: int
    canceled: int


class EventTypeSettingsOut(Out):
    """An event type's settings beyond the Svix API."""

    schema_check: Literal["off", "warn", "enforce"]


class EventTypeOut(Out):
    """An event type."""

    name: str
    description: str
    archived: bool
    deprecated: bool
    schemas: dict[str, Any] | None = None
    feature_flag: str | None = None
    feature_flags: list[str] | None = None
    group_name: str | None = None
    tenure: EventTypeSettingsOut
    created_at: datetime
    updated_at: datetime


class MessageOut(Out):
    """A message; `payload` is `{}` without content, `{"expired":true}` once gone."""

    id: str
    event_type: str
    event_id: str | None = None
    payload: dict[str, Any]
    channels: list[str] | None = None
    tags: list[str] | None = None
    deliver_at: datetime | None = None
    timestamp: datetime


StatusText = Literal["success", "pending", "fail", "sending"]


class AttemptedMessageOut(MessageOut):
    """A message as one endpoint saw it."""

    status: AttemptStatus
    status_text: StatusText
    next_attempt: datetime | None = None


class AttemptedDestinationOut(EndpointFacts):
    """An endpoint as one message saw it."""

    status: AttemptStatus
    status_text: StatusText
    next_attempt: datetime | None = None


class AttemptOut(Out):
    """One attempt; `responseStatusCode` 0 means no HTTP answer, `cause` says why."""

    id: str
    msg_id: str
    endpoint_id: str
    url: str
    status: AttemptStatus
    status_text: StatusText
    response: str
    response_status_code: int
    response_duration_ms: int
    trigger_type: Trigger
    timestamp: datetime
    number: int
    outcome: str
    cause: str | None = None
    reason: str | None = None


class UnmatchedOut(Out):
    """An endpoint that got nothing, and why."""

    endpoint_id: str | None
    url: str | None
    reason: str


class ExplainedAttemptOut(Out):
    """One line of a delivery's past."""

    id: str
    number: int
    timestamp: datetime
    outcome: str
    reason: str | None
    status_code: int | None
    cause: str | None
    next_attempt: datetime | None
    late_outcome: str | None


class ExplainedDeliveryOut(Out):
    """How one delivery stands, why it waits, when it goes on, which rule says so."""

    work_id: str
    endpoint_id: str
    url: str
    state: str
    code: str
    why: str
    rule: str
    next_at: datetime | None
    attempts: list[ExplainedAttemptOut]


class ExplanationOut(Out):
    """Everything that decided what became of a message."""

    message: MessageOut
    deliveries: list[ExplainedDeliveryOut]
    unmatched: list[UnmatchedOut]


class KeyOut(Out):
    """An API key; its token is never shown again."""

    id: str
    name: str
    scope: Scope
    app_id: str | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewKeyOut(KeyOut):
    """A key just made; keep the token, it is shown this once."""

    token: str


class NodeOut(Out):
    """One running process."""

    id: int
    name: str
    host: str
    pid: int
    version: str
    state: Literal["open", "draining", "closed"]
    serves: list[str]
    started_at: datetime
    beat_at: datetime
    closed_at: datetime | None
    closed_why: str | None


class NodesOut(Out):
    """The nodes of this deployment."""

    data: list[NodeOut]


class HealthPart(Out):
    """One part's state."""

    status: Literal["ok", "error"]


class HealthOut(Out):
    """What this node can do now."""

    database: HealthPart
    queue: HealthPart
    cache: HealthPart


class EmptyOut(Out):
    """An empty object."""

    model_config = ConfigDict(json_schema_extra={"maxProperties": 0})
