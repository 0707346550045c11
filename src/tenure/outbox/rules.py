"""What may be stored, decided without a database: checks, defaults, fingerprints.

Each `check_…` takes what a caller wants and returns it normalised (sets sorted, URL as
it will be dialled), or raises ValidationFailed with one item for each fault.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from ipaddress import ip_network
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec
from msgspec import structs

from tenure.errors import (
    InvariantViolated,
    PayloadTooLarge,
    ValidationFailed,
    ValidationItem,
)
from tenure.kernel.states import State
from tenure.limits import (
    IDEMPOTENCY_KEY_MAX,
    LIST_MAX,
    PAYLOAD_RETENTION_MAX_SECONDS,
    PAYLOAD_RETENTION_MIN_SECONDS,
    REQUEST_MAX_SECONDS,
    REQUEST_MIN_SECONDS,
)
from tenure.outbox import fields
from tenure.outbox.carriers.naming import MASK, Place, check_kind, place_of
from tenure.outbox.carriers.relaying import SAME
from tenure.outbox.cel import check_filter, check_transform
from tenure.outbox.headers import check_content_type, validate_headers
from tenure.outbox.http.addresses import check_address
from tenure.outbox.http.encode import METHODS
from tenure.outbox.model import (
    Application,
    ApplicationIn,
    ApplicationPatch,
    AttemptStatus,
    Endpoint,
    EndpointIn,
    EndpointPatch,
    EndpointSettings,
    EventType,
    EventTypeIn,
    EventTypePatch,
    NewMessage,
    OutboxSettings,
    PageIn,
    UnsetType,
)
from tenure.outbox.outcome import RetryPolicy
from tenure.outbox.secrets import Secret, new_secret, parse_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tenure.outbox.http.model import Network

T = TypeVar("T")

MASKED_USERINFO: Final = MASK
"""Stands for the user info of a URL in reads; written back, it keeps what is stored."""

_SVIX_VERSION_MAX: Final = 65_535
_RATE_US: Final = 1_000_000
_INSTANT_MAX: Final = 253_402_300_799_999_999  # the last microsecond of year 9999
_DROPPED: Final = re.compile(r"[!#$%&'+\-.^_`|~0-9A-Za-z]+\*?")
_REF: Final = re.compile(r"[a-zA-Z0-9\-_.]{1,256}")


class Faults:
    """Collects what is wrong, so that a caller learns all of it at once."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: list[ValidationItem] = []

    def add(self, *loc: str | int, msg: str, kind: str = "value_error") -> None:
        """Note one fault; `kind` is its stable type."""
        self._items.append(ValidationItem(loc=loc, msg=msg, type=kind))

    def check(self, check: Callable[[T], T], value: T, *loc: str | int) -> T:
        """Return the checked value; on a fault note it and return the value as it is."""
        try:
            return check(value)
        except ValidationFailed as error:
            self._items.extend(error.items)
        except ValueError as error:
            self.add(*loc, msg=str(error))
        return value

    def done(self) -> None:
        """Raise ValidationFailed when anything was noted."""
        if self._items:
            raise ValidationFailed(self._items)


# --- Applications ----------------------------------------------------------------------


def check_application(given: ApplicationIn, *at: str) -> ApplicationIn:
    """Check an application; `at` is where it stands in the request (default: body)."""
    loc = at or ("body",)
    faults = Faults()
    faults.check(fields.check_name, given.name, *loc, "name")
    if given.uid is not None:
        faults.check(_app_uid, given.uid, *loc, "uid")
    if given.throttle_rate is not None:
        faults.check(
            fields.check_throttle_rate, given.throttle_rate, *loc, "throttleRate"
        )
    faults.check(fields.check_metadata, dict(given.metadata), *loc, "metadata")
    faults.done()
    return given


def patched_application(stored: Application, patch: ApplicationPatch) -> ApplicationIn:
    """Return what the application becomes: absent fields as stored, None clears."""
    return ApplicationIn(
        name=_or(patch.name, stored.name),
        uid=_or(patch.uid, stored.uid),
        throttle_rate=_or(patch.throttle_rate, stored.throttle_rate),
        metadata=_or(patch.metadata, stored.metadata) or {},
        kept=_or(patch.kept, stored.kept),
    )


