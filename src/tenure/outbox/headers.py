"""HTTP headers of a delivery: which ones a user may set, and what goes on the wire.

System headers cannot be replaced or doubled, in any letter case: a receiver that finds
two `webhook-signature` headers may check the wrong one.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Final, cast
from urllib.parse import unquote_to_bytes

from tenure.errors import ValidationFailed, ValidationItem
from tenure.limits import HEADER_VALUE_BYTES, HEADERS_BYTES, HEADERS_MAX

HeaderPairs = tuple[tuple[str, str], ...]
WirePairs = tuple[tuple[bytes, bytes], ...]

MASK: Final = b"***"

SENSITIVE_NAMES: Final = frozenset(
    {
        "authorization",
        "proxy-authenticate",
        "proxy-authorization",
        "www-authenticate",
        "x-api-key",
        "x-auth-token",
    }
)
"""Headers whose values reads withhold (as in the Svix API), in lower case."""

_FORBIDDEN_NAMES: Final = frozenset(
    {
        # The Svix API's list.
        "age",
        "cache-control",
        "clear-site-data",
        "content-encoding",
        "content-language",
        "content-length",
        "content-location",
        "content-type",
        "expires",
        "keep-alive",
        "pragma",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailers",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "warning",
        # Beyond it: what frames the request or changes how it is exchanged.
        "connection",
        "expect",
        "host",
        "proxy-connection",
        "trailer",
    }
)
_FORBIDDEN_PREFIXES: Final = (
    "x-amz-",
    "x-amzn-",
    "x-google",
    "x-goog-",
    "x-gfe",
    "x-azure-",
    "x-fd-",
    "x-svix-",
    "svix-",
    "webhook-",
    "tenure-",
)
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 token
_VALUE: Final = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")  # latin-1 without controls

_SHOWN_NAMES: Final = frozenset(
    {
        b"accept",
        b"content-length",
        b"content-type",
        b"host",
        b"tenure-attempt",
        b"tenure-receipt",
        b"tenure-source",
        b"tenure-webhook-id",
        b"tenure-webhook-signature",
        b"tenure-webhook-timestamp",
        b"user-agent",
        b"svix-id",
        b"svix-signature",
        b"svix-timestamp",
        b"webhook-id",
        b"webhook-signature",
        b"webhook-timestamp",
    }
)


def validate_headers(headers: Mapping[str, str]) -> HeaderPairs:
    """Return a user's headers as pairs, in their order and letter case.

    The same rule holds for an endpoint's headers and those of one message. Raises
    ValidationFailed with one item for each fault, at `body, headers, <name>`; no item
    repeats a value.
    """
    faults: list[ValidationItem] = []
    seen: dict[str, str] = {}
    size = 0
    given = cast("Mapping[object, object]", headers)  # callers without types come too
    for name, value in given.items():
        reason = _fault(name, value, seen)
        if reason:
            faults.append(_item(str(name), reason))
        else:
            seen[str(name).lower()] = str(name)
        size += len(str(name)) + len(str(value))
    if len(headers) > HEADERS_MAX:
        faults.append(_item(None, f"at most {HEADERS_MAX} headers, not {len(headers)}"))
    if size > HEADERS_BYTES:
        faults.append(
            _item(
                None,
                f"at most {HEADERS_BYTES} bytes of names and values, not {size}",
            )
        )
    if faults:
        raise ValidationFailed(faults)
    return tuple(headers.items())


def check_content_type(value: str) -> str:
    """Check the content type of a message's body; raises ValueError."""
    reason = _value_fault(value) or ("it is empty" if not value else None)
    if reason:
        raise ValueError(f"not a content type: {reason}")
    return value


def merge_headers(endpoint: HeaderPairs, message: HeaderPairs) -> HeaderPairs:
    """Return the endpoint's headers with the message's over them, in any letter case.

    Where both name a header, the message's name and value stand.
    """
    own = {name.lower() for name, _ in message}
    return (
        *((name, value) for name, value in endpoint if name.lower() not in own),
        *message,
    )


