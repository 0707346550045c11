"""Whatever was accepted happens, one owner at a time, and anyone can see why not yet.

Tenure stores side effects (webhooks, jobs, flows, notices) as rows of one SQL database
and makes them happen. This module is the promised surface: names that are not in
``__all__`` may change in any release.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, ParamSpec, TypeVar, Unpack

    from tenure.engine import Engine
    from tenure.outbox.carriers.functions import Received, Retry, Stop
    from tenure.outbox.joining import (
        AsyncJoinable,
        Joinable,
        Submission,
        Submitter,
    )
    from tenure.outbox.model import Accepted
    from tenure.schedules.declaring import Job, Package
    from tenure.schedules.model import Degraded, Skipped, Snooze
    from tenure.schedules.reminders import Due
    from tenure.schedules.running import current_run

    F = TypeVar("F", bound=Callable[[Received], Any])
    P = ParamSpec("P")
    R = TypeVar("R")

__all__ = [
    "Degraded",
    "Due",
    "Engine",
    "Received",
    "Retry",
    "Skipped",
    "Snooze",
    "Stop",
    "__version__",
    "current_run",
    "job",
    "on",
    "package",
    "reminder",
    "submit",
    "submit_async",
]

__version__ = "0.1.0.dev0"


def submit(
    into: Joinable,
    application: str,
    event_type: str,
    payload: object,
    **more: Unpack[Submission],
) -> Accepted:
    """Accept a message inside of the caller's own transaction.

    ``into`` is a Session or Connection of SQLAlchemy on the database that holds Tenure's
    tables; the message is sent once it has committed, and never was if it rolls back.
    Needs no node in this process; caps and ``TENURE_NOTIFY`` are those of the settings,
    read at the first call. Errors and the rest: `tenure.outbox.joining.Submitter.submit`.
    """
    return _submitter().submit(into, application, event_type, payload, **more)


async def submit_async(
    into: AsyncJoinable,
    application: str,
    event_type: str,
    payload: object,
    **more: Unpack[Submission],
) -> Accepted:
    """As `submit`, for an AsyncSession or AsyncConnection."""
    if not _submitter.cache_info().currsize:
        import asyncio

        await asyncio.to_thread(_submitter)  # it reads files
    return await _submitter().submit_async(
        into, application, event_type, payload, **more
    )


def on(
    *event_types: str,
    source: str | None = None,
    package: str = "app",
    name: str | None = None,
) -> Callable[[F], F]:
    """Register a function that endpoints of the kind `handler:package.name` call.

    It is called for these event types (``invoice.*`` too; none = all), or for what
    arrived at a source. Functions are registered before the engine starts. Errors and
    the rest: `tenure.outbox.carriers.functions`.
    """
    from tenure.outbox.carriers.functions import registry

    return registry().on(*event_types, source=source, package=package, name=name)


def package(name: str, *, formerly: Sequence[str] = ()) -> Package:
    """Return the package of this name, which jobs are registered in.

    ``formerly`` are names that the package had before: its jobs keep their history.
    Raises ConfigInvalid for a name that may not be.
    """
    from tenure.schedules.declaring import registry

    return registry().package(name, formerly=formerly)


def job(**told: Any) -> Callable[[Callable[P, R]], Job[P, R]]:
    """Register a function as a job of the package `app`.

    One of ``cron``, ``every``, ``at`` and ``instants`` schedules it; without one it is
    submitted only: ``await report.submit(7)``. The rest, and the errors:
    `tenure.schedules.declaring.Package.job`.
    """
    from tenure.schedules.declaring import PACKAGE, registry

    return registry().package(PACKAGE).job(**told)


def reminder(**told: Any) -> Callable[[Callable[[Due], R]], Callable[[Due], R]]:
    """Register a function of the package `app` that is told of records in time.

    What it takes, and the errors: `tenure.schedules.declaring.Package.reminder`.
    """
    from tenure.schedules.declaring import PACKAGE, registry

    return registry().package(PACKAGE).reminder(**told)


_LAZY: Final = {
    "Degraded": "tenure.schedules.model",
    "Due": "tenure.schedules.reminders",
    "Engine": "tenure.engine",
    "Received": "tenure.outbox.carriers.functions",
    "Retry": "tenure.outbox.carriers.functions",
    "Skipped": "tenure.schedules.model",
    "Snooze": "tenure.schedules.model",
    "Stop": "tenure.outbox.carriers.functions",
    "current_run": "tenure.schedules.running",
}
"""What is imported when it is asked for first: most processes need little of it."""


def __getattr__(name: str) -> object:
    """Return the names of `_LAZY`."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@lru_cache(maxsize=1)
def _submitter() -> Submitter:
    """Return this process's own, made from its settings."""
    from tenure.config import load
    from tenure.limits import Durations
    from tenure.outbox.joining import Submitter
    from tenure.outbox.opening import outbox_settings
    from tenure.store.wakeups import Ringer

    settings = load()
    return Submitter(
        outbox_settings(settings, Durations.from_environment()),
        hint=Ringer().ring if settings.notify else None,
    )