# --- Endpoints -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedEndpoint:
    """An endpoint that may be stored.

    `place` is its address as the kind takes it; `given.url` is what is stored of it.
    """

    given: EndpointIn
    place: Place


def check_endpoint(given: EndpointIn, settings: OutboxSettings) -> CheckedEndpoint:
    """Check an endpoint; event types are checked for existence elsewhere.

    An address literal in the URL must be reachable by the networks allowed. A host
    name is judged when it is dialled, because what it resolves to changes.
    """
    faults = Faults()
    wanted = given.settings or EndpointSettings()
    networks = check_settings(wanted, faults)
    place = _check_place(wanted.kind, given.url, settings, networks, faults)
    faults.check(fields.check_description, given.description, "body", "description")
    if given.uid is not None:
        faults.check(_endpoint_uid, given.uid, "body", "uid")
    if given.throttle_rate is not None:
        faults.check(
            fields.check_throttle_rate, given.throttle_rate, "body", "throttleRate"
        )
    event_types = given.event_types
    if event_types is not None:
        event_types = faults.check(_event_types, event_types, "body", "eventTypes")
    channels = given.channels
    if channels is not None:
        channels = faults.check(
            fields.check_endpoint_channels, channels, "body", "channels"
        )
    faults.check(fields.check_metadata, dict(given.metadata), "body", "metadata")
    if given.secret is not None:
        faults.check(_secret, given.secret, "body", "secret")
    if given.headers is not None:
        faults.check(_headers, dict(given.headers), "body", "headers")
    if not 1 <= given.svix_version <= _SVIX_VERSION_MAX:
        faults.add("body", "version", msg=f"a version is 1 to {_SVIX_VERSION_MAX}")
    faults.done()
    if place is None:
        raise InvariantViolated("a URL that cannot be read passed without a fault")
    checked = replace(given, url=place.text, event_types=event_types, channels=channels)
    return CheckedEndpoint(given=checked, place=place)


def check_settings(wanted: EndpointSettings, faults: Faults) -> tuple[Network, ...]:
    """Check what Tenure offers beyond the Svix API; return the networks allowed."""
    at = ("body", "tenure")
    seconds = wanted.timeout_seconds
    if (
        seconds is not None
        and not REQUEST_MIN_SECONDS <= seconds <= REQUEST_MAX_SECONDS
    ):
        faults.add(
            *at,
            "timeoutSeconds",
            msg=f"a timeout is {REQUEST_MIN_SECONDS:g} to {REQUEST_MAX_SECONDS:g} s",
        )
    if wanted.method not in {*METHODS, SAME}:
        allowed = ", ".join(sorted(METHODS))
        faults.add(*at, "method", msg=f"a method is one of {allowed}, or {SAME}")
    for number, name in enumerate(wanted.drop_headers or ()):
        if not _DROPPED.fullmatch(name):
            msg = "a header's name, or its start with a * at the end"
            faults.add(*at, "dropHeaders", number, msg=msg)
    if wanted.filter is not None:
        faults.check(check_filter, wanted.filter, *at, "filter")
    if wanted.transform is not None:
        faults.check(check_transform, wanted.transform, *at, "transform")
    try:
        retry_policy(wanted, OutboxSettings())
    except ValueError as error:
        faults.add(*at, "retry", msg=str(error))
    networks: list[Network] = []
    for number, text in enumerate(wanted.allow_networks):
        try:
            networks.append(ip_network(text))
        except ValueError as error:
            faults.add(*at, "allowNetworks", number, msg=str(error))
    return tuple(networks)


def retry_policy(wanted: EndpointSettings, settings: OutboxSettings) -> RetryPolicy:
    """Return how this endpoint's failures are tried again; ValueError if it cannot."""
    seconds = wanted.retry_seconds
    if seconds is None:
        seconds = settings.retry_seconds
    scaled = settings.durations.scaled
    return RetryPolicy(
        schedule=tuple(scaled(each) for each in seconds),
        time_budget_seconds=settings.durations.time_budget_seconds,
        retried_statuses=frozenset(wanted.retry_statuses),
    )


