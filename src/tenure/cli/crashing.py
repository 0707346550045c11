"""What `tenure lab` does: scenarios one after the other, and what each came to."""

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tenure.cli.screen import Screen
from tenure.cli.verbs import Call
from tenure.errors import ConfigInvalid, InvariantViolated
from tenure.ids import random_bytes
from tenure.limits import LAB_SHOWN_MAX, Durations
from tenure.testing.lab.model import (
    SCENARIOS,
    Database,
    Figures,
    Plan,
    Scenario,
    broken,
    planned,
)
from tenure.testing.lab.programs import Programs, find_programs
from tenure.testing.lab.running import Seen, run

__all__ = ["as_json", "crash", "in_folder", "show"]

ALL: Final = "all"
PREFIX: Final = "tenure-lab-"


def crash(
    call: Call,
    *,
    scenario: str,
    database: str,
    seed: int | None,
    faults: int | None,
    every: float | None,
    postgres_bin: Path | None,
    keep: bool,
    **size: int,
) -> None:
    """Run what was asked for. Raises InvariantViolated when a promise was not kept."""
    chosen = _database(database)
    programs = find_programs(postgres_bin) if chosen is Database.POSTGRESQL else None
    first = int.from_bytes(random_bytes(4)) if seed is None else seed
    plans = [
        planned(each, chosen, seed=first, faults=faults, every_seconds=every, **size)
        for each in _scenarios(scenario, chosen)
    ]
    factor = Durations.from_environment().factor
    call.screen.note(
        f"seed {first}, the kernel's durations divided by {factor:g}", style="dim"
    )
    told: list[tuple[Figures, list[str]]] = []
    for plan in plans:
        figures = in_folder(plan, programs, call.screen, keep=keep)
        told.append((figures, broken(figures)))
        show(call.screen, *told[-1])
    if call.screen.as_json:
        call.screen.json([as_json(*each) for each in told])
    faulty = [figures.plan.scenario for figures, words in told if words]
    if faulty:
        raise InvariantViolated(
            f"the promise was not kept in {', '.join(faulty)} on {chosen}"
            f" (--seed {first}): what it came to stands above"
        )


def _database(name: str) -> Database:
    try:
        return Database(name)
    except ValueError:
        raise ConfigInvalid(
            f"--database is {name!r}: write {' or '.join(Database)}"
        ) from None


def _scenarios(name: str, database: Database) -> tuple[Scenario, ...]:
    if name == ALL:
        return SCENARIOS[database]
    try:
        return (Scenario(name),)
    except ValueError:
        raise ConfigInvalid(
            f"--scenario is {name!r}: write {', '.join(Scenario)} or {ALL}"
        ) from None


def in_folder(
    plan: Plan, programs: Programs | None, screen: Screen, *, keep: bool
) -> Figures:
    """Run a scenario in a new folder, which stays when it is asked for or needed."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    folder.chmod(0o755)  # PostgreSQL may run as another user
    clean = False
    try:
        with _Told(plan, live=screen.people) as told:
            figures = asyncio.run(_until_stopped(plan, folder, programs, told.seen))
        clean = not broken(figures)
    except KeyboardInterrupt:
        clean = True  # nothing went wrong that the folder could explain
        raise
    else:
        return figures
    finally:
        if keep or not clean:
            screen.note(f"{plan.scenario}: logs and databases are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


async def _until_stopped(
    plan: Plan,
    folder: Path,
    programs: Programs | None,
    told: Callable[[Seen], None],
) -> Figures:
    """Run it; SIGTERM ends it as Ctrl-C does, and all that it started."""
    running = asyncio.current_task()
    assert running is not None
    stopped: list[int] = []

    def stop() -> None:
        stopped.append(signal.SIGTERM)
        running.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    try:
        return await run(plan, folder=folder, programs=programs, told=told)
    except asyncio.CancelledError:
        if stopped:
            raise KeyboardInterrupt from None
        raise


class _Told:
    """A bar for a person who looks at a terminal; nothing otherwise."""

    def __init__(self, plan: Plan, *, live: bool) -> None:
        self._progress: Final = Progress(
            TextColumn(f"{plan.scenario}"),
            BarColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not live,
        )
        self._task: Final[TaskID] = self._progress.add_task(
            "", total=plan.deliveries, facts="starting"
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()

    def seen(self, seen: Seen) -> None:
        """Show how far it has come."""
        self._progress.update(
            self._task,
            completed=seen.arrived,
            facts=f"{seen.accepted} accepted, {seen.arrived} arrived,"
            f" {seen.faults} faults",
        )


def show(screen: Screen, figures: Figures, words: list[str]) -> None:
    """Print what a scenario came to; `words` say what was broken."""
    plan = figures.plan
    screen.line(
        f"{plan.scenario}: {plan.database}, {plan.processes}"
        f" {'process' if plan.processes == 1 else 'processes'}, {plan.messages}"
        f" messages to {plan.endpoints} endpoints, {figures.seconds:g} s",
        style="bold",
    )
    flights = [fault.in_flight for fault in figures.faults]
    facts: dict[str, object] = {
        "accepted": f"{figures.accepted} ({figures.asked_again} submits were repeated)",
        "requests": figures.requests,
        "attempts": f"{figures.attempts}, {figures.attempts_lost} of them lost",
        "lost": figures.lost,
        "duplicated": figures.duplicated,
        "quarantined": figures.quarantined,
        "faults": len(figures.faults),
        "in flight": f"{sum(flights)} ({_some(flights)})",
        "goes on": _span([fault.others_seconds for fault in figures.faults]),
        "is back": _span([fault.restarted_seconds for fault in figures.faults]),
        "doctor": f"{len(figures.findings)} findings",
    }
    screen.facts({f"  {name}": value for name, value in facts.items()})
    for line in words:
        screen.line(f"  BROKEN {line}", style="bold red")
    if words:
        for line in figures.doubled:
            screen.line(f"  twice: {line}")
    else:
        screen.line("  the promise was kept", style="green")


def _some(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:LAB_SHOWN_MAX])
    return shown if len(numbers) <= LAB_SHOWN_MAX else f"{shown}, …"


def _span(seconds: list[float | None]) -> str:
    known = [each for each in seconds if each is not None]
    if not known:
        return "-"
    return f"after {median(known):.2f} s, at most {max(known):.2f} s"


def as_json(figures: Figures, words: list[str]) -> dict[str, Any]:
    """Return the figures and the verdict as JSON shows them."""
    told: dict[str, Any] = msgspec.to_builtins(asdict(figures))
    return told | {"in_flight": figures.in_flight, "kept": not words, "broken": words}
