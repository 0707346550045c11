"""`/in/{path}` as plain ASGI: the door of everything that comes from outside.

It reads the head into plain values, finds out who calls (a proxy is believed only where
the deployment names it), and lets the inbox decide; the body is read when, and as far
as, the source wants it.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from tenure.errors import QueueFull
from tenure.inbox.arrivals import Arrival, is_within
from tenure.limits import RECEIPT_RETRY_AFTER_SECONDS, RECEIVING_BYTES_MAX
from tenure.server.bounds import BodyReader
from tenure.server.problems import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ipaddress import IPv4Network, IPv6Network

    from starlette.types import Receive, Scope

    from tenure.inbox.receiver import Reply
    from tenure.server.site import Site

__all__ = ["PREFIX", "ReceiptRoute", "caller_of", "match"]

PREFIX: Final = "/in/"
_PATH: Final = re.compile(r"/in/([^/]{1,256})")
_HOPS_MAX: Final = 20  # proxies in a row that are looked at


def match(path: str) -> str | None:
    """Return the source's path that a request names, None for another route."""
    found = _PATH.fullmatch(path) if path.startswith(PREFIX) else None
    return None if found is None else found[1]


class ReceiptRoute:
    """Receives one request."""

    __slots__ = ("_bodies", "_held", "_site")

    def __init__(self, site: Site) -> None:
        self._site: Final = site
        self._bodies: Final = BodyReader()
        self._held = 0

    async def answer(self, scope: Scope, receive: Receive, path: str) -> Answer:
        """Return the answer to one request, after the commit of what it brought.

        Raises NotFound, PayloadTooLarge, RequestTooSlow, ClientGone, QueueFull,
        Draining or DatabaseUnavailable: nothing was stored then.
        """
        head = self._head(scope)
        held = 0

        def took(count: int) -> None:
            nonlocal held
            if self._held + count > RECEIVING_BYTES_MAX:
                raise QueueFull(
                    "this node holds as many bytes of requests as it may",
                    retry_after=RECEIPT_RETRY_AFTER_SECONDS,
                )
            self._held += count
            held += count

        async def read(most: int) -> bytes:
            return await self._bodies.read(scope, receive, most, took=took)

        try:
            reply = await self._site.inbox.receive(path, head, read)
        finally:
            self._held -= held
        return _answer(reply)

    def _head(self, scope: Scope) -> Arrival:
        headers: tuple[tuple[bytes, bytes], ...] = tuple(
            (bytes(name), bytes(value)) for name, value in scope["headers"]
        )
        trusted = self._site.engine.settings.trusted_proxies
        client: tuple[str, int] | None = scope.get("client")
        peer = None if client is None else client[0]
        address = caller_of(peer, headers, trusted)
        behind = is_within(peer, trusted)
        scheme, host = _seen(scope, headers, behind=behind)
        target = scope.get("raw_path") or scope["path"].encode()
        query: bytes = scope["query_string"]
        return Arrival(
            method=scope["method"],
            url=f"{scheme}://{host}{target.decode('latin-1')}",
            query=query,
            headers=headers,
            body=b"",
            address=address,
        )


def caller_of(
    peer: str | None,
    headers: Sequence[tuple[bytes, bytes]],
    trusted: Sequence[IPv4Network | IPv6Network],
) -> str | None:
    """Return the address of who calls.

    `X-Forwarded-For` is believed from the right as far as each hop is a trusted proxy;
    anybody else may have written the rest.
    """
    if peer is None or not is_within(peer, trusted):
        return peer
    said = ",".join(
        value.decode("latin-1") for name, value in headers if name == b"x-forwarded-for"
    )
    address = peer
    for hop in [each.strip() for each in reversed(said.split(",")) if each.strip()][
        :_HOPS_MAX
    ]:
        try:
            address = str(ip_address(hop.strip("[]")))
        except ValueError:
            break
        if not is_within(address, trusted):
            break
    return address


def _seen(
    scope: Scope, headers: Sequence[tuple[bytes, bytes]], *, behind: bool
) -> tuple[str, str]:
    """Return scheme and host of the URL that was called, as far as it can be known."""
    named = dict(reversed(headers))
    host = named.get(b"host", b"")
    scheme: str = scope.get("scheme", "http")
    if behind:
        host = named.get(b"x-forwarded-host", host)
        said = named.get(b"x-forwarded-proto", scheme.encode()).lower()
        scheme = "https" if said == b"https" else "http"
    return scheme, host.decode("latin-1")


def _answer(reply: Reply) -> Answer:
    return Answer(
        status=reply.status,
        body=reply.body,
        media_type=reply.media_type,
        headers=reply.headers,
    )
