"""Response bodies: the slice's values as the Svix API shows them.

Each `…_out` builds the plain mapping that is sent; the models beside them document it
in OpenAPI and are held to it by the tests. Members that the contract omits when null
are left out, the others are null. Instants become RFC 3339 text here and nowhere else.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from tenure.clock import to_rfc3339
from tenure.outbox.model import (
    ApiKey,
    Application,
    Attempt,
    AttemptedDestination,
    AttemptedMessage,
    AttemptStatus,
    Endpoint,
    EndpointHeaders,
    EndpointSettings,
    EndpointStats,
    EventType,
    ExplainedAttempt,
    ExplainedDelivery,
    Explanation,
    Message,
    Page,
)
from tenure.outbox.payload import canonical_out

T = TypeVar("T")
Json = dict[str, Any]

EXPIRED: Final = msgspec.Raw(b'{"expired":true}')
EXPUNGED: Final = "EXPUNGED"
NO_CONTENT: Final = msgspec.Raw(b"{}")


def page_out(page: Page[T], show: Callable[[T], Json]) -> Json:
    """Return a list envelope; `prevIterator` is absent when the page is empty."""
    shown: Json = {
        "data": [show(item) for item in page.data],
        "iterator": page.iterator,
        "done": page.done,
    }
    if page.prev_iterator is not None:
        shown["prevIterator"] = page.prev_iterator
    return shown


def _when(instant_us: int | None) -> str | None:
    return None if instant_us is None else to_rfc3339(instant_us)


def _given(values: Mapping[str, object]) -> Json:
    return {name: value for name, value in values.items() if value is not None}


def _list(values: tuple[str, ...] | None) -> list[str] | None:
    return None if values is None else list(values)


def application_out(app: Application) -> Json:
    """Return ApplicationOut."""
    return {
        "id": app.id,
        "name": app.name,
        "metadata": dict(app.metadata),
        "tenure": {
            "historyDays": app.kept.history_days,
            "payloadDays": app.kept.payload_days,
            "responseDays": app.kept.response_days,
        },
        "throttleRate": app.throttle_rate,
        "createdAt": to_rfc3339(app.created_at),
        "updatedAt": to_rfc3339(app.updated_at),
    } | _given({"uid": app.uid, "rateLimit": app.throttle_rate})


def _endpoint(endpoint: Endpoint) -> Json:
    event_types = _list(endpoint.event_types)
    return {
        "id": endpoint.id,
        "url": endpoint.url,
        "description": endpoint.description,
        "disabled": endpoint.disabled,
        "version": endpoint.svix_version,
        "uid": endpoint.uid,
        "throttleRate": endpoint.throttle_rate,
        "rateLimit": endpoint.throttle_rate,
        "eventTypes": event_types,
        "filterTypes": event_types,
        "channels": _list(endpoint.channels),
        "createdAt": to_rfc3339(endpoint.created_at),
        "updatedAt": to_rfc3339(endpoint.updated_at),
    } | _given({"disabledReason": endpoint.disabled_why})


def endpoint_out(endpoint: Endpoint) -> Json:
    """Return EndpointOut, with Tenure's own settings under `tenure`."""
    return _endpoint(endpoint) | {
        "metadata": dict(endpoint.metadata),
        "tenure": settings_out(endpoint.settings),
    }


def settings_out(settings: EndpointSettings) -> Json:
    """Return an endpoint's own settings."""
    retry = settings.retry_seconds
    return {
        "timeoutSeconds": settings.timeout_seconds,
        "method": settings.method,
        "retrySeconds": None if retry is None else list(retry),
        "retryStatuses": list(settings.retry_statuses),
        "insecure": settings.insecure,
        "allowNetworks": list(settings.allow_networks),
        "atMostOnce": settings.at_most_once,
        "svixHeaders": settings.svix_headers,
        "kind": settings.kind,
        "filter": settings.filter,
        "transform": settings.transform,
        "dropHeaders": None
        if settings.drop_headers is None
        else list(settings.drop_headers),
        "relayQuery": settings.relay_query,
        "archiveDays": settings.archive_days,
    }


def headers_out(headers: EndpointHeaders) -> Json:
    """Return EndpointHeadersOut: values of sensitive ones are withheld."""
    return {"headers": dict(headers.headers), "sensitive": list(headers.sensitive)}


def stats_out(stats: EndpointStats) -> Json:
    """Return EndpointStats."""
    return {
        "success": stats.success,
        "pending": stats.pending,
        "sending": stats.sending,
        "fail": stats.fail,
        "canceled": stats.canceled,
    }


