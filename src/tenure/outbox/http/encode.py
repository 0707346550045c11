"""A request as bytes: exact header bytes, exact case, exact order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure import limits

if TYPE_CHECKING:
    from tenure.outbox.http.model import Request

METHODS: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
# Written by the client, or able to change where the body ends; and no name at all.
FRAMING: Final = frozenset(
    {
        b"",
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"expect",
        b"upgrade",
        b"te",
    }
)
_TOKEN: Final = (
    b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)


class Encoder:
    """Turns requests into bytes, remembering the shape of heads it has checked.

    Bounded: requests to one endpoint have the same header names, so there are about as
    many shapes as endpoints with headers of their own.
    """

    __slots__ = ("_shapes",)

    def __init__(self) -> None:
        self._shapes: Final[dict[tuple[str, tuple[bytes, ...]], bytes]] = {}

    def encode(self, request: Request) -> bytes:
        """Return head and body; ValueError when the head would not be one request.

        Endpoints refuse bad headers at save. This is the pair of that check, at the
        last place where a header could still split the request in two.
        """
        names: tuple[bytes, ...]
        values: tuple[bytes, ...]
        names, values = (
            zip(*request.headers, strict=True) if request.headers else ((), ())
        )
        key = (request.method, names)
        shape = self._shapes.get(key)
        if shape is None:
            shape = _shape(request.method, names)
            if len(self._shapes) >= limits.HEAD_SHAPES_MAX:
                self._shapes.clear()
            self._shapes[key] = shape
        url = request.url
        body = request.body
        head = shape % (url.target, url.authority, len(body), *values)
        breaks = len(values) + 4
        if head.count(b"\n") != breaks or head.count(b"\r") != breaks or b"\0" in head:
            raise ValueError("a header value has a line break or a NUL")
        return head + body


def _shape(method: str, names: tuple[bytes, ...]) -> bytes:
    if method not in METHODS:
        raise ValueError(f"method {method[:20]!r} is not sent")
    if b"".join(names).translate(None, _TOKEN):
        raise ValueError("a header name has a character that no name may have")
    if not FRAMING.isdisjoint([name.lower() for name in names]):
        raise ValueError("a header name is empty, or one that the client writes")
    lines = [name.replace(b"%", b"%%") + b": %b\r\n" for name in names]
    start = (
        method.encode("ascii") + b" %b HTTP/1.1\r\nHost: %b\r\nContent-Length: %d\r\n"
    )
    return start + b"".join(lines) + b"\r\n"
