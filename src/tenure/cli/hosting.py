"""What `tenure serve` does: one node here, or several processes kept running."""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import typer

from tenure import __version__
from tenure.cli.children import Children, reserve_port
from tenure.cli.databases import named
from tenure.cli.ports import free_port, is_free
from tenure.cli.running import first_start, run_node, run_on_loop
from tenure.cli.screen import Screen
from tenure.cli.verbs import Call
from tenure.cli.waiting import watch
from tenure.config import Settings
from tenure.limits import PORT_WAIT_SECONDS
from tenure.telemetry import logs
from tenure.work.drain import Drained, Draining

__all__ = ["host"]


def host(
    call: Call,
    flags: dict[str, Any],
    *,
    processes: int | None,
    supervised: int | None,
) -> None:
    """Serve until stopped; `supervised` is the pipe of a parent that watches us."""
    settings = call.settings(processes=processes, **flags)
    logs.configure(form=settings.log_format, level=settings.log_level)
    if supervised is not None:
        _one(settings, _Announcer(call.screen, quiet=True), orphaned=supervised)
        return
    announcer = _Announcer(call.screen)
    if settings.port:
        _wait_for_port(settings)
    key = first_start(settings)
    announcer.opened(settings, key)
    if settings.processes == 1:
        _one(settings, announcer)
        return
    with reserve_port(settings.host, settings.port) as kept:
        flags["port"] = kept.getsockname()[1]
        settings = settings.model_copy(update={"port": flags["port"]})
        code = asyncio.run(_several(settings, call, flags, announcer))
    if code:
        raise typer.Exit(code)


def _wait_for_port(settings: Settings) -> None:
    """Refuse a port that stays taken; processes of a killed parent let go of it soon."""
    watch(
        lambda: is_free(settings.host, settings.port), bool, seconds=PORT_WAIT_SECONDS
    )
    free_port(settings.host, settings.port)


class _Announcer:
    """Says what happens at start and stop, once each."""

    def __init__(self, screen: Screen, *, quiet: bool = False) -> None:
        self._screen: Final = screen
        self._quiet: Final = quiet

    def _say(self, text: str, style: str | None = None, **facts: object) -> None:
        if self._quiet:
            return
        if self._screen.as_json:
            self._screen.json(facts)
        else:
            self._screen.line(text, style=style)

    def opened(self, settings: Settings, key: str | None) -> None:
        """Say which database it is, and the first key, this once."""
        where = named(settings)
        self._say(
            f"tenure {__version__}, database {where}",
            event="opened",
            version=__version__,
            database=where,
        )
        if key is None:
            self._say(
                "API keys exist; `tenure keys create NAME` makes another",
                event="keys_exist",
            )
            return
        self._say(f"API key, shown this once: {key}", "bold", event="key", key=key)

    def listening(self, url: str) -> None:
        """Say where it answers."""
        self._say(
            f"listening on {url} (a page for people there: any user name, the API key"
            " as the password)",
            event="listening",
            url=url,
        )

    def draining(self, plan: Draining) -> None:
        """Say how long a stop may take."""
        waits = (
            f"what is in flight ({plan.in_flight}) gets up to {plan.budget_seconds:.1f} s"
            if plan.in_flight
            else "nothing is in flight"
        )
        self._say(
            f"stopping: {waits}, then {plan.settle_seconds:g} s for results to be"
            " written; a second signal cuts it now",
            event="stopping",
            **asdict(plan),
        )

    def drained(self, how: Drained) -> None:
        """Say how it went."""
        self._say(
            f"stopped in {how.took_seconds:.1f} s: {how.finished} finished, {how.cut}"
            f" cut, {how.released} handed back, {how.unwritten} not written",
            event="stopped",
            **asdict(how),
        )

    def note(self, text: str) -> None:
        """Say something beside the results."""
        self._screen.note(text)

    def told(self, text: str, event: str) -> None:
        """Say something about the processes as a whole."""
        self._say(text, event=event)


def _one(
    settings: Settings, announcer: _Announcer, *, orphaned: int | None = None
) -> None:
    run_on_loop(
        lambda: run_node(
            settings,
            listening=announcer.listening,
            draining=announcer.draining,
            drained=announcer.drained,
            orphaned=orphaned,
        )
    )


async def _several(
    settings: Settings,
    call: Call,
    flags: dict[str, Any],
    announcer: _Announcer,
) -> int:
    children = Children(
        ["serve", *_arguments(call, flags), "--supervised"],
        settings.processes,
        announcer.note,
        own=lambda number: _own_settings(settings, number),
    )
    loop = asyncio.get_running_loop()

    def stop() -> None:
        announcer.told(
            f"stopping {settings.processes} processes: what is in flight gets up to"
            f" {settings.drain_seconds:g} s; a second signal cuts it now",
            "stopping",
        )
        children.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # log levels: see `running`
        loop.add_signal_handler(number, children.pass_on, number)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(children.run())
        seen = group.create_task(_when_open(settings, announcer.listening))
        code = await running
        seen.cancel()
    announcer.told(f"stopped {settings.processes} processes", "stopped")
    return code


async def _when_open(settings: Settings, listening: Callable[[str], None]) -> None:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104
    while True:
        try:
            _, writer = await asyncio.open_connection(host, settings.port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        writer.close()
        shown = f"[{host}]" if ":" in host else host
        listening(f"http://{shown}:{settings.port}")
        return


def _arguments(call: Call, flags: dict[str, Any]) -> list[str]:
    """Return the flags of this command as a child is given them."""
    given = {
        "database_url": call.given("database_url"),
        "config": call.given("config_file"),
        "processes": 1,
    } | flags
    return [
        part
        for name, value in given.items()
        if value is not None
        for part in (f"--{name.replace('_', '-')}", _text(value))
    ]


def _own_settings(settings: Settings, number: int) -> dict[str, str]:
    """Return what one of several processes must not share: its metrics port."""
    if settings.metrics_port is None:
        return {}
    return {"TENURE_METRICS_PORT": str(settings.metrics_port + number)}


def _text(value: object) -> str:
    return str(value.absolute()) if isinstance(value, Path) else str(value)
