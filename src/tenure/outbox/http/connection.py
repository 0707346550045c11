"""One connection: writes a request once and hands over one response at a time.

An `asyncio.Protocol`, not streams, and one timer per connection that is moved only
when it must be: both were measured on the hot path. The states are: idle (no exchange),
in exchange (`_waiter` set), closed. Whatever arrives while idle (bytes, an end) closes
the connection, because nobody asked for it.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from typing import TYPE_CHECKING, Final, cast

from tenure.outbox.http.addresses import check_address
from tenure.outbox.http.model import Cause, Fault, Phase, fault
from tenure.outbox.http.parser import ResponseParser

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from tenure.clock import Clock
    from tenure.outbox.http.model import Address, Network, Policy

_STALE: Final = (
    select.POLLIN | select.POLLERR | select.POLLHUP | getattr(select, "POLLRDHUP", 0)
)


class Connection(asyncio.Protocol):
    """A dialled connection to one address.

    `began_at`, `first_byte_at` are readings of the clock's monotonic seconds for the
    present or last exchange. `on_closed` is told once, when the socket is gone.
    """

    __slots__ = (
        "_deadline",
        "_ended",
        "_loop",
        "_monotonic",
        "_poll",
        "_timer",
        "_timer_at",
        "_transport",
        "_waiter",
        "address",
        "allowed_by",
        "first_byte_at",
        "idle_since",
        "made_at",
        "on_closed",
        "parser",
        "peer",
        "tls_version",
    )

    def __init__(
        self,
        *,
        address: Address,
        port: int,
        sock: socket.socket,
        policy: Policy,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.address: Final = address
        self.peer: Final = peer_text(address, port)
        self.allowed_by: tuple[Network, ...] = policy.allow_networks
        self.tls_version: str | None = None
        self.made_at: Final = clock.monotonic()
        self.idle_since = self.made_at
        self.first_byte_at: float | None = None
        self.on_closed: Callable[[Connection], None] | None = None
        self._monotonic: Final = clock.monotonic
        self._loop: Final = loop
        self._transport: asyncio.Transport | None = None
        self.parser: Final = ResponseParser(policy)
        self._waiter: asyncio.Future[Fault | None] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._ended = False
        self._poll: Final = select.poll()
        self._poll.register(sock.fileno(), _STALE)

    @property
    def is_open(self) -> bool:
        """Whether neither side has ended the connection, as far as the loop knows."""
        transport = self._transport
        return not self._ended and transport is not None and not transport.is_closing()

    @property
    def usable(self) -> bool:
        """Whether it is open and all that was written has left."""
        transport = self._transport
        return (
            not self._ended
            and transport is not None
            and not transport.is_closing()
            and transport.get_write_buffer_size() == 0
        )

    def is_quiet(self) -> bool:
        """Whether an idle connection is open and nothing waits in its socket.

        The loop may not have seen yet what has already arrived, so the kernel is asked.
        """
        return not self._ended and not self._poll.poll(0)

    def is_allowed(self, networks: tuple[Network, ...]) -> bool:
        """Whether the address rule of the present policy passes this peer."""
        if networks is self.allowed_by:  # the same rule has passed it before
            return True
        if check_address(self.address, networks) is not None:
            return False
        self.allowed_by = networks
        return True

    def begin(
        self, data: bytes, policy: Policy, deadline: float
    ) -> asyncio.Future[Fault | None]:
        """Write a request; the future ends with None (a response) or a fault.

        `deadline` is an instant of the loop's clock. The future never raises. What came
        back is read from `parser` before the next request begins.
        """
        transport = self._transport
        if transport is None or self._ended or self._waiter is not None:
            raise AssertionError("a request begins on an open, idle connection")
        self.first_byte_at = None
        self.parser.reset(policy)
        self._deadline = deadline
        if self._timer is None or self._timer_at > deadline:
            self._set_timer(deadline)
        waiter: asyncio.Future[Fault | None] = self._loop.create_future()
        self._waiter = waiter
        transport.write(data)
        return waiter

    def close(self) -> None:
        """Close in order; what was written is still flushed."""
        self._ended = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once; an exchange in progress ends nowhere (its owner left)."""
        self._ended = True
        self._waiter = None
        if self._transport is not None:
            self._transport.abort()

    def cut(self, detail: str) -> None:
        """End an exchange in progress as `cut`, and close at once."""
        self._finish(fault(Cause.CUT, self._phase(), detail))
        self.abort()

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; TLS is established by now."""
        self._transport = cast("asyncio.Transport", transport)
        session = cast("ssl.SSLObject | None", transport.get_extra_info("ssl_object"))
        if session is not None:
            self.tls_version = session.version()

    def data_received(self, data: bytes) -> None:
        """Feed the response; bytes that nobody asked for close the connection."""
        parser = self.parser
        if self._waiter is None:
            self.abort()
            return
        if self.first_byte_at is None:
            self.first_byte_at = self._monotonic()
        if parser.feed(data):
            self._finish(parser.fault)

    def eof_received(self) -> bool:
        """End the response at the peer's end; the transport then closes."""
        self._ended = True
        self._end_response()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response with the reason; tell the pool."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if exc is None:
            self._end_response()
        elif self._waiter is not None:
            cause = Cause.TLS if isinstance(exc, ssl.SSLError) else Cause.RESET
            self._finish(fault(cause, self._phase(), lost_text(exc)))
        self._transport = None
        self.parser.release()
        if self.on_closed is not None:
            self.on_closed(self)
            self.on_closed = None

    # Inside.

    def _end_response(self) -> None:
        if self._waiter is None:
            return
        parser = self.parser
        phase = self._phase()
        parser.end()
        ended = parser.fault
        if ended is not None and phase is Phase.SEND:
            ended = fault(ended.cause, phase, ended.detail)
        self._finish(ended)

    def _finish(self, ended: Fault | None) -> None:
        waiter = self._waiter
        self._waiter = None
        if waiter is not None and not waiter.done():
            waiter.set_result(ended)

    def _phase(self) -> Phase:
        if self.parser.received:
            return self.parser.phase
        transport = self._transport
        unsent = transport is not None and transport.get_write_buffer_size() > 0
        return Phase.SEND if unsent else Phase.HEADERS

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._expire)

    def _expire(self) -> None:
        """Fail the exchange if it is its deadline; else the timer served an older one."""
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() < self._deadline:
            self._set_timer(self._deadline)
            return
        phase = self._phase()
        self._finish(fault(Cause.TIMEOUT, phase, f"deadline passed in phase {phase}"))
        self.abort()


def peer_text(address: Address, port: int) -> str:
    """Return `ip:port`, with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def lost_text(error: BaseException) -> str:
    """Say in words why a connection broke."""
    if isinstance(error, ConnectionResetError):
        return "connection reset by peer"
    if isinstance(error, BrokenPipeError):
        return "connection closed by peer while the request was written"
    text = error.strerror if isinstance(error, OSError) else str(error)
    return text or type(error).__name__