def deadline_us(wanted: EndpointSettings, settings: OutboxSettings) -> int:
    """Return the total deadline of one attempt, in microseconds."""
    seconds = wanted.timeout_seconds or settings.request_seconds
    return round(settings.durations.scaled(seconds) * _RATE_US)


def patched_endpoint(stored: Endpoint, patch: EndpointPatch) -> EndpointIn:
    """Return what the endpoint becomes: absent fields as stored, None clears."""
    return EndpointIn(
        url=_or(patch.url, stored.url),
        description=_or(patch.description, stored.description),
        throttle_rate=_or(patch.throttle_rate, stored.throttle_rate),
        uid=_or(patch.uid, stored.uid),
        disabled=_or(patch.disabled, stored.disabled),
        event_types=_or(patch.event_types, stored.event_types),
        channels=_or(patch.channels, stored.channels),
        metadata=_or(patch.metadata, stored.metadata) or {},
        svix_version=_or(patch.svix_version, stored.svix_version),
        settings=_or(patch.settings, stored.settings),
    )


def shown_url(url: str, *, userinfo: bool) -> str:
    """Return a stored URL as reads show it: user info masked.

    A chat service's address is masked as it is stored.
    """
    if not userinfo or not url.startswith("http"):
        return url
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{MASKED_USERINFO}@{rest}"


def first_secret(given: str | None, settings: OutboxSettings) -> Secret:
    """Return the endpoint's own secret, or a new one of the deployment's kind."""
    return new_secret(settings.secret_kind) if given is None else parse_secret(given)


def check_rotation_key(text: str | None) -> Secret | None:
    """Return the key to rotate to; raises ValidationFailed at `body, key`."""
    if text is None:
        return None
    try:
        return parse_secret(text)
    except ValueError as error:
        raise ValidationFailed.at("body", "key", msg=str(error)) from None


# --- Event types -----------------------------------------------------------------------


def check_event_type(given: EventTypeIn) -> EventTypeIn:
    """Check an event type; schemas may refer to nothing outside themselves."""
    faults = Faults()
    faults.check(fields.check_event_type, given.name, "body", "name")
    faults.check(fields.check_description, given.description, "body", "description")
    if given.schemas is not None:
        faults.check(fields.check_schemas, dict(given.schemas), "body", "schemas")
    flags = given.feature_flags
    if flags is not None:
        flags = faults.check(_flags, flags, "body", "featureFlags")
    if given.group_name is not None:
        faults.check(fields.check_name, given.group_name, "body", "groupName")
    faults.done()
    return replace(given, feature_flags=flags)


def patched_event_type(stored: EventType, patch: EventTypePatch) -> EventTypeIn:
    """Return what the event type becomes: absent fields as stored, None clears."""
    return EventTypeIn(
        name=stored.name,
        description=_or(patch.description, stored.description),
        archived=_or(patch.archived, stored.archived),
        deprecated=_or(patch.deprecated, stored.deprecated),
        schemas=_or(patch.schemas, stored.schemas),
        feature_flags=_or(patch.feature_flags, stored.feature_flags),
        group_name=_or(patch.group_name, stored.group_name),
        schema_check=_or(patch.schema_check, stored.schema_check),
    )


# --- Messages --------------------------------------------------------------------------


