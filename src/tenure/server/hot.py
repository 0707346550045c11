"""`POST /api/v1/app/{app_id}/msg` as plain ASGI: the route that everything waits for.

It stands in front of FastAPI, reads the body once, and cuts the payload out of it as the
exact bytes that were sent. The rest of the body is decoded by msgspec. Its place in the
OpenAPI document is in `tenure.server.openapi`.
"""

import re
from collections.abc import Callable
from typing import Annotated, Final, TypeVar
from urllib.parse import parse_qs

import msgspec
from msgspec.structs import replace
from starlette.types import Receive, Scope

from tenure.clock import US, from_rfc3339
from tenure.errors import BadRequest, ValidationFailed, ValidationItem
from tenure.limits import DAY_SECONDS, PAYLOAD_RETENTION_MAX_SECONDS
from tenure.outbox.model import ApplicationIn, NewMessage
from tenure.outbox.payload import (
    PAYLOAD,
    PAYLOAD_ALIAS,
    check_object,
    check_utf8,
    extract_payload,
    scan_members,
)
from tenure.server import wire
from tenure.server.auth import (
    Headers,
    KeyDoor,
    bearer_token,
    check_app,
    check_scope,
)
from tenure.server.bounds import BodyReader
from tenure.server.paging import read_bool
from tenure.server.problems import Answer, json_answer
from tenure.server.reading import MALFORMED, idempotency, parse
from tenure.server.shapes import message_out
from tenure.server.site import Site

__all__ = ["MessageRoute", "match", "read_message"]

T = TypeVar("T")
V = TypeVar("V")

CONTENT_TYPE: Final = "content-type"
HOUR_SECONDS: Final = 3600.0
_PLACE: Final = re.compile(r"\.(\w+)|(\[[^\]]*\])")


Small = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
"""A number that can be multiplied without care; the outbox knows its real bounds."""


class TransformationsParams(msgspec.Struct, rename="camel", frozen=True):
    """`rawPayload` is sent instead of the payload, with these headers."""

    raw_payload: str | None = None
    headers: dict[str, str] | None = None


class _Envelope(msgspec.Struct, rename="camel", frozen=True):
    event_type: str
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    event_id: str | None = None
    channels: list[str] | None = None
    tags: list[str] | None = None
    payload_retention_period: Small | None = None
    payload_retention_hours: Small | None = None
    deliver_at: str | None = None
    delay_seconds: int | float | None = None
    expires_at: str | None = None
    application: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    transformations_params: TransformationsParams | None = None


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)


class MessageRoute:
    """Accepts one message per request."""

    __slots__ = ("_bodies", "_door", "_site")

    def __init__(self, site: Site, door: KeyDoor) -> None:
        self._site: Final = site
        self._door: Final = door
        self._bodies: Final = BodyReader()

    async def answer(
        self, scope: Scope, headers: Headers, receive: Receive, app_ref: str
    ) -> Answer:
        """Return 202 after the commit that holds the message and all its work."""
        site = self._site
        token = bearer_token(_text(headers, b"authorization"))
        caller = self._door.remembered(token) or await self._door.caller(token)
        check_scope(caller, "POST")
        outbox = site.outbox
        if caller.app is not None:
            await check_app(outbox, caller, app_ref)
        with_content = _with_content(scope)
        body = await self._bodies.read(scope, receive, site.body_bytes_max)
        message = read_message(body)
        if caller.app is not None and message.application is not None:
            message = replace(message, application=None)
        once = idempotency(scope, _text(headers, b"idempotency-key"), body)
        accepted = await outbox.accept(
            caller.tenant, app_ref, message, idempotency=once
        )
        return json_answer(
            message_out(accepted.message, with_content=with_content), 202
        )


