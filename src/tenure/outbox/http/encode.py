"""A request as bytes: exact header bytes, exact case, exact order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tenure.outbox.http.model import Request

METHODS: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
# Written by the client, or able to change where the body ends.
FRAMING: Final = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"te"}
)
_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def encode(request: Request) -> bytes:
    """Return head and body; ValueError when the head would not be one request.

    Endpoints refuse bad headers at save. This is the pair of that check, at the last
    place where a header could still split the request in two.
    """
    method = request.method
    if method not in METHODS:
        raise ValueError(f"method {method[:20]!r} is not sent")
    url = request.url
    body = request.body
    lines = [
        b"%b %b HTTP/1.1\r\nHost: %b\r\nContent-Length: %d"
        % (method.encode("ascii"), url.target, url.authority, len(body))
    ]
    for name, value in request.headers:
        if _TOKEN.fullmatch(name) is None or name.lower() in FRAMING:
            raise ValueError(f"header name {name[:60]!r} may not be sent")
        lines.append(b"%b: %b" % (name, value))
    lines.append(b"\r\n")
    head = b"\r\n".join(lines)
    breaks = len(lines) + 2
    if head.count(b"\n") != breaks or head.count(b"\r") != breaks or b"\0" in head:
        raise ValueError("a header value has a line break or a NUL")
    return head + body