def check_message(given: NewMessage, settings: OutboxSettings) -> NewMessage:
    """Check a message; raises PayloadTooLarge or ValidationFailed."""
    size = len(given.body)
    # What came as a webhook was read under its source's own bound.
    if size > settings.payload_max_bytes and given.relay is None:
        raise PayloadTooLarge(
            f"the payload is {size} bytes; at most {settings.payload_max_bytes} are"
            " accepted",
            bytes=size,
            bytes_max=settings.payload_max_bytes,
        )
    faults = Faults()
    faults.check(fields.check_event_type, given.event_type, "body", "eventType")
    if given.event_id is not None:
        faults.check(_message_uid, given.event_id, "body", "eventId")
    channels = given.channels
    if channels is not None:
        channels = faults.check(
            fields.check_message_channels, channels, "body", "channels"
        )
    tags = given.tags
    if tags is not None:
        tags = faults.check(fields.check_tags, tags, "body", "tags") if tags else None
    if given.headers is not None:
        faults.check(_headers, dict(given.headers), "body", "headers")
    if given.content_type is not None:
        faults.check(check_content_type, given.content_type, "body", "contentType")
    _check_times(given, settings, faults)
    if given.application is not None:
        try:
            check_application(given.application, "body", "application")
        except ValidationFailed as error:
            for item in error.items:
                faults.add(*item.loc, msg=item.msg, kind=item.type)
    faults.done()
    if channels is given.channels and tags is given.tags:
        return given
    return structs.replace(given, channels=channels, tags=tags)


def check_inline(given: ApplicationIn, ref: str) -> ApplicationIn:
    """Check that an inline application is the one that the path names."""
    if given.uid is None:
        raise ValidationFailed.at(
            "body",
            "application",
            "uid",
            msg="an application made with its first message needs the uid of the path",
            type="application_uid_missing",
        )
    if given.uid != ref:
        raise ValidationFailed.at(
            "body",
            "application",
            "uid",
            msg=f"the path names {ref!r}, the application block {given.uid!r}",
            type="application_uid_mismatch",
        )
    return given


def check_idempotency_key(key: str) -> str:
    """Check an Idempotency-Key; raises ValidationFailed."""
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_MAX or not key.isprintable():
        raise ValidationFailed.at(
            "header",
            "idempotency-key",
            msg=f"a key has 1 to {IDEMPOTENCY_KEY_MAX} printable characters",
        )
    return key


def due_at(given: NewMessage, now: int) -> int | None:
    """Return when the first attempt is due; None = now."""
    if given.deliver_at is not None:
        return given.deliver_at
    return None if given.delay_us is None else now + given.delay_us


def fingerprint(*parts: str | bytes) -> str:
    """Return the SHA-256 of the parts, each with its length, as hex."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        digest.update(b"%d:" % len(raw))
        digest.update(raw)
    return digest.hexdigest()


def message_hash(given: NewMessage) -> str:
    """Return a hash of everything in a message, for callers without a request body."""
    rest = structs.replace(given, body=b"")
    return fingerprint(given.body, msgspec.json.encode(rest, order="sorted"))


def findable(ref: str) -> bool:
    """Tell whether an id, uid or name can exist at all; else no database is asked.

    What no rule lets in may not even be text to a database (NUL, half a surrogate).
    """
    return _REF.fullmatch(ref) is not None


# --- Lists and statuses ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Where a page starts; `key` None = at the beginning."""

    key: str | None
    backward: bool


def check_page(page: PageIn, valid: Callable[[str], object]) -> Cursor:
    """Return where the page starts; `valid` refuses (False, ValueError) a bad cursor.

    Raises ValidationFailed at `query, limit` or `query, iterator`.
    """
    if not 0 <= page.limit <= LIST_MAX:
        raise ValidationFailed.at(
            "query", "limit", "limit", msg=f"a limit is 0 to {LIST_MAX}"
        )
    if page.iterator is None:
        return Cursor(key=None, backward=False)
    backward = page.iterator.startswith("-")
    key = page.iterator.removeprefix("-")
    try:
        fits = valid(key) is not False
    except ValueError:
        fits = False
    if not fits:
        raise ValidationFailed.at(
            "query", "iterator", msg="not an iterator of this list"
        )
    return Cursor(key=key, backward=backward)


