"""What a job may be told, checked: its timing, and how its runs are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict

import msgspec

from tenure.limits import (
    JOB_ATTEMPTS_MAX,
    JOB_TIMEOUT_MAX_SECONDS,
)
from tenure.schedules.model import JobSettings, Overlap

if TYPE_CHECKING:
    from tenure.schedules.calendar.model import Schedule

__all__ = ["SETTINGS", "TIMING", "Timing", "check_settings", "schedule_of"]


class Timing(TypedDict, total=False):
    """When a job fires: one of the first four, and how its zone's clock changes count."""

    cron: str | None
    every: timedelta | float | str | None
    at: datetime | None
    instants: Sequence[datetime] | None
    zone: str
    gap: str
    """A local time that a clock change leaves out: shift, skip, run-at-resume."""
    overlap_hour: str
    """A local time that comes twice: first, second, both."""
    jitter: timedelta | float
    """The run starts up to so much later; the window keeps its instant."""
    catch_up: str
    """What is done about windows that were missed: none, latest, all."""
    catch_up_max_age: timedelta | float
    anchor: datetime | None
    """Whence an interval counts; 1970 unless given, so the phase outlives restarts."""


TIMING: Final = frozenset(Timing.__annotations__)
SETTINGS: Final = frozenset(JobSettings.__struct_fields__)
_DURATIONS: Final = {
    "timeout": "timeout_seconds",
    "backoff": "backoff_seconds",
    "backoff_max": "backoff_max_seconds",
}


def check_settings(given: Mapping[str, Any], *, scheduled: bool) -> JobSettings:
    """Return the settings that are meant. Raises ValueError naming what to change."""
    fields: dict[str, Any] = {}
    for name, value in given.items():
        field = _DURATIONS.get(name, name)
        if field not in SETTINGS:
            raise ValueError(
                f"{name!r} is no setting of a job; there are"
                f" {', '.join(sorted(SETTINGS | TIMING))}"
            )
        fields[field] = _seconds(value) if field.endswith("_seconds") else value
    if not scheduled:
        fields.setdefault("overlap", Overlap.ALLOW)
    try:
        settings = msgspec.convert(fields, type=JobSettings)
    except msgspec.ValidationError as error:
        raise ValueError(str(error).replace("`$.", "`")) from None
    _bounded("timeout", settings.timeout_seconds, 0, JOB_TIMEOUT_MAX_SECONDS)
    _bounded("backoff", settings.backoff_seconds, 0, JOB_TIMEOUT_MAX_SECONDS)
    _bounded("backoff_max", settings.backoff_max_seconds, 0, JOB_TIMEOUT_MAX_SECONDS)
    for name, value, most in (
        ("attempts", settings.attempts, JOB_ATTEMPTS_MAX),
        ("concurrency", settings.concurrency, 1_000_000),
        ("rate_per_second", settings.rate_per_second, 1_000_000),
        ("pause_on_failure", settings.pause_on_failure, 1_000_000),
        ("queue_max", settings.queue_max or 1, 1_000_000),
    ):
        if value is not None and not 1 <= value <= most:
            raise ValueError(f"{name} is {value}: give 1 to {most}")
    if settings.priority not in range(4):
        raise ValueError(f"priority is {settings.priority}: give 0 (first) to 3 (last)")
    if settings.group is not None and not 1 <= len(settings.group) <= 100:
        raise ValueError("group has no name, or one of more than 100 characters")
    return settings


def _bounded(name: str, value: float, low: float, high: float) -> None:
    if not low < value <= high:
        raise ValueError(
            f"{name} is {value:g} s: give more than {low:g}, up to {high:g}"
        )


def _seconds(value: object) -> object:
    match value:
        case timedelta():
            return value.total_seconds()
        case str():
            from tenure.schedules.calendar.parsing import parse_duration

            return parse_duration(value) / 1_000_000
        case _:
            return value


def schedule_of(
    timing: Timing, more: Mapping[str, Any], *, now_at: int | None = None
) -> tuple[Schedule | None, dict[str, Any]]:
    """Return the schedule that is meant, None for none, and what was not about it.

    With `now_at` (µs) an instant of `at` that has passed is refused. Raises ValueError.
    """
    from tenure.schedules.calendar.parsing import parse_schedule

    rest = {name: value for name, value in more.items() if name not in TIMING}
    said = {name: value for name, value in more.items() if name in TIMING}
    given: dict[str, Any] = {
        k: v for k, v in {**timing, **said}.items() if v is not None
    }
    if not given.keys() & {"cron", "every", "at", "instants"}:
        loose = sorted(given.keys() - {"zone"})
        if loose:
            raise ValueError(
                f"{', '.join(loose)} says how a schedule fires, and there is none:"
                " give cron, every, at or instants"
            )
        return None, rest
    return parse_schedule(now_at=now_at, **given), rest
