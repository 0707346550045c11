"""What a relayed request carries: the receipt's headers, and what says where it is from.

The provider's proof goes on untouched, so that the target can check it: its signature
header, its content type and the body byte for byte. A provider that signs as Tenure
does (`webhook-id`, `webhook-timestamp`, `webhook-signature`) keeps these names; ours are
`tenure-webhook-…` then, because two of one name would leave neither to be checked.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from tenure.outbox.headers import WirePairs, allowed_headers, basic_auth
from tenure.outbox.http.encode import METHODS
from tenure.outbox.http.url import QUERY_SAFE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.outbox.headers import HeaderPairs
    from tenure.outbox.http.url import Url
    from tenure.outbox.relayed import Relay

__all__ = [
    "DROPPED",
    "SAME",
    "relay_headers",
    "relay_method",
    "relay_url",
]

SAME: Final = "same"
"""The method of an endpoint that repeats the receipt's."""

DROPPED: Final = (
    "authorization",
    "cookie",
    "forwarded",
    "proxy-*",
    "x-forwarded-*",
)
"""Names not passed on unless the endpoint has a list of its own."""

_HOP: Final = frozenset(
    {
        # RFC 9110, 7.6.1 and its predecessors: they speak of one connection only.
        "connection",
        "http2-settings",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        # What our own client writes, or waits for.
        "content-length",
        "expect",
        "host",
    }
)
_OURS: Final = "tenure-"
_SIGNED: Final = ("id", "timestamp", "signature")


def relay_headers(
    relay: Relay,
    *,
    message_id: str,
    timestamp: int,
    signatures: str,
    attempt_number: int,
    content_type: str | None,
    custom: HeaderPairs,
    drop: Sequence[str] | None,
    user_agent: str,
    svix_headers: bool,
    userinfo: str | None,
) -> WirePairs:
    """Return a relayed request's headers in wire order, but Host and Content-Length.

    Ours come first, then the receipt's in their order, with repeats, then the
    endpoint's own, which stand in the place of received ones of the same name. `drop`
    are names or patterns (`x-forwarded-*`), None = `DROPPED`; hop-by-hop headers and
    `tenure-…` are never passed on. Nothing of a received value is changed.
    """
    custom = allowed_headers(custom)
    own = {name.lower() for name, _ in custom}
    passed = _passed(relay.headers, DROPPED if drop is None else drop, own)
    names = {name.lower() for name, _ in passed}
    signed = tuple(zip(_SIGNED, (message_id, str(timestamp), signatures), strict=True))
    family = f"{_OURS}webhook" if _signs(names, "webhook") else "webhook"
    ours = [(f"{family}-{part}", value) for part, value in signed]
    if svix_headers and not _signs(names, "svix"):
        ours += [(f"svix-{part}", value) for part, value in signed]
    ours += [
        ("tenure-attempt", str(attempt_number)),
        ("tenure-source", relay.source),
        ("tenure-receipt", relay.receipt),
    ]
    known = names | own
    if content_type is not None and "content-type" not in known:
        ours.append(("content-type", content_type))
    if "user-agent" not in known:
        ours.append(("user-agent", user_agent))
    if "accept" not in known:
        ours.append(("accept", "*/*"))
    if userinfo and "authorization" not in own:
        passed = [pair for pair in passed if pair[0].lower() != "authorization"]
        ours.append(("authorization", basic_auth(userinfo)))
    return tuple(
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in (*ours, *passed, *custom)
    )


def relay_method(method: str, relay: Relay | None) -> str:
    """Return the method of a request; `same` repeats what a client may send, else POST.

    A GET has no body that could be passed on, so it is a POST too.
    """
    if method != SAME:
        return method
    same = "POST" if relay is None else relay.method.upper()
    return same if same in METHODS else "POST"


def relay_url(url: Url, relay: Relay) -> Url:
    """Return the URL with the receipt's query after its own."""
    if not relay.query:
        return url
    query = quote(relay.query.encode("latin-1"), safe=QUERY_SAFE)
    joint = b"&" if b"?" in url.target else b"?"
    return replace(url, target=url.target + joint + query.encode("ascii"))


def _passed(
    headers: HeaderPairs, drop: Sequence[str], own: set[str]
) -> list[tuple[str, str]]:
    hop = _HOP | {
        word.strip().lower()
        for name, value in headers
        if name.lower() == "connection"
        for word in value.split(",")
    }
    patterns = [each.lower() for each in drop]

    def stays(name: str) -> bool:
        return (
            name not in hop
            and name not in own
            and not name.startswith(_OURS)
            and not any(fnmatchcase(name, pattern) for pattern in patterns)
        )

    return [pair for pair in headers if stays(pair[0].lower())]


def _signs(names: set[str], family: str) -> bool:
    return any(f"{family}-{part}" in names for part in _SIGNED)
