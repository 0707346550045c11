"""A receiver of webhooks to test against: a small HTTP server on loopback.

It keeps every request with its time and its exact bytes, and answers by a rule that can
change while it runs: a status, a delay, headers, or a connection that just ends.

In asynchronous code it lives on the running loop::

    async with Receiver() as receiver:
        receiver.answer(Reply(status=503, headers=(("retry-after", "2"),)))
        ...
        await receiver.wait(1)

Elsewhere `receiving` runs one in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Self, TypeAlias, cast

import httptools

from tenure.clock import US, SystemClock
from tenure.limits import MIB, RECEIVER_BODY_BYTES, RECEIVER_WAIT_SECONDS
from tenure.outbox.secrets import parse_secret
from tenure.outbox.signing import verify
from tenure.spawn import Tasks

if TYPE_CHECKING:
    from types import TracebackType

    from tenure.clock import Clock

__all__ = ["Received", "Receiver", "Reply", "Rule", "receiving"]

_READ_BYTES: Final = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request as it arrived; `at` is microseconds since the epoch."""

    at: int
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the first header of this name in any letter case, or None."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key == wanted), None)

    @property
    def message_id(self) -> str | None:
        """What receivers dedupe on: the header `webhook-id`."""
        return self.header("webhook-id")

    def check_signature(self, secret: str) -> None:
        """Raise SignatureRefused unless this `whsec_…` signed exactly these bytes."""
        verify(
            [parse_secret(secret)],
            dict(self.headers),
            self.body,
            now_s=self.at / US,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer: after `delay_seconds`; `close` ends the connection without one."""

    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    delay_seconds: float = 0.0
    close: bool = False


Rule: TypeAlias = "Reply | Callable[[Received], Reply]"


class Receiver:
    """Listens on `host`, a free port unless told; `async with` starts and ends it.

    `requests` holds what came, oldest first. `answer` changes the rule for requests
    that have not been answered yet.
    """

    def __init__(
        self,
        rule: Rule | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self.requests: Final[list[Received]] = []
        self._rule: Rule = Reply() if rule is None else rule
        self._host: Final = host
        self._port = port
        self._clock: Final = SystemClock() if clock is None else clock
        self._tasks: Final = Tasks(lambda _name, _error: None)
        self._arrived = asyncio.Condition()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        return f"http://{self._host}:{self._port}"

    @property
    def port(self) -> int:
        """The port it listens on; it stays the same after a `stop` and a `start`."""
        return self._port

    def answer(self, rule: Rule) -> None:
        """Answer by this rule from now on."""
        self._rule = rule

    async def start(self) -> None:
        """Listen. Raises OSError when the port is taken."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), self._host, self._port
        )
        self._port = cast("int", self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Refuse new connections and end those that are open."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        await self._tasks.cancel()

    async def wait(
        self, count: int = 1, *, seconds: float = RECEIVER_WAIT_SECONDS
    ) -> list[Received]:
        """Return when `count` requests have come; raises TimeoutError after `seconds`."""
        async with asyncio.timeout(seconds), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return list(self.requests)

    async def __aenter__(self) -> Self:
        """Listen."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop listening."""
        await self.stop()

    async def _answer(self, received: Received) -> Reply:
        self.requests.append(received)
        async with self._arrived:
            self._arrived.notify_all()
        rule = self._rule
        reply = rule if isinstance(rule, Reply) else rule(received)
        if reply.delay_seconds > 0:
            await asyncio.sleep(reply.delay_seconds)
        return reply

    def now(self) -> int:
        """Return this receiver's time."""
        return self._clock.wall_us()

    def serve(self, connection: _Connection) -> asyncio.Task[None]:
        """Answer a connection's requests one after the other."""
        return self._tasks.start(connection.run(self._answer), name="receiver")


class _Connection(asyncio.Protocol):
    """One connection: httptools feeds it, its task answers in order."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver: Final = receiver
        self._parser: Final = httptools.HttpRequestParser(self)
        self._waiting: Final[asyncio.Queue[Received]] = asyncio.Queue()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._begin()

    def _begin(self) -> None:
        self._target = b""
        self._headers: list[tuple[str, str]] = []
        self._body = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._task = self._receiver.serve(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.end()

    # What httptools calls.

    def on_message_begin(self) -> None:
        self._begin()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        pair = (name.decode("latin-1").lower(), value.decode("latin-1"))
        self._headers.append(pair)

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > RECEIVER_BODY_BYTES:
            self.end()

    def on_message_complete(self) -> None:
        received = Received(
            at=self._receiver.now(),
            method=self._parser.get_method().decode("latin-1"),
            target=self._target.decode("latin-1"),
            headers=tuple(self._headers),
            body=bytes(self._body),
        )
        self._waiting.put_nowait(received)

    def end(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.close()

    async def run(self, answer: Callable[[Received], Awaitable[Reply]]) -> None:
        """Answer each request that arrives, until the connection ends."""
        try:
            while True:
                received = await self._waiting.get()
                reply = await answer(received)
                if reply.close or self._transport is None:
                    return
                self._transport.write(_encoded(reply))
                if (received.header("connection") or "").lower() == "close":
                    return
        finally:
            self.end()


def _encoded(reply: Reply) -> bytes:
    try:
        phrase = HTTPStatus(reply.status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {reply.status} {phrase}"]
    lines += [f"{name}: {value}" for name, value in reply.headers]
    if reply.status not in {204, 304}:
        lines.append(f"content-length: {len(reply.body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + reply.body


class Receiving:
    """A receiver that runs in a thread; its methods block and may be called anywhere."""

    def __init__(self, receiver: Receiver, loop: asyncio.AbstractEventLoop) -> None:
        self._receiver: Final = receiver
        self._loop: Final = loop

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        return self._receiver.url

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._receiver.port

    @property
    def requests(self) -> list[Received]:
        """What came, oldest first."""
        return list(self._receiver.requests)

    def answer(self, rule: Rule) -> None:
        """Answer by this rule from now on."""
        self._receiver.answer(rule)

    def wait(
        self, count: int = 1, *, seconds: float = RECEIVER_WAIT_SECONDS
    ) -> list[Received]:
        """Return when `count` requests have come; raises TimeoutError after `seconds`."""
        waiting = self._receiver.wait(count, seconds=seconds)
        return asyncio.run_coroutine_threadsafe(waiting, self._loop).result()

    def stop(self) -> None:
        """Refuse connections until `start`."""
        asyncio.run_coroutine_threadsafe(self._receiver.stop(), self._loop).result()

    def start(self) -> None:
        """Listen again, on the same port."""
        asyncio.run_coroutine_threadsafe(self._receiver.start(), self._loop).result()


@contextmanager
def receiving(
    rule: Rule | None = None, *, host: str = "127.0.0.1", port: int = 0
) -> Generator[Receiving]:
    """Run a receiver in a thread of its own while the block lasts."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="receiver", daemon=True)
    thread.start()

    async def begin() -> Receiver:
        receiver = Receiver(rule, host=host, port=port)
        await receiver.start()
        return receiver

    try:
        receiver = asyncio.run_coroutine_threadsafe(begin(), loop).result()
        try:
            yield Receiving(receiver, loop)
        finally:
            with suppress(RuntimeError):
                asyncio.run_coroutine_threadsafe(receiver.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