def build_headers(
    *,
    message_id: str,
    timestamp: int,
    signatures: str,
    attempt_number: int,
    content_type: str,
    custom: Sequence[tuple[str, str]],
    user_agent: str,
    svix_headers: bool = False,
    userinfo: str | None = None,
) -> WirePairs:
    """Return a delivery's headers in wire order, but Host and Content-Length.

    `timestamp` is in Unix seconds; `userinfo` is the URL's `name:password` part, still
    percent-encoded, which becomes Basic auth unless a custom Authorization is set.
    Custom headers keep their letter case; one that would replace or double a system
    header (stored before a rule was added) is left out.
    """
    signed = (
        ("id", message_id),
        ("timestamp", str(timestamp)),
        ("signature", signatures),
    )
    system = [(f"webhook-{part}", value) for part, value in signed]
    if svix_headers:
        system += [(f"svix-{part}", value) for part, value in signed]
    system += [
        ("tenure-attempt", str(attempt_number)),
        ("content-type", content_type),
        ("user-agent", user_agent),
    ]
    allowed = allowed_headers(custom)
    own = {name.lower() for name, _ in allowed}
    if "accept" not in own:
        system.append(("accept", "*/*"))
    if userinfo and "authorization" not in own:
        system.append(("authorization", basic_auth(userinfo)))
    return tuple(
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in (*system, *allowed)
    )


def allowed_headers(custom: Sequence[tuple[str, str]]) -> HeaderPairs:
    """Return stored headers without those that no rule lets in any more."""
    allowed: dict[str, tuple[str, str]] = {}
    for name, value in custom:
        folded = name.lower()
        if not _reserved(folded):
            allowed.setdefault(folded, (name, value))
    return tuple(allowed.values())


def mask_headers(pairs: Sequence[tuple[bytes, bytes]]) -> WirePairs:
    """Return sent headers as they may be stored and shown.

    Only values that Tenure itself wrote stay; a user's value may be a secret under any
    name, so all of them are masked.
    """
    return tuple(
        (name, value if name.lower() in _SHOWN_NAMES else MASK) for name, value in pairs
    )


def split_sensitive(headers: HeaderPairs) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return (headers that reads show, names of those whose values they withhold)."""
    shown = {n: v for n, v in headers if n.lower() not in SENSITIVE_NAMES}
    return shown, tuple(n for n, _ in headers if n.lower() in SENSITIVE_NAMES)


def basic_auth(userinfo: str) -> str:
    """Return the Authorization that a URL's user info asks for."""
    name, _, password = userinfo.partition(":")
    pair = unquote_to_bytes(name) + b":" + unquote_to_bytes(password)
    return "Basic " + base64.b64encode(pair).decode()


def _reserved(folded: str) -> bool:
    return folded in _FORBIDDEN_NAMES or folded.startswith(_FORBIDDEN_PREFIXES)


def _fault(name: object, value: object, seen: Mapping[str, str]) -> str | None:
    if not isinstance(name, str) or not isinstance(value, str):
        return "a header's name and value are strings"
    if not _NAME.fullmatch(name):
        return "not an HTTP header name (letters, digits and !#$%&'*+-.^_`|~)"
    folded = name.lower()
    if _reserved(folded):
        return "this header is set by the system or by the way, not by an endpoint"
    if folded in seen:
        return f"the same header as `{seen[folded]}`: letter case does not count"
    return _value_fault(value)


def _value_fault(value: str) -> str | None:
    if not _VALUE.fullmatch(value):
        return "the value has a control character (CR, LF, NUL …) or is not latin-1"
    if value != value.strip(" \t"):
        return "the value has white space at its start or end"
    if len(value) > HEADER_VALUE_BYTES:
        return f"the value is {len(value)} bytes, at most {HEADER_VALUE_BYTES}"
    return None


def _item(name: str | None, reason: str) -> ValidationItem:
    loc = ("body", "headers") if name is None else ("body", "headers", name)
    return ValidationItem(loc=loc, msg=reason, type="value_error")
