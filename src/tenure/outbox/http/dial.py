"""From a URL to an open connection: name, address rule, happy eyeballs, TLS.

The addresses that the rule passes are the ones that are dialled: there is no second
lookup between the check and the connect, so a name that changes its mind in between
gains nothing. The socket's own peer is checked once more before anything is written.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import ssl
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final

from tenure import limits
from tenure.outbox.http.addresses import check_address
from tenure.outbox.http.connection import Connection, lost_text, peer_text
from tenure.outbox.http.model import Cause, Fault, Phase, fault
from tenure.outbox.http.tls import tls_text
from tenure.spawn import Tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.clock import Clock
    from tenure.outbox.http.model import Address, Policy
    from tenure.outbox.http.resolver import Resolver
    from tenure.outbox.http.tls import TlsContexts
    from tenure.outbox.http.url import Url

_UNREACHABLE: Final = frozenset(
    {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
)
# Of several failed addresses the one that says most about the receiver is reported.
_TELLING: Final = (Cause.REFUSED, Cause.RESET, Cause.TIMEOUT, Cause.UNREACHABLE)


class Dial:
    """One attempt at a fresh connection; its fields say how far it has come."""

    __slots__ = (
        "_clock",
        "_contexts",
        "_policy",
        "_resolver",
        "_scope",
        "_url",
        "address",
        "connect_us",
        "dns_us",
        "phase",
        "tls_us",
    )

    def __init__(
        self,
        url: Url,
        policy: Policy,
        *,
        resolver: Resolver,
        contexts: TlsContexts,
        clock: Clock,
    ) -> None:
        self._url: Final = url
        self._policy: Final = policy
        self._resolver: Final = resolver
        self._contexts: Final = contexts
        self._clock: Final = clock
        self._scope: asyncio.Timeout | None = None
        self.phase = Phase.DNS
        self.address: str | None = None
        self.dns_us: int | None = None
        self.connect_us: int | None = None
        self.tls_us: int | None = None

    async def run(self, deadline: float) -> Connection | Fault:
        """Open a connection by `deadline` (the loop's clock). Never raises but cancel."""
        self._scope = asyncio.timeout_at(deadline)
        try:
            async with self._scope:
                return await self._run(deadline)
        except TimeoutError:
            detail = f"deadline passed in phase {self.phase}"
            return fault(Cause.TIMEOUT, self.phase, detail)

    def give_up(self) -> None:
        """End the attempt now, as if its deadline had come."""
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())

    async def _run(self, deadline: float) -> Connection | Fault:
        addresses = await self._addresses()
        if isinstance(addresses, Fault):
            return addresses
        self.phase = Phase.CONNECT
        if len(addresses) == 1:
            self.address = peer_text(addresses[0], self._url.port)
        started = self._clock.monotonic()
        sock = await connect_first(addresses, self._url.port)
        if isinstance(sock, Fault):
            return sock
        self.connect_us = self._since(started)
        return await self._establish(sock, deadline)

    async def _addresses(self) -> list[Address] | Fault:
        """Return the addresses that may be dialled, in the order to try them."""
        literal = self._url.address
        if literal is not None:
            found: tuple[Address, ...] = (literal,)
        else:
            started = self._clock.monotonic()
            answer = await self._resolver.resolve(self._url.host)
            self.dns_us = self._since(started)
            found = answer.addresses
            if not found:
                detail = f"{self._url.host}: {answer.error or 'name has no address'}"
                return fault(Cause.DNS, Phase.DNS, detail)
        allowed: list[Address] = []
        refusals: list[str] = []
        for address in found:
            reason = check_address(address, self._policy.allow_networks)
            if reason is None:
                allowed.append(address)
            else:
                refusals.append(f"{address} is {reason}")
        if not allowed:
            detail = "; ".join(refusals)
            return fault(Cause.ADDRESS_REFUSED, Phase.CONNECT, detail)
        return interleave(allowed)[: limits.DIAL_ADDRESSES_MAX]

    async def _establish(
        self, sock: socket.socket, deadline: float
    ) -> Connection | Fault:
        """Check who is at the other end, then bring up TLS when asked for."""
        try:
            peer = ipaddress.ip_address(sock.getpeername()[0])
        except OSError as error:
            sock.close()
            return _connect_fault(error)
        self.address = peer_text(peer, self._url.port)
        reason = check_address(peer, self._policy.allow_networks)
        if reason is not None:
            sock.close()
            detail = f"{peer} is {reason}"
            return fault(Cause.ADDRESS_REFUSED, Phase.CONNECT, detail)
        loop = asyncio.get_running_loop()
        connection = Connection(
            address=peer,
            port=self._url.port,
            sock=sock,
            policy=self._policy,
            clock=self._clock,
            loop=loop,
        )
        if self._url.scheme == "http":
            await loop.create_connection(lambda: connection, sock=sock)
            return connection
        self.phase = Phase.TLS
        try:
            context = await self._contexts.context(verify=self._policy.verify_tls)
        except OSError as error:  # ssl.SSLError is one
            sock.close()
            detail = f"trust store cannot be read: {lost_text(error)}"
            return fault(Cause.TLS, Phase.TLS, detail)
        except BaseException:
            sock.close()
            raise
        started = self._clock.monotonic()
        try:
            await loop.create_connection(
                lambda: connection,
                sock=sock,
                ssl=context,
                server_hostname=self._url.host,
                # Our own deadline comes first; this one only has to be later.
                ssl_handshake_timeout=max(deadline - loop.time(), 0.0) + 1.0,
                ssl_shutdown_timeout=limits.TLS_SHUTDOWN_SECONDS,
            )
        except ssl.SSLError as error:
            return fault(Cause.TLS, Phase.TLS, tls_text(error))
        except OSError as error:
            return fault(Cause.RESET, Phase.TLS, lost_text(error))
        self.tls_us = self._since(started)
        return connection

    def _since(self, started: float) -> int:
        return round((self._clock.monotonic() - started) * 1_000_000)


