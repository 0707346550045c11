"""What goes into and comes out of a send: plain frozen values.

Outcomes are values. A send answers `Response` (the receiver said something, whatever
its status) or `Failure` (why it did not, and how far the request came). Judging them
(retry, charge, disable) is not done here.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from tenure import limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.outbox.http.url import Url

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
HeaderLines: TypeAlias = tuple[tuple[bytes, bytes], ...]


class Cause(StrEnum):
    """Why no response came back."""

    DNS = "dns"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    RESET = "reset"
    TLS = "tls"
    TIMEOUT = "timeout"
    TOO_LARGE = "too_large"
    PROTOCOL = "protocol"
    ADDRESS_REFUSED = "address_refused"
    FENCED = "fenced"
    CUT = "cut"


class Phase(StrEnum):
    """How far a send had come when it failed, in the order they happen."""

    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    SEND = "send"
    HEADERS = "headers"
    BODY = "body"


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request, written once, byte for byte.

    `headers` go out in this order and letter case, after `Host` and `Content-Length`,
    which the client writes first and which may not be among them.
    """

    method: str
    url: Url
    headers: HeaderLines
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The bounds of one send. Build it once per endpoint version and keep it.

    `deadline_seconds` is one total over DNS, connect, TLS, request, headers and body.
    `allow_networks` merges the lists of the deployment and of the endpoint; an address
    inside one of them is dialled although it is not public. `verify_tls=False` is the
    endpoint's `insecure`.
    """

    deadline_seconds: float
    allow_networks: tuple[Network, ...] = ()
    verify_tls: bool = True
    response_max_bytes: int = limits.RESPONSE_BYTES
    header_count_max: int = limits.RESPONSE_HEADERS_MAX
    header_line_max_bytes: int = limits.RESPONSE_LINE_BYTES
    head_max_bytes: int = limits.RESPONSE_HEADERS_BYTES
    # Connections are shared only between sends that agree on this. Text, because
    # hashing networks costs more than a request may.
    reuse_key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        networks = ",".join(sorted(map(str, self.allow_networks)))
        object.__setattr__(self, "reuse_key", f"{self.verify_tls}|{networks}")


class Timings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How long each phase took, in microseconds; None for a phase that did not end.

    `first_byte` runs from writing the request to the first byte of the response.
    `total` runs from the call of `send` to its answer.
    """

    dns: int | None
    connect: int | None
    tls: int | None
    first_byte: int | None
    total: int


class Response(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the receiver answered; `body` ends at the cap when `truncated`."""

    status: int
    headers: HeaderLines
    body: bytes
    truncated: bool
    http_version: str
    address: str
    tls_version: str | None
    reused: bool
    timings: Timings


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why there is no response, and how far the request came.

    `began` is True once the write of the request head was started: the receiver may
    have acted. `detail` is bounded and free of secrets.
    """

    cause: Cause
    phase: Phase
    detail: str
    address: str | None
    reused: bool
    began: bool
    bytes_received: bool
    timings: Timings


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The part of a failure that the place which noticed it knows."""

    cause: Cause
    phase: Phase
    detail: str


class Transport(Protocol):
    """Sends requests; the one door through which bytes leave for a receiver."""

    async def send(
        self,
        request: Request,
        policy: Policy,
        before_write: Callable[[], bool] | None = None,
    ) -> Response | Failure:
        """Send once, within the policy's deadline; raises only `CancelledError`.

        `before_write` is asked as the last act before the request head is written;
        False ends the send as `fenced`, with nothing written.
        """
        ...

    async def aclose(self) -> None:
        """Close every connection; sends in flight end as `cut`."""
        ...


def fault(cause: Cause, phase: Phase, detail: str) -> Fault:
    """Return a fault whose detail is bounded and printable."""
    safe = "".join(
        c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in detail
    )
    return Fault(cause=cause, phase=phase, detail=safe[: limits.FAILURE_DETAIL_MAX])