def check_filter_types(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Check the event types of a list's filter; None = no filter."""
    if names is None:
        return None
    faults = Faults()
    for number, name in enumerate(names):
        faults.check(fields.check_event_type, name, "query", "event_types", number)
    faults.done()
    return tuple(sorted(set(names)))


def check_filter_name(name: str | None, field: str) -> None:
    """Check the channel or tag of a list's filter; raises ValidationFailed."""
    if name is not None:
        faults = Faults()
        faults.check(fields.check_channel, name, "query", field)
        faults.done()


def delivery_status(state: str, attempts: int) -> AttemptStatus:
    """Return how a delivery stands, in the numbers of the Svix API."""
    match State(state):
        case State.SUCCEEDED:
            return AttemptStatus.SUCCESS
        case State.DEAD | State.CANCELLED | State.PARKED:
            return AttemptStatus.FAIL
        case State.CLAIMED:
            return AttemptStatus.SENDING
        case State.READY:
            return AttemptStatus.SENDING if attempts else AttemptStatus.PENDING


def _check_place(
    kind: str,
    text: str,
    settings: OutboxSettings,
    networks: tuple[Network, ...],
    faults: Faults,
) -> Place | None:
    try:
        check_kind(kind)
    except ValueError as error:
        faults.add("body", "tenure", "kind", msg=str(error))
        return None
    try:
        place = place_of(kind, text)
    except ValueError as error:
        faults.add("body", "url", msg=str(error))
        return None
    url = place.url
    if url is None:
        return place
    if settings.https_only and url.scheme != "https":
        faults.add("body", "url", msg="this deployment sends to https only")
    if url.address is not None:
        reason = check_address(url.address, (*settings.allow_networks, *networks))
        if reason is not None:
            faults.add(
                "body",
                "url",
                msg=f"{url.host} is not a public address ({reason});"
                " an operator can allow its network",
                kind="value_error.address_refused",
            )
    return place


def _check_times(given: NewMessage, settings: OutboxSettings, faults: Faults) -> None:
    if given.deliver_at is not None and given.delay_us is not None:
        faults.add("body", "deliverAt", msg="give an instant or a delay, not both")
    for name, instant in (
        ("deliverAt", given.deliver_at),
        ("expiresAt", given.expires_at),
    ):
        if instant is not None and not 0 <= instant <= _INSTANT_MAX:
            faults.add("body", name, msg="an instant lies between 1970 and 9999")
    longest = given.retention_seconds or settings.retention_seconds
    if given.delay_us is not None and not 0 <= given.delay_us <= longest * _RATE_US:
        faults.add(
            "body", "delay", msg="a delay is 0 up to the retention of the payload"
        )
    low, high = PAYLOAD_RETENTION_MIN_SECONDS, PAYLOAD_RETENTION_MAX_SECONDS
    kept = given.retention_seconds
    if kept is not None and not low <= kept <= high:
        faults.add(
            "body",
            "payloadRetentionPeriod",
            msg=f"a payload is kept {low / 86_400:g} to {high / 86_400:g} days",
        )


def _or(value: T | UnsetType, stored: T) -> T:
    return stored if isinstance(value, UnsetType) else value


def _app_uid(value: str) -> str:
    return fields.check_uid(value, prefix="app")


def _endpoint_uid(value: str) -> str:
    return fields.check_uid(value, prefix="ep")


def _message_uid(value: str) -> str:
    return fields.check_uid(value, prefix="msg")


def _secret(value: str) -> str:
    parse_secret(value)
    return value


def _headers(value: dict[str, str]) -> dict[str, str]:
    return dict(validate_headers(value))


def _event_types(values: Iterable[str]) -> tuple[str, ...]:
    found = sorted({fields.check_event_type(value) for value in values})
    if not found:
        raise ValueError("give at least 1 event type, or none of the field at all")
    return tuple(found)


def _flags(values: Iterable[str]) -> tuple[str, ...]:
    found = sorted({fields.check_event_type(value) for value in values})
    return tuple(found)


Lane = Literal["open", "paused"]
"""What an endpoint's lane may be while the endpoint exists."""


def lane_state(*, disabled: bool) -> tuple[Lane, str | None]:
    """Return (state, reason) of the lane of an endpoint."""
    return ("paused", "disabled") if disabled else ("open", None)
