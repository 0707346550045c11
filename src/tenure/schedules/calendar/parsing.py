"""Schedules from what people write: refused with the reason, or understood."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final, TypeVar, assert_never
from zoneinfo import ZoneInfoNotFoundError

from cronsim import CronSimError
from cronsim.cronsim import Field

from tenure.schedules.calendar.model import (
    Calendar,
    CatchUp,
    Cron,
    Fold,
    Gap,
    Instants,
    Interval,
    Once,
    Schedule,
)
from tenure.schedules.calendar.stepping import shortest_period, zone_of

__all__ = ["parse_cron", "parse_duration", "parse_schedule", "parse_zone"]

E = TypeVar("E", Gap, Fold, CatchUp)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
_NICKNAMES: Final = {
    "@annually": "0 0 1 1 *",
    "@daily": "0 0 * * *",
    "@hourly": "0 * * * *",
    "@midnight": "0 0 * * *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@yearly": "0 0 1 1 *",
}
_UNITS: Final = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 7 * 86_400_000_000,
}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_LONGEST_US: Final = 200 * 366 * 86_400_000_000
_NO_ZONES: Final = frozenset({"localtime", "posix", "posixrules", "right", ""})
"""What a system's folder of zones holds beside zones."""
CRON_CHARACTERS_MAX: Final = 500  # room for every minute of an hour, named
INSTANTS_MAX: Final = 10_000  # of one list: it is stored as one text


def parse_schedule(
    *,
    cron: str | None = None,
    every: timedelta | float | str | None = None,
    at: datetime | str | None = None,
    instants: Sequence[datetime | str] | None = None,
    anchor: datetime | str | None = None,
    zone: str = "UTC",
    gap: str = Gap.SHIFT,
    overlap_hour: str = Fold.FIRST,
    jitter: timedelta | float | str = 0,
    catch_up: str = CatchUp.LATEST,
    catch_up_max_age: timedelta | float | str | None = None,
    now_at: int | None = None,
) -> Schedule:
    """Return a schedule. Exactly one of the first four says when it fires.

    With `now_at` (µs) an instant of `at` that has passed is refused. Durations are
    timedeltas, seconds, or texts such as 90s, 15m, 1h30m, 2d. Raises ValueError that
    says what is wrong and what to write.
    """
    given = {"cron": cron, "every": every, "at": at, "instants": instants}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise ValueError(
            f"give one of cron, every, at and instants, not {' and '.join(named) or 'none'}"
        )
    if anchor is not None and every is None:
        raise ValueError("anchor says where an interval counts from: give every too")
    calendar = _calendar(cron, every, at, instants, anchor, now_at)
    jitter_us = parse_duration(jitter, name="jitter", zero=True)
    period_us = _period(calendar) if jitter_us else None
    if period_us is not None and jitter_us >= period_us:
        raise ValueError(
            f"jitter is {jitter}, as long as the interval or longer: two windows are"
            f" only {period_us / 1_000_000:g} s apart and would overtake each other:"
            " give less"
        )
    more: dict[str, Any] = {}
    if catch_up_max_age is not None:
        more["catch_up_max_age_us"] = parse_duration(
            catch_up_max_age, name="catch_up_max_age", zero=True
        )
    return Schedule(
        calendar=calendar,
        zone=parse_zone(zone),
        gap=_word(Gap, gap, "gap"),
        overlap_hour=_word(Fold, overlap_hour, "overlap_hour"),
        jitter_us=jitter_us,
        catch_up=_word(CatchUp, catch_up, "catch_up"),
        **more,
    )


def _calendar(
    cron: str | None,
    every: timedelta | float | str | None,
    at: datetime | str | None,
    instants: Sequence[datetime | str] | None,
    anchor: datetime | str | None,
    now_at: int | None,
) -> Calendar:
    if cron is not None:
        return Cron(pattern=parse_cron(cron))
    if every is not None:
        start = 0 if anchor is None else _instant(anchor, "anchor")
        every_us = parse_duration(every, name="every")
        return Interval(every_us=every_us, anchor_at=start % every_us)
    if at is not None:
        once = _instant(at, "at")
        if now_at is not None and once <= now_at:
            raise ValueError(f"at is {at}, which has passed: nothing would ever fire")
        return Once(at=once)
    listed = sorted({_instant(each, "instants") for each in instants or ()})
    if not 1 <= len(listed) <= INSTANTS_MAX:
        raise ValueError(
            f"instants has {len(listed)} of them: give 1 to {INSTANTS_MAX}"
        )
    return Instants(instants=tuple(listed))