def event_type_out(item: EventType, *, with_content: bool = True) -> Json:
    """Return EventTypeOut; `schemas` is null unless content is asked for."""
    flags = _list(item.feature_flags)
    return {
        "name": item.name,
        "description": item.description,
        "archived": item.archived,
        "deprecated": item.deprecated,
        "schemas": None
        if item.schemas is None or not with_content
        else dict(item.schemas),
        "featureFlag": flags[0] if flags else None,
        "featureFlags": flags,
        "groupName": item.group_name,
        "tenure": {"schemaCheck": str(item.schema_check)},
        "createdAt": to_rfc3339(item.created_at),
        "updatedAt": to_rfc3339(item.updated_at),
    }


def message_out(message: Message, *, with_content: bool = True) -> Json:
    """Return MessageOut; a payload that is gone, or no JSON, shows as expired."""
    if not with_content:
        payload = NO_CONTENT
    elif message.expunged or message.body is None:
        payload = EXPIRED
    else:
        shown = canonical_out(message.body)
        payload = msgspec.Raw(shown) if shown[:1] == b"{" else EXPIRED
    return {
        "id": message.id,
        "eventType": message.event_type,
        "eventId": message.event_id,
        "payload": payload,
        "channels": _list(message.channels),
        "tags": _list(message.tags),
        "deliverAt": _when(message.deliver_at),
        "timestamp": to_rfc3339(message.created_at),
    }


def _status(status: AttemptStatus) -> Json:
    return {"status": int(status), "statusText": status.name.lower()}


def attempt_out(attempt: Attempt, *, with_content: bool = True) -> Json:
    """Return MessageAttemptOut, with the cause of a failure beside it."""
    return {
        "id": attempt.id,
        "msgId": attempt.message,
        "endpointId": attempt.endpoint,
        "url": attempt.url,
        "response": _response(attempt) if with_content else "{}",
        "responseStatusCode": attempt.status_code,
        "responseDurationMs": attempt.duration_us // 1000,
        "triggerType": int(attempt.trigger),
        "timestamp": to_rfc3339(
            attempt.ended_at if attempt.begun_at is None else attempt.begun_at
        ),
        "number": attempt.number,
        "outcome": attempt.outcome,
        "cause": attempt.cause,
        "reason": attempt.reason,
    } | _status(attempt.status)


def _response(attempt: Attempt) -> str:
    if attempt.expunged:
        return EXPUNGED
    if attempt.response_body is None:
        # No HTTP answer: what went wrong is the answer.
        return "" if attempt.status_code else attempt.reason or attempt.cause or ""
    return attempt.response_body.decode(errors="replace")


def attempted_message_out(item: AttemptedMessage, *, with_content: bool = True) -> Json:
    """Return EndpointMessageOut."""
    return (
        message_out(item.message, with_content=with_content)
        | _status(item.status)
        | _given({"nextAttempt": _when(item.next_attempt_at)})
    )


def attempted_destination_out(item: AttemptedDestination) -> Json:
    """Return MessageEndpointOut."""
    return (
        _endpoint(item.endpoint)
        | _status(item.status)
        | {"nextAttempt": _when(item.next_attempt_at)}
    )


def explanation_out(explanation: Explanation) -> Json:
    """Return why each endpoint matched or not, what came back, and why it waits."""
    return {
        "message": message_out(explanation.message, with_content=False),
        "deliveries": [_delivery_out(item) for item in explanation.deliveries],
        "unmatched": [
            {"endpointId": item.endpoint, "url": item.url, "reason": item.reason}
            for item in explanation.unmatched
        ],
    }


def _delivery_out(item: ExplainedDelivery) -> Json:
    return {
        "workId": item.work,
        "endpointId": item.endpoint,
        "url": item.url,
        "state": item.state,
        "code": item.code,
        "why": item.why,
        "rule": item.rule,
        "nextAt": _when(item.next_at),
        "attempts": [_explained_attempt_out(attempt) for attempt in item.attempts],
    }


def _explained_attempt_out(item: ExplainedAttempt) -> Json:
    return {
        "id": item.id,
        "number": item.number,
        "timestamp": to_rfc3339(item.ended_at),
        "outcome": item.outcome,
        "reason": item.reason,
        "statusCode": item.status_code,
        "cause": item.cause,
        "nextAttempt": _when(item.next_due_at),
        "lateOutcome": item.late_outcome,
    }


def key_out(key: ApiKey) -> Json:
    """Return what may be shown of an API key; never its token."""
    return {
        "id": key.id,
        "name": key.name,
        "scope": str(key.scope),
        "appId": key.app,
        "createdAt": to_rfc3339(key.created_at),
        "expiresAt": _when(key.expires_at),
        "lastUsedAt": _when(key.last_used_at),
        "revokedAt": _when(key.revoked_at),
    }