def interleave(addresses: Sequence[Address]) -> list[Address]:
    """Alternate the families, the first one first (RFC 8305 §4)."""
    first = addresses[0].version
    same = [a for a in addresses if a.version == first]
    other = [a for a in addresses if a.version != first]
    mixed = chain.from_iterable(zip_longest(same, other))
    return [address for address in mixed if address is not None]


async def connect_first(
    addresses: Sequence[Address], port: int
) -> socket.socket | Fault:
    """Connect to the address that answers first; the others are closed.

    The next address is tried when one fails, or after 250 ms without an answer.
    """
    if len(addresses) == 1:
        made = await _connect(addresses[0], port)
        return made if isinstance(made, socket.socket) else _connect_fault(made)
    tasks = Tasks()
    waiting = list(addresses)
    running: set[asyncio.Task[socket.socket | OSError]] = set()
    finished: set[asyncio.Task[socket.socket | OSError]] = set()
    errors: list[OSError] = []
    winner: socket.socket | None = None
    try:
        while winner is None and (waiting or running):
            if waiting:
                attempt = _connect(waiting.pop(0), port)
                running.add(tasks.start(attempt, name="connect"))
            pause = limits.DIAL_STAGGER_SECONDS if waiting else None
            ended, running = await asyncio.wait(
                running, timeout=pause, return_when=asyncio.FIRST_COMPLETED
            )
            finished |= ended
            for task in ended:
                made = task.result()
                if isinstance(made, OSError):
                    errors.append(made)
                elif winner is None:
                    winner = made
    finally:
        for task in running:
            task.cancel()
        for task in finished | running:
            task.add_done_callback(lambda done: _drop(done, winner))
    if winner is not None:
        return winner
    faults = [_connect_fault(error) for error in errors]
    return min(faults, key=lambda failed: _TELLING.index(failed.cause))


def _drop(
    task: asyncio.Task[socket.socket | OSError], winner: socket.socket | None
) -> None:
    """Close a connection that lost the race, whenever it ends."""
    if task.cancelled():
        return
    made = task.result()
    if isinstance(made, socket.socket) and made is not winner:
        made.close()


async def _connect(address: Address, port: int) -> socket.socket | OSError:
    """Return a connected socket, or the error as a value; it owns no socket then."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        return error
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, (str(address), port))
    except OSError as error:
        sock.close()
        return error
    except BaseException:
        sock.close()
        raise
    return sock


def _connect_fault(error: OSError) -> Fault:
    detail = lost_text(error)
    if isinstance(error, ConnectionRefusedError):
        return fault(Cause.REFUSED, Phase.CONNECT, "connection refused")
    if isinstance(error, ConnectionResetError | ConnectionAbortedError):
        return fault(Cause.RESET, Phase.CONNECT, detail)
    if isinstance(error, TimeoutError):
        return fault(Cause.TIMEOUT, Phase.CONNECT, detail)
    if error.errno in _UNREACHABLE:
        return fault(Cause.UNREACHABLE, Phase.CONNECT, detail)
    return fault(Cause.UNREACHABLE, Phase.CONNECT, f"cannot connect: {detail}")