def _period(calendar: Calendar) -> int | None:
    """Return the shortest time (µs) between two windows; None for a single one."""
    match calendar:
        case Cron(pattern=pattern):
            return shortest_period(pattern)
        case Interval(every_us=every):
            return every
        case Once():
            return None
        case Instants(instants=instants):
            return min((b - a for a, b in pairwise(instants)), default=None)
        case never:
            assert_never(never)


def parse_cron(text: str) -> str:
    """Return a pattern in its one spelling: fields apart by one space, in capitals.

    Five fields (minute hour day month weekday), six with seconds first, or a nickname
    such as @daily. Day and weekday both given mean either, as cron has it, unless one
    begins with a star. `L` is the last day of a month, `LW` its last working day, `5L`
    its last Friday and `FRI#2` its second; there is no `15W` and no `?`. Raises
    ValueError naming the field.
    """
    if len(text) > CRON_CHARACTERS_MAX:
        raise ValueError(
            f"cron has {len(text)} characters: write at most {CRON_CHARACTERS_MAX},"
            " with ranges and steps such as 0-30/5"
        )
    said = text.strip()
    if said.lower() == "@reboot":
        raise ValueError(
            "cron '@reboot' says nothing about time, and a fleet has no boot: submit the"
            " job when the process starts"
        )
    if said.startswith("@"):
        known = _NICKNAMES.get(said.lower())
        if known is None:
            raise ValueError(
                f"cron {text!r}: known are {', '.join(sorted(_NICKNAMES))}"
            )
        said = known
    fields = said.upper().split()
    if len(fields) not in {5, 6}:
        raise ValueError(
            f"cron {text!r} has {len(fields)} fields: write minute hour day month"
            " weekday, with seconds before them if need be"
        )
    for field, part in zip(tuple(Field)[-len(fields) :], fields, strict=True):
        try:
            field.parse(part)
        except (CronSimError, ValueError, IndexError, AssertionError):
            raise ValueError(
                f"cron {text!r}: {part!r} is no {field.name.lower()}"
                " (dow is the day of the week, 0 to 7 or SUN to SAT)"
            ) from None
    return " ".join(fields)  # each field may be: together they never may, as 30 Feb


def parse_duration(
    value: timedelta | float | str, *, name: str = "duration", zero: bool = False
) -> int:
    """Return microseconds; with `zero` none is allowed too.

    Raises ValueError for what is no duration, or is not more than nothing.
    """
    match value:
        case timedelta():
            us = value // _US
        case str():
            us = _read_duration(value, name)
        case _:
            if not -1e15 < value < 1e15:
                raise ValueError(f"{name} is {value}: give a number of seconds")
            us = round(value * 1_000_000)
    if us < 0 or (us == 0 and not zero):
        raise ValueError(f"{name} is {value}: give more than nothing")
    if us > _LONGEST_US:
        raise ValueError(f"{name} is {value}: give at most 200 years")
    return us


def _read_duration(text: str, name: str) -> int:
    said = text.strip().lower().replace(" ", "")
    parts = _PART.findall(said)
    if not parts or "".join(n + unit for n, unit in parts) != said:
        raise ValueError(f"{name} is {text!r}: write 90s, 15m, 1h30m, 2d or 4w")
    return round(sum(float(n) * _UNITS[unit] for n, unit in parts))


def parse_zone(name: str) -> str:
    """Return a zone of the tz database. Raises ValueError for any other name."""
    try:
        if name.partition("/")[0].lower() in _NO_ZONES:
            raise ZoneInfoNotFoundError(name)
        zone_of(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"zone {name!r} is not in the tz database: write Europe/Rome, or UTC"
        ) from None
    return name


def _word(kind: type[E], text: str, name: str) -> E:
    try:
        return kind(text)
    except ValueError:
        known = ", ".join(kind)
        raise ValueError(f"{name} is {text!r}: give one of {known}") from None


def _instant(value: datetime | str, name: str) -> int:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f"{name} is {value!r}: write 2027-01-31T08:00:00+01:00"
            ) from None
    if value.utcoffset() is None:
        raise ValueError(f"{name} is {value}, without a zone: give an aware datetime")
    return (value - _EPOCH) // _US
