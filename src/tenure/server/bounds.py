"""Reading a request's body without trusting its length.

A declared length over the bound is refused before a byte is read; a chunked or endless
body is refused at the first byte past it, while it streams. A body that ends early
arrives as `http.disconnect`: nobody is left to answer, and nothing may be stored.
"""

import asyncio
from collections.abc import Callable
from itertools import chain
from typing import Any, Final

from starlette.types import Receive, Scope

from tenure.errors import (
    HeadersTooLarge,
    InvariantViolated,
    PayloadTooLarge,
    RequestTooSlow,
)
from tenure.limits import (
    DISCARD_BYTES,
    DISCARD_SECONDS,
    REQUEST_BODY_SECONDS,
    REQUEST_ENVELOPE_BYTES,
    REQUEST_HEADERS_BYTES,
)


class ClientGone(Exception):
    """The client left before its request was complete."""


def body_bound(payload_bytes: int) -> int:
    """Return the most bytes a request body may have.

    `rawPayload` is the payload quoted as a JSON string: a quote, a backslash or a line
    break becomes two bytes, so twice the size is what honest text needs.
    """
    return 2 * payload_bytes + REQUEST_ENVELOPE_BYTES


def declared_length(scope: Scope) -> int | None:
    """Return the request's Content-Length, if it has a readable one."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return _length(value)
    return None


def _length(value: bytes) -> int | None:
    return int(value) if value.isdigit() and len(value) < 20 else None


def check_headers(scope: Scope) -> None:
    """Raise HeadersTooLarge for a header block over the bound."""
    headers = scope["headers"]
    size = sum(map(len, chain.from_iterable(headers))) + 4 * len(headers)
    size += len(scope["path"]) + len(scope["query_string"])
    if size > REQUEST_HEADERS_BYTES:
        raise HeadersTooLarge(
            f"The request's headers are larger than {REQUEST_HEADERS_BYTES} bytes"
        )


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes:
    """Return the whole body.

    Raises PayloadTooLarge past `most` bytes, RequestTooSlow past REQUEST_BODY_SECONDS,
    and ClientGone when it ends early.
    """
    try:
        async with asyncio.timeout(REQUEST_BODY_SECONDS):
            return await _read(scope, receive, most)
    except TimeoutError:
        raise _too_slow() from None


class BodyReader:
    """Reads bodies, all under one timer: a timeout each was a tenth of a request.

    For one event loop. All have the same time, so they run out in the order in which
    they began, and the timer stands on the oldest.
    """

    __slots__ = ("_late", "_timer", "_until")

    def __init__(self) -> None:
        self._until: Final[dict[asyncio.Task[Any], float]] = {}
        self._late: Final[set[asyncio.Task[Any]]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def read(
        self,
        scope: Scope,
        receive: Receive,
        most: int,
        *,
        took: Callable[[int], None] | None = None,
    ) -> bytes:
        """Return the whole body as `read_body` does; once at a time in a task.

        `took` is told of each part's size before it is kept; what it raises ends the
        reading.
        """
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        if task is None or task in self._until:
            raise InvariantViolated("a body is read by a task, and only once at a time")
        others = task.cancelling()
        self._until[task] = until = loop.time() + REQUEST_BODY_SECONDS
        if self._timer is None:
            self._timer = loop.call_at(until, self._look, loop)
        try:
            return await _read(scope, receive, most, took)
        except asyncio.CancelledError:
            if task not in self._late or task.uncancel() > others:
                raise
            raise _too_slow() from None
        finally:
            del self._until[task]
            self._late.discard(task)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the reading of what is late; stand on the oldest of the rest."""
        self._timer = None
        now = loop.time()
        for task, until in self._until.items():
            if until > now:
                self._timer = loop.call_at(until, self._look, loop)
                return
            if task not in self._late:
                self._late.add(task)
                task.cancel()


async def _read(
    scope: Scope,
    receive: Receive,
    most: int,
    took: Callable[[int], None] | None = None,
) -> bytes:
    length = declared_length(scope)
    if length is not None and length > most:
        if length <= DISCARD_BYTES:
            await _discard(receive, DISCARD_BYTES)
        raise _too_large(most)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > most:
            if message.get("more_body", False):
                await _discard(receive, DISCARD_BYTES - size)
            raise _too_large(most)
        if part:
            if took is not None:
                took(len(part))
            parts.append(part)
        if size == length or not message.get("more_body", False):
            break  # at the declared length nothing can follow: ask no more
    if length is not None and size < length:
        raise ClientGone
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _discard(receive: Receive, most: int) -> None:
    """Read on without keeping: a client in the middle of sending sees no answer.

    Bounded in bytes and time; what is behind that meets a closed connection.
    """
    left = most
    try:
        async with asyncio.timeout(DISCARD_SECONDS):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
    except TimeoutError:
        return


def _too_slow() -> RequestTooSlow:
    return RequestTooSlow(
        f"The request body did not arrive within {REQUEST_BODY_SECONDS:.0f} s"
    )


def _too_large(most: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"The request body is larger than {most} bytes: send less, or raise the bound",
        bound=most,
    )