def _text(headers: Headers, name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


def _with_content(scope: Scope) -> bool:
    query: bytes = scope["query_string"]
    if b"with_content" not in query:
        return True
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    values = given.get("with_content", ["true"])
    if len(values) != 1:
        raise BadRequest("The query gives `with_content` twice: give it once")
    try:
        return read_bool(values[0]) is True
    except ValueError as error:
        raise BadRequest(f"Cannot read query.with_content: {error}") from None


def read_message(body: bytes) -> NewMessage:
    """Return the message that a request body says, its payload byte for byte.

    Raises ValidationFailed for what cannot be read; what may be stored is decided by
    the outbox.
    """
    envelope, payload = _open(body)
    if _is_plain(envelope):
        return NewMessage(
            event_type=envelope.event_type,
            body=payload,
            event_id=envelope.event_id,
            channels=envelope.channels,
            tags=envelope.tags,
        )
    faults: list[ValidationItem] = []

    def read(value: V | None, how: Callable[[V], T], *loc: str) -> T | None:
        if value is None:
            return None
        try:
            return how(value)
        except ValueError as error:
            faults.append(_fault(str(error), *loc))
            return None

    params = envelope.transformations_params or TransformationsParams()
    headers = dict(params.headers or {})
    content_type = None
    for name in [name for name in headers if name.lower() == CONTENT_TYPE]:
        content_type = headers.pop(name)
    raw = read(params.raw_payload, str.encode, "transformationsParams", "rawPayload")
    message = NewMessage(
        event_type=envelope.event_type,
        body=payload if raw is None else raw,
        event_id=envelope.event_id,
        content_type=content_type,
        channels=envelope.channels,
        tags=envelope.tags,
        headers=headers or None,
        deliver_at=read(envelope.deliver_at, from_rfc3339, "deliverAt"),
        delay_us=read(envelope.delay_seconds, _delay, "delaySeconds"),
        expires_at=read(envelope.expires_at, from_rfc3339, "expiresAt"),
        retention_seconds=_retention(envelope),
        application=_application(envelope),
    )
    if faults:
        raise ValidationFailed(faults)
    return message


def _is_plain(envelope: _Envelope) -> bool:
    """Whether it says nothing but what nearly every message says."""
    return (
        envelope.transformations_params is None
        and envelope.deliver_at is None
        and envelope.delay_seconds is None
        and envelope.expires_at is None
        and envelope.payload_retention_hours is None
        and envelope.payload_retention_period is None
        and isinstance(envelope.application, msgspec.UnsetType)
    )


def _open(body: bytes) -> tuple[_Envelope, bytes]:
    try:
        check_utf8(body)
        envelope = _ENVELOPE.decode(body)
    except msgspec.ValidationError as error:
        extract_payload(body)  # names a fault of the payload or of the JSON first
        raise _misfit(str(error)) from None
    except (msgspec.MsgspecError, RecursionError):
        # Malformed, or a lone surrogate escape inside of the payload, which is JSON.
        payload = extract_payload(body)
        return _without_payload(body), payload
    if isinstance(envelope.payload, msgspec.Raw) and isinstance(
        envelope.data, msgspec.UnsetType
    ):
        return envelope, check_object(bytes(envelope.payload))
    return envelope, extract_payload(body)


def _without_payload(body: bytes) -> _Envelope:
    rest = {
        name: msgspec.Raw(value)
        for name, value in scan_members(body).items()
        if name not in {PAYLOAD, PAYLOAD_ALIAS}
    }
    try:
        return _ENVELOPE.decode(msgspec.json.encode(rest))
    except msgspec.ValidationError as error:
        raise _misfit(str(error)) from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValidationFailed.at(
            "body", "", "", msg=str(error), type=MALFORMED
        ) from None


def _misfit(text: str) -> ValidationFailed:
    """Return msgspec's `Expected … - at `$.a[0]`` as a fault with its place."""
    msg, _, path = text.partition(" - at `$")
    places = [name or index for name, index in _PLACE.findall(path)]
    if not places and "required field" in msg:
        places = [msg.rpartition("field `")[2].rstrip("`")]
    return ValidationFailed.at("body", *(places or ("", "")), msg=msg, type=MALFORMED)


def _fault(msg: str, *loc: str | int) -> ValidationItem:
    return ValidationItem(loc=("body", *loc), msg=msg, type="value_error")


def _delay(seconds: float) -> int:
    if not 0 <= seconds <= PAYLOAD_RETENTION_MAX_SECONDS:
        raise ValueError(f"give 0 to {PAYLOAD_RETENTION_MAX_SECONDS:.0f} seconds")
    return round(seconds * US)


def _retention(envelope: _Envelope) -> float | None:
    if envelope.payload_retention_hours is not None:
        return envelope.payload_retention_hours * HOUR_SECONDS
    if envelope.payload_retention_period is not None:
        return envelope.payload_retention_period * DAY_SECONDS
    return None


def _application(envelope: _Envelope) -> ApplicationIn | None:
    if isinstance(envelope.application, msgspec.UnsetType):
        return None
    given = bytes(envelope.application)
    if given == b"null":
        return None
    return parse(wire.ApplicationIn, given, "application").value()


def match(path: str) -> str | None:
    """Return the application of a message-create path, or None for another path."""
    if not (path.startswith("/api/v1/app/") and path.endswith("/msg")):
        return None
    app_ref = path[len("/api/v1/app/") : -len("/msg")]
    return app_ref if app_ref and "/" not in app_ref else None
