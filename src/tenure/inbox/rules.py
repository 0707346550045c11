"""What a source may be: pure checks, every fault told at once."""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import TYPE_CHECKING, Final

from tenure.errors import ValidationFailed
from tenure.ids import Prefix, token
from tenure.inbox.locating import parse_locator
from tenure.inbox.verification import PRESETS, compile_check
from tenure.inbox.verification.presets import Scheme
from tenure.limits import (
    DEDUPE_MAX_SECONDS,
    HEADER_VALUE_BYTES,
    RATE_COUNT_MAX,
    RATE_WINDOW_MAX_SECONDS,
    RECEIPT_BYTES_MAX,
    SOURCE_NETWORKS_MAX,
)
from tenure.outbox import fields
from tenure.outbox.headers import check_content_type, validate_headers
from tenure.outbox.rules import Faults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.inbox.model import Pull, SourceSettings, Verification

__all__ = ["check_parts", "is_guarded", "new_path"]

METHODS: Final = ("POST", "PUT", "PATCH", "DELETE", "GET")
PATH_BYTES: Final = 24
_SCHEMES: Final = {
    "nats": ("nats", "tls"),
    "redis": ("redis", "rediss"),
    "amqp": ("amqp", "amqps"),
}
_PULL_NAME: Final = re.compile(r"[A-Za-z0-9._:/>*-]{1,200}")
_GROUP: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_guarded(verification: Verification) -> bool:
    """Tell whether requests prove anything, so that the path may be guessed."""
    preset = PRESETS.get(verification.preset)
    return preset is not None and preset.scheme is not Scheme.NOTHING


def new_path() -> str:
    """Return a path that nobody can guess."""
    return token(PATH_BYTES)


def check_parts(
    *,
    name: str,
    uid: str | None,
    verification: Verification,
    secrets: Sequence[str] | None,
    settings: SourceSettings,
    pull: Pull | None,
    metadata: dict[str, str],
) -> None:
    """Check a source whole; `secrets` None leaves the stored ones unchecked.

    Raises ValidationFailed with every fault.
    """
    faults = Faults()
    faults.check(fields.check_name, name, "body", "name")
    if uid is not None:
        faults.check(_uid, uid, "body", "uid")
    faults.check(fields.check_metadata, metadata, "body", "metadata")
    _check_settings(settings, faults)
    if pull is not None:
        _check_pull(pull, faults)
    if secrets is not None:
        try:
            compile_check(verification, secrets, public_url=settings.public_url)
        except ValidationFailed as error:
            for item in error.items:
                faults.add(*item.loc, msg=item.msg, kind=item.type)
    faults.done()


def _uid(value: str) -> str:
    return fields.check_uid(value, prefix=Prefix.SOURCE)


def _check_settings(given: SourceSettings, faults: Faults) -> None:
    at = ("body", "settings")
    if not given.methods or any(each not in METHODS for each in given.methods):
        faults.add(*at, "methods", msg=f"one or more of {', '.join(METHODS)}")
    if len(given.networks) > SOURCE_NETWORKS_MAX:
        faults.add(*at, "networks", msg=f"at most {SOURCE_NETWORKS_MAX}")
    for number, text in enumerate(given.networks):
        faults.check(_network, text, *at, "networks", number)
    _check_bounds(given, faults)
    if given.dedupe_key is not None:
        faults.check(_locator, given.dedupe_key, *at, "dedupeKey")
    if given.event_type is not None:
        faults.check(_type_locator, given.event_type, *at, "eventType")
    if not 200 <= given.response_status <= 299:
        faults.add(*at, "responseStatus", msg="200 to 299: it tells of an acceptance")
    if given.response_status in {204, 205} and given.response_body:
        faults.add(*at, "responseBody", msg="a 204 or 205 has no body")
    if len(given.response_body or "") > HEADER_VALUE_BYTES:
        faults.add(*at, "responseBody", msg=f"at most {HEADER_VALUE_BYTES} characters")
    try:
        _check_headers(given)
    except ValidationFailed as error:
        for item in error.items:
            faults.add(*at, "responseHeaders", msg=item.msg)
    if given.public_url is not None and not re.fullmatch(
        r"https?://[^\s/]+(/\S*)?", given.public_url
    ):
        faults.add(*at, "publicUrl", msg="an http or https URL as the provider has it")


def _check_headers(given: SourceSettings) -> None:
    named = {
        name: value
        for name, value in given.response_headers.items()
        if name.lower() != "content-type"
    }
    validate_headers(named)
    for name, value in given.response_headers.items():
        if name.lower() == "content-type":
            try:
                check_content_type(value)
            except ValueError as error:
                raise ValidationFailed.at("body", name, msg=str(error)) from None


def _check_bounds(given: SourceSettings, faults: Faults) -> None:
    at = ("body", "settings")
    count, size = given.rate_count, given.body_bytes_max
    if count is not None and not 1 <= count <= RATE_COUNT_MAX:
        faults.add(*at, "rateCount", msg=f"1 to {RATE_COUNT_MAX}")
    if not 1 <= given.rate_seconds <= RATE_WINDOW_MAX_SECONDS:
        faults.add(*at, "rateSeconds", msg=f"1 to {RATE_WINDOW_MAX_SECONDS:.0f}")
    if size is not None and not 1 <= size <= RECEIPT_BYTES_MAX:
        faults.add(*at, "bodyBytesMax", msg=f"1 to {RECEIPT_BYTES_MAX}")
    if not 1 <= given.dedupe_seconds <= DEDUPE_MAX_SECONDS:
        faults.add(*at, "dedupeSeconds", msg=f"1 to {DEDUPE_MAX_SECONDS:.0f}")


def _check_pull(given: Pull, faults: Faults) -> None:
    at = ("body", "pull")
    schemes = _SCHEMES[given.kind]
    scheme, _, rest = given.url.partition("://")
    if scheme not in schemes or not rest:
        faults.add(*at, "url", msg=f"a URL with {' or '.join(schemes)}://")
    if rest.partition("@")[0].endswith(":***"):
        faults.add(*at, "url", msg="its password is masked: write the real one")
    if _PULL_NAME.fullmatch(given.name) is None:
        faults.add(*at, "name", msg="1 to 200 letters, digits and ._:/>*-")
    if _GROUP.fullmatch(given.group) is None:
        faults.add(*at, "group", msg="1 to 64 letters, digits, _ and -")


def _network(text: str) -> str:
    ip_network(text)
    return text


def _locator(text: str) -> str:
    parse_locator(text)
    return text


def _type_locator(text: str) -> str:
    parse_locator(text, fixed=True)
    return text
