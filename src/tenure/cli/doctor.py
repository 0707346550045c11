"""`tenure doctor`: every invariant on live data, what is wrong, and what mends it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tenure.cli.databases import existing
from tenure.cli.screen import Screen
from tenure.cli.verbs import Call, verb
from tenure.cli.waiting import pause
from tenure.errors import ConfigInvalid, InvariantViolated, Unavailable, WrongKeyRing

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.config import Settings
    from tenure.doctor import About, Progress
    from tenure.store.backend import Backend

__all__ = ["add"]

PATH: Final = "/api/v1/doctor"

Heal = Annotated[
    bool, typer.Option("--heal", help="Mend what is safe to mend, and say what it was.")
]
Watch = Annotated[
    float | None,
    typer.Option(
        "--watch",
        min=0.1,
        metavar="SECONDS",
        help="Look again every so often, and print what changed.",
    ),
]
Quick = Annotated[
    bool,
    typer.Option("--quick", help="Leave history out: the same cost for any size."),
]


def add(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    verb(app, "doctor")(doctor)


def doctor(
    call: Call, heal: Heal = False, watch: Watch = None, quick: Quick = False
) -> None:
    """Check every invariant on live data, and say what to do about what is wrong.

    Opens the database itself and takes no lock, so it may run beside any traffic. With
    a key the server is asked instead, which leaves history out and heals nothing.
    Ends with 0 when every invariant holds, with 70 when one does not.
    """
    examine = _asker(call, heal=heal, quick=quick)
    if watch is not None:
        _watch(call, examine, watch)
        return
    report = examine()
    _show(call.screen, report)
    if not report["clean"]:
        broken = _faults(report)
        raise InvariantViolated(
            f"{len(broken)} rows or facts break an invariant: see above"
            + ("" if heal else "; `tenure doctor --heal` mends what is safe to mend"),
        )


def _asker(call: Call, *, heal: bool, quick: bool) -> Callable[[], Any]:
    if call.given("key") is not None:
        if heal:
            raise ConfigInvalid(
                "a server heals nothing from afar: run `tenure doctor --heal` without"
                " --key where the database can be opened"
            )
        api = call.api()
        return lambda: api.get(PATH)
    settings = existing(call.settings())

    def ask() -> Any:
        with _progress(call.screen) as told:
            return asyncio.run(_examine(settings, told, heal=heal, deep=not quick))

    return ask


async def _examine(
    settings: Settings, told: _Told, *, heal: bool, deep: bool
) -> dict[str, Any]:
    from tenure.doctor import estimate, examine
    from tenure.store.backend import open_backend

    backend = await open_backend(settings.database_url)
    try:
        about = await _about(settings, backend)
        if deep:
            told.expect(sum((await backend.read(estimate)).values()))
        report = await examine(
            backend, heal=heal, about=about, deep=deep, progress=told.seen
        )
        return report.as_json()
    finally:
        await backend.aclose()


async def _about(settings: Settings, backend: Backend) -> About:
    from tenure.doctor import About
    from tenure.engine import SENDING_OFF, key_ring
    from tenure.limits import Durations
    from tenure.work.filelock import host_name

    ring, fault = None, None
    try:
        ring = await key_ring(settings, backend)
    except WrongKeyRing as error:
        fault = error.message
    except ConfigInvalid:
        pass  # no ring was given: secrets are not looked at
    return About(
        host=await asyncio.to_thread(host_name),
        durations=Durations.from_environment(),
        ring=ring,
        ring_fault=fault,
        deployment=settings.deployment,
        off=None if settings.sending else SENDING_OFF,
    )


def _faults(report: Any) -> list[Any]:
    return [
        found
        for found in report["findings"]
        if found["grade"] == "broken" and not found["healed"]
    ]


# --- what is printed --------------------------------------------------------------------


def _show(screen: Screen, report: Any) -> None:
    if screen.as_json:
        screen.json(report)
        return
    for found in report["findings"]:
        _line(screen, found)
    for code, count in report["more"].items():
        screen.line(f"{code}: {count} more")
    rows = sum(report["examined"].values())
    screen.note(f"looked at {rows} rows in {report['tookSeconds']:.1f} s", style="dim")
    if not report["findings"]:
        screen.line("every invariant holds", style="green")


def _line(screen: Screen, found: Any, sign: str = "") -> None:
    word = "healed" if found["healed"] else found["grade"]
    style = {"broken": "bold red", "attention": "yellow", "healed": "green"}[word]
    where = " ".join(found["where"])
    screen.line(f"{sign}{word}  {found['code']}  {where}", style=style)
    screen.line(f"  must hold: {found['invariant']}")
    screen.line(f"  but: {found['what']}")
    if not found["healed"]:
        screen.line(f"  do: {found['todo']}")


def _watch(call: Call, examine: Callable[[], Any], every: float) -> None:
    """Print findings as they come and go, until Ctrl-C."""
    screen = call.screen
    known: dict[tuple[Any, ...], Any] = {}
    first = True
    while True:
        try:
            report = examine()
        except Unavailable as error:
            screen.error(error)
            pause(every)
            continue
        now: dict[tuple[Any, ...], Any] = {
            (found["code"], found["invariant"], *found["where"]): found
            for found in report["findings"]
        }
        for key in now.keys() - known.keys():
            _changed(screen, now[key], "came")
        for key in known.keys() - now.keys():
            _changed(screen, known[key], "went")
        if first and not now and not screen.as_json:
            screen.line("every invariant holds; watching", style="green")
        known, first = now, False
        pause(every)


def _changed(screen: Screen, found: Any, change: str) -> None:
    if screen.as_json:
        screen.json({"change": change, **found})
    else:
        _line(screen, found, "+ " if change == "came" else "- ")


class _Told:
    """How far an examination has come, as a bar at a terminal and else nowhere."""

    def __init__(self, draw: Callable[[int, int], None]) -> None:
        self._draw: Final = draw
        self._total = 0
        self._seen: Final[Counter[str]] = Counter()
        self.seen: Final[Progress] = self._note

    def expect(self, total: int) -> None:
        """Say about how many rows there are."""
        self._total = total

    def _note(self, table: str, rows: int) -> None:
        self._seen[table] = rows
        self._draw(self._seen.total(), self._total)


@contextmanager
def _progress(screen: Screen) -> Generator[_Told]:
    if not screen.people:
        yield _Told(lambda _seen, _total: None)
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("looking at rows", total=None)
        yield _Told(
            lambda seen, total: bar.update(
                task, completed=seen, total=max(seen, total) or None
            )
        )
