"""One node with its server, from start to a drained end; what `serve` and `demo` run."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Final

from tenure.cli.planning import import_from_here
from tenure.config import Settings
from tenure.engine import Engine
from tenure.limits import HTTP_STOP_SECONDS
from tenure.outbox.model import PageIn, Scope
from tenure.outbox.outbox import DEFAULT_TENANT
from tenure.server import serving
from tenure.server.app import asgi
from tenure.server.metrics import monitoring
from tenure.spawn import Tasks
from tenure.telemetry import logs
from tenure.telemetry.events import Event
from tenure.work.drain import Drained, Draining

__all__ = ["FIRST_KEY", "first_start", "run_node", "run_on_loop"]

FIRST_KEY: Final = "first"


def run_on_loop(main: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine function on a fresh event loop, the fast one where there is one."""

    async def run() -> None:
        await main()

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(run())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on Windows
        return None
    return uvloop.new_event_loop


def first_start(settings: Settings, *, make_key: bool = True) -> str | None:
    """Make what is missing: database, schema, key ring, and the first API key.

    Returns the key's token when it was made now, None when there are keys.
    """
    return asyncio.run(_first_start(settings, make_key=make_key))


async def _first_start(settings: Settings, *, make_key: bool) -> str | None:
    async with Engine(settings, works=False) as engine:
        if not make_key or settings.bootstrap_key is not None:
            return None
        page = await engine.outbox.list_api_keys(DEFAULT_TENANT, PageIn(limit=1))
        if page.data:
            return None
        made = await engine.outbox.create_api_key(
            DEFAULT_TENANT, name=FIRST_KEY, scope=Scope.ADMIN
        )
        return made.token


async def run_node(
    settings: Settings,
    *,
    listening: Callable[[str], None],
    draining: Callable[[Draining], None],
    drained: Callable[[Drained], None],
    orphaned: int | None = None,
    beside: Callable[[Engine], Awaitable[None]] | None = None,
) -> None:
    """Serve until a signal, or until the other end of the pipe `orphaned` is closed.

    The first signal drains, the second one cuts what is in flight. `beside` runs
    meanwhile; when it fails, the node stops and its error is raised.
    """
    stop = _Stop()
    stop.listen(orphaned)
    tasks = Tasks(lambda _name, _error: stop.now())
    import_from_here()
    engine = Engine(settings)
    _listen_levels(engine)
    stop.hurry = engine.hurry
    async with engine:
        running = await serving.start(
            asgi(engine),
            host=settings.host,
            port=settings.port,
            tasks=tasks,
            clock=engine.clock,
        )
        watched = await _monitored(engine, tasks)
        listening(running.url)
        server = tasks.start(running.wait(), name="server")
        server.add_done_callback(lambda _task: stop.now())
        extra = None if beside is None else tasks.start(_as(beside(engine)), name="-")
        await stop.event.wait()
        if extra is not None:
            extra.cancel()
        stopping = tasks.start(running.stop(), name="server stop")
        await asyncio.wait((stopping,), timeout=HTTP_STOP_SECONDS)
        how = await engine.stop(told=draining)
        if watched is not None:
            await watched.stop()
        await asyncio.wait((stopping,), timeout=HTTP_STOP_SECONDS)
        await tasks.cancel()
    if how is not None:
        drained(how)
    for task in (server, extra):
        if task is not None and not task.cancelled():
            task.result()  # raises what ended it


async def _monitored(engine: Engine, tasks: Tasks) -> serving.Running | None:
    """Serve metrics and health on their own port, if they have one."""
    port, host = engine.settings.metrics_port, engine.settings.metrics_host
    if port is None:
        return None
    return await serving.start(
        monitoring(engine), host=host, port=port, tasks=tasks, clock=engine.clock
    )


def _listen_levels(engine: Engine) -> None:
    """Let SIGUSR1 write every line and SIGUSR2 those of the configured level again."""

    def change(level: str) -> None:
        logs.set_level(level)
        engine.events.tell(Event.LOG_LEVEL, to=level)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, change, "debug")
    loop.add_signal_handler(signal.SIGUSR2, change, str(engine.settings.log_level))


async def _as(work: Awaitable[None]) -> None:
    await work


class _Stop:
    """Turns signals, and the end of a parent, into one event and then into haste."""

    def __init__(self) -> None:
        self.event: Final = asyncio.Event()
        self.hurry: Callable[[], None] = lambda: None

    def listen(self, orphaned: int | None) -> None:
        """Begin to listen, on the running loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        if orphaned is not None:
            # Nobody ever writes: it becomes readable when the parent has gone.
            loop.add_reader(orphaned, self._parent_gone, orphaned)

    def now(self) -> None:
        """Stop."""
        self.event.set()

    def _signalled(self) -> None:
        if self.event.is_set():
            self.hurry()
        self.event.set()

    def _parent_gone(self, pipe: int) -> None:
        asyncio.get_running_loop().remove_reader(pipe)
        os.close(pipe)
        self.now()
