"""One response, read from bytes: llhttp in its strict mode, with our bounds on top.

No I/O and no clock here. Feed bytes as they come, in whatever pieces; after each piece
the parser either wants more or is finished: with a complete response, with one whose
body was cut at the cap, or with a fault. What llhttp lets pass and a sender must not:
other protocols (`RTSP/`, `ICE/`), HTTP/0.9 and 2.0, statuses outside 100-599, any
number of headers of any size, transfer codings other than chunked, endless 1xx.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from tenure import limits
from tenure.outbox.http.model import Cause, Fault, Phase, fault

if TYPE_CHECKING:
    from tenure.outbox.http.model import HeaderLines, Policy

_START: Final = b"HTTP/1."


class _StopError(Exception):
    """Leaves llhttp from inside a callback; never seen outside this file."""


class ResponseParser:
    """Reads exactly one final response; `reset` makes it ready for another.

    `finished` is True once nothing more is needed; then either `fault` is set or
    `status`, `headers`, `body` and `truncated` are valid. `reusable` says whether the
    connection is in step for another request. Memory is bounded by the policy's caps
    plus one piece.
    """

    __slots__ = (
        "_body_size",
        "_count",
        "_in_body",
        "_interim",
        "_llhttp",
        "_parts",
        "_policy",
        "_prefix",
        "_size",
        "_skipping",
        "_until_end",
        "fault",
        "finished",
        "headers_list",
        "http_version",
        "received",
        "reusable",
        "status",
        "truncated",
    )

    def __init__(self, policy: Policy) -> None:
        self._llhttp: HttpResponseParser | None = HttpResponseParser(self)
        self.reset(policy)

    def reset(self, policy: Policy) -> None:
        """Make ready for the next response of a connection that was `reusable`."""
        self._policy = policy
        self._prefix = b""
        self._count = 0  # headers and trailers, of interim responses too
        self._size = 0  # their bytes, as far as they had to be added up
        self._interim = 0
        self._skipping = False
        self._in_body = False
        self._until_end = False
        self._parts: list[bytes] = []
        self._body_size = 0
        self.headers_list: list[tuple[bytes, bytes]] = []
        self.status = 0
        self.http_version = ""
        self.received = 0
        self.truncated = False
        self.reusable = False
        self.finished = False
        self.fault: Fault | None = None

    def release(self) -> None:
        """Let go of llhttp: the two hold each other, and garbage costs more."""
        self._llhttp = None

    @property
    def headers(self) -> HeaderLines:
        """The final response's headers, bytes as received."""
        return tuple(self.headers_list)

    @property
    def body(self) -> bytes:
        """The body as received, at most the cap."""
        parts = self._parts
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def phase(self) -> Phase:
        """Which part of the response is awaited."""
        return Phase.BODY if self._in_body else Phase.HEADERS

    def feed(self, data: bytes) -> bool:
        """Take the next bytes; True once finished. Never raises."""
        before = self.received
        self.received = before + len(data)
        if before < len(_START) and (before or not data.startswith(_START)):
            data = self._prefix + data
            if not data.startswith(_START[: len(data)]):
                return self._fail(Cause.PROTOCOL, "status line is not HTTP/1.x")
            if len(data) < len(_START):
                self._prefix = data
                return False
        llhttp = self._llhttp
        if llhttp is None:
            return True
        try:
            llhttp.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if self.finished:
                self.reusable = False  # surplus bytes, or data after `close`
            else:
                self._fail(Cause.PROTOCOL, f"{self._place()}: {error}")
        if not self.finished:
            self._bound()
        return self.finished

    def end(self) -> None:
        """Take the end of the stream; finished afterwards. Never raises."""
        self.reusable = False
        if self.finished:
            return
        if self._until_end:
            self.finished = True
        elif not self.received:
            self._fail(Cause.RESET, "connection closed without a response")
        elif self._in_body:
            size = self._body_size
            self._fail(Cause.PROTOCOL, f"connection closed after {size} body bytes")
        else:
            self._fail(Cause.PROTOCOL, "connection closed inside the response head")

    def _place(self) -> str:
        return "response body" if self._in_body else "response head"

    def _fail(self, cause: Cause, detail: str) -> bool:
        self.fault = fault(cause, self.phase, detail)
        self.finished = True
        self.reusable = False
        self._parts.clear()
        return True

    def _stop(self, cause: Cause, detail: str) -> None:
        self._fail(cause, detail)
        raise _StopError

    def _weigh(self, name: bytes, value: bytes) -> None:
        size = len(name) + len(value) + 4
        self._size += size
        policy = self._policy
        if size > policy.header_line_max_bytes or self._size > policy.head_max_bytes:
            self._stop(Cause.TOO_LARGE, "response head is too large")

    def _bound(self) -> None:
        """Bound what no callback sees: unfinished lines, extensions, tiny chunks."""
        policy = self._policy
        if not self._in_body:
            if self.received > policy.head_max_bytes:
                self._fail(Cause.TOO_LARGE, "response head is too large")
            return
        # Chunks of one byte cost six bytes each; eight leave room for extensions.
        framing = 2 * policy.head_max_bytes + 8 * policy.response_max_bytes
        if self.received > framing:
            self._fail(Cause.TOO_LARGE, "chunk framing is too large")

    # Callbacks of llhttp.

    def on_message_begin(self) -> None:
        """Refuse a second response: nobody asked for it."""
        if self.finished:
            self.reusable = False
            raise _StopError
        self._skipping = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header within the count; trailers count and are dropped."""
        self._count += 1
        if self._count > self._policy.header_count_max:
            self._stop(Cause.TOO_LARGE, "response has too many headers")
        if self._in_body:
            self._weigh(name, value)
        else:
            self.headers_list.append((name, value))

    def on_headers_complete(self) -> None:
        """Judge the head: version, status, and what ends the body."""
        llhttp = self._llhttp
        if llhttp is None:
            raise AssertionError("llhttp calls back only while it is fed")
        status = llhttp.get_status_code()
        version = llhttp.get_http_version()
        if version != "1.1" and version != "1.0":  # noqa: PLR1714 - on every response
            self._stop(Cause.PROTOCOL, f"response is HTTP/{version}")
        if not 100 <= status <= 599:
            self._stop(Cause.PROTOCOL, f"response status is {status:03d}")
        if self.received > self._policy.header_line_max_bytes:
            for name, value in self.headers_list:
                self._weigh(name, value)
        if status < 200:
            self._interim_response(status)
            return
        self.status = status
        self.http_version = version
        self._in_body = True
        lengths = codings = 0
        for name, value in self.headers_list:
            if len(name) == 14 and name.lower() == b"content-length":
                lengths += 1
            elif len(name) == 17 and name.lower() == b"transfer-encoding":
                codings += 1
                if value.strip().lower() != b"chunked" or version == "1.0":
                    self._stop(Cause.PROTOCOL, "transfer coding is not plain chunked")
        if lengths + codings > 1:
            self._stop(Cause.PROTOCOL, "response has more than one body length")
        self._until_end = not lengths + codings and status not in {204, 304}

    def _interim_response(self, status: int) -> None:
        if status == 101:
            self._stop(Cause.PROTOCOL, "response switches protocols (101)")
        self._interim += 1
        if self._interim > limits.INFORMATIONAL_MAX:
            self._stop(Cause.PROTOCOL, "too many 1xx responses")
        self._skipping = True
        self.headers_list.clear()

    def on_body(self, data: bytes) -> None:
        """Keep the body up to the cap, and finish there."""
        room = self._policy.response_max_bytes - self._body_size
        self._body_size += len(data)
        if len(data) <= room:
            self._parts.append(data)
            return
        self._parts.append(data[:room])
        self.truncated = self.finished = True
        raise _StopError

    def on_message_complete(self) -> None:
        """Finish, unless it was an interim response."""
        if not self._skipping:
            self.finished = True
            llhttp = self._llhttp
            self.reusable = llhttp is not None and llhttp.should_keep_alive()
