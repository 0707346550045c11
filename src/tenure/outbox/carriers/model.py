"""What carriers are handed and what they answer: frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from tenure.outbox.headers import HeaderPairs

if TYPE_CHECKING:
    from tenure.ids import AppId, EndpointId, MessageId, TenantId
    from tenure.outbox.carriers.naming import Coordinate
    from tenure.outbox.http.model import Policy
    from tenure.outbox.http.url import Url
    from tenure.outbox.model import EndpointSettings
    from tenure.outbox.outcome import Answer, RetryPolicy
    from tenure.outbox.relayed import Relay
    from tenure.outbox.secrets import SecretSet
    from tenure.work.kinds import Guard


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One version of an endpoint's configuration, opened and parsed.

    `url` is what the HTTP client dials, `secret_url` a chat service's whole address,
    `handler` the function that is called: each None where the kind has none.
    """

    endpoint: EndpointId
    kind: str
    url: Url | None
    shown_url: str
    userinfo: str | None = field(repr=False)
    headers: HeaderPairs = field(repr=False)
    secrets: SecretSet
    settings: EndpointSettings
    retries: RetryPolicy
    policy: Policy
    secret_url: str | None = field(default=None, repr=False)
    handler: Coordinate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Untriable:
    """A configuration that cannot be used, and why."""

    reason: str


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One message to one target; `expires_at` None for what an operator asked for.

    `content_type` None means application/json; `relay` says how it arrived when it came
    as a webhook.
    """

    message: MessageId
    app: AppId
    tenant: TenantId
    event_type: str
    created_at: int
    body: bytes
    content_type: str | None
    headers: HeaderPairs
    expires_at: int | None
    target: Target
    relay: Relay | None = None


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a message, in the commit that settles its delivery."""

    endpoint: EndpointId
    message: MessageId
    app: AppId
    tenant: TenantId
    event_type: str
    content_type: str | None
    headers: bytes
    body: bytes
    archived_at: int
    expires_at: int | None


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an attempt that was no HTTP request.

    `answer` is judged by the table of outcomes as an HTTP answer is; `reason` is what
    people read instead of its name. `began` False gives the claim back, uncharged.
    `final` ends the delivery whatever budget is left.
    """

    answer: Answer
    method: str
    duration_us: int
    reason: str | None = None
    began: bool = True
    final: bool = False
    archived: Archived | None = None


class Carrier(Protocol):
    """Carries messages to endpoints of one kind."""

    async def carry(self, job: Job, guard: Guard, number: int) -> Carried:
        """Do it once within the claim's deadline; `number` counts attempts from 1.

        `guard.may_begin` is asked as the last act before the outside world is touched;
        False ends it with `began` False. Raises only `CancelledError`.
        """
        ...
