"""The HTTP server inside of the node's own process: granian, embedded.

It calls itself experimental, so what we rely on is pinned and tested: requests in flight
are answered on stop, a body cut short arrives as `http.disconnect`, headers that come
too slowly or are too long end the connection. Its forking mode is wrong for a node: a
killed parent would leave a worker that serves for a node that is gone.
"""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server as Embedded

from tenure.clock import Clock, SystemClock
from tenure.errors import ConfigInvalid
from tenure.limits import (
    CONNECTIONS_HELD_MAX,
    REQUEST_HEADER_SECONDS,
    REQUEST_HEADERS_BYTES,
)
from tenure.spawn import Tasks

BACKLOG: Final = 1024
READY_SECONDS: Final = 10.0
READY_POLL_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where a server answers."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The address to open; a wildcard is shown as the loopback address."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}"


class Running:
    """A server that answers; `stop` ends it."""

    __slots__ = ("_server", "_task", "listening")

    def __init__(
        self, server: Embedded, task: asyncio.Task[None], listening: Listening
    ) -> None:
        self._server: Final = server
        self._task: Final = task
        self.listening: Final = listening

    @property
    def url(self) -> str:
        """The address to open."""
        return self.listening.url

    async def wait(self) -> None:
        """Return when the server has ended; raise what ended it."""
        await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Take no new connection; return when requests in flight were answered."""
        self._server.stop()
        await self._task


async def start(
    app: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    header_seconds: float = REQUEST_HEADER_SECONDS,
    tasks: Tasks | None = None,
    clock: Clock | None = None,
) -> Running:
    """Serve an ASGI application on this loop; return once it accepts connections.

    Port 0 picks a free one. Several processes may share a port. A client has
    `header_seconds` to send its headers. Raises ConfigInvalid when the address cannot
    be bound.
    """
    listening = Listening(host=host, port=_bindable(host, port))
    server = Embedded(
        app,
        address=host,
        port=listening.port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        backlog=BACKLOG,
        backpressure=CONNECTIONS_HELD_MAX,
        log_enabled=False,
        http1_settings=HTTP1Settings(
            header_read_timeout=round(header_seconds * 1000),
            max_buffer_size=REQUEST_HEADERS_BYTES,
        ),
    )
    owner = Tasks() if tasks is None else tasks
    task = owner.start(server.serve(), name="http server")
    await _accepting(listening, task, SystemClock() if clock is None else clock)
    return Running(server, task, listening)


async def serve(
    app: Any,
    host: str = "127.0.0.1",
    port: int = 8071,
    *,
    stop: asyncio.Event,
    started: Callable[[Listening], None] | None = None,
) -> None:
    """Serve until `stop` is set, then until requests in flight were answered."""
    tasks = Tasks()
    running = await start(app, host=host, port=port, tasks=tasks)
    if started is not None:
        started(running.listening)
    stopped = tasks.start(stop.wait(), name="http stop")
    ended = tasks.start(running.wait(), name="http end")
    await asyncio.wait((stopped, ended), return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        await running.stop()
    stopped.cancel()
    await ended


def _bindable(host: str, port: int) -> int:
    """Return the port, or a free one for 0; refuse an address that is not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if port != 0:
            # As granian binds: processes of one deployment share their port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigInvalid(
                f"Cannot listen on {host} port {port}: {error.strerror}. Stop what"
                " listens there, or choose another port"
            ) from None
        found: int = probe.getsockname()[1]
        return found


async def _accepting(
    listening: Listening, task: asyncio.Task[None], clock: Clock
) -> None:
    until = clock.monotonic() + READY_SECONDS
    host = listening.url.removeprefix("http://").rpartition(":")[0].strip("[]")
    while True:
        if task.done():
            await task
            raise ConfigInvalid(f"The server at {listening.url} ended at once")
        try:
            _, writer = await asyncio.open_connection(host, listening.port)
        except OSError:
            if clock.monotonic() > until:
                raise
            await asyncio.sleep(READY_POLL_SECONDS)
        else:
            writer.close()
            await writer.wait_closed()
            return
