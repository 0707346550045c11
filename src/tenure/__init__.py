"""Whatever was accepted happens, one owner at a time, and anyone can see why not yet.

Tenure stores side effects (webhooks, jobs, flows, notices) as rows of one SQL database
and makes them happen. This module is the promised surface: names that are not in
``__all__`` may change in any release.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar, Unpack

    from tenure.outbox.carriers.functions import Received, Retry, Stop
    from tenure.outbox.joining import (
        AsyncJoinable,
        Joinable,
        Submission,
        Submitter,
    )
    from tenure.outbox.model import Accepted

    F = TypeVar("F", bound=Callable[[Received], Any])

__all__ = [
    "Received",
    "Retry",
    "Stop",
    "__version__",
    "on",
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


def __getattr__(name: str) -> object:
    """Return the names that only functions of `on` need, imported when asked for."""
    if name in {"Received", "Retry", "Stop"}:
        from tenure.outbox.carriers import functions

        return getattr(functions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@lru_cache(maxsize=1)
def _submitter() -> Submitter:
    """Return this process's own, made from its settings."""
    from tenure.config import load
    from tenure.engine import outbox_settings
    from tenure.limits import Durations
    from tenure.outbox.joining import Submitter
    from tenure.store.wakeups import Ringer

    settings = load()
    return Submitter(
        outbox_settings(settings, Durations.from_environment()),
        hint=Ringer().ring if settings.notify else None,
    )
