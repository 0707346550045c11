"""Steps through a schedule: the instants that come after another one.

Theory. A cron pattern speaks of local times, and these have no order in time where the
clock changes. So it is walked through one stretch of equal offset after another
(`tenure.schedules.calendar.zones`), where local times are in their order. A pattern
with fixed hours has its rules for the ends of a stretch: of an hour that comes twice
one of the two is left out, and a local time that no clock shows is moved into the
stretch before or after. What is left is the earliest of at most three candidates.

A pattern whose hour is `*` or `*/n` follows real time instead: it fires whenever the
local clock shows what it says, twice where the clock shows it twice, never where it is
left out. `0-23` is an hour like any other list of hours, and has the rules.
"""

from __future__ import annotations

from bisect import bisect_right
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, assert_never

import msgspec
from cronsim import CronSim, CronSimError

from tenure.schedules.calendar.model import (
    DAY_US,
    Cron,
    Fold,
    Gap,
    Instants,
    Interval,
    Once,
    Schedule,
)
from tenure.schedules.calendar.zones import EPOCH, US, Stretch, stretch_of, zone_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Upcoming",
    "between",
    "due_at",
    "next_after",
    "shortest_period",
    "upcoming",
    "zone_of",
]

_LAST_AT: Final = (datetime(9990, 1, 1, tzinfo=EPOCH.tzinfo) - EPOCH) // US
"""Nothing fires later: the years of a datetime end soon after."""
_FAR_US: Final = 2 * DAY_US
"""More than lies between a local time, read as UTC, and any instant that it means."""
_NAIVE: Final = EPOCH.replace(tzinfo=None)
_SAMPLE_COUNT: Final = 200
_SAMPLE_US: Final = 400 * DAY_US  # each month and each leap day's neighbours once


class Upcoming(msgspec.Struct, frozen=True, kw_only=True):
    """An instant to come (µs), its local time with offset, and what moved it."""

    at: int
    local: str
    note: str | None = None


@dataclass(frozen=True, slots=True, order=True)
class _Step:
    """An instant and the local time that the pattern said, both in µs.

    Of two that mean one instant the first is kept, which no change has moved.
    """

    at: int
    said_us: int = field(compare=False)


def next_after(schedule: Schedule, after_at: int) -> int | None:
    """Return the first nominal instant after another one (µs); None for never."""
    match schedule.calendar:
        case Cron(pattern=pattern):
            found = _next(pattern, schedule, after_at)
            return None if found is None else found.at
        case Interval(every_us=every, anchor_at=anchor):
            following = anchor + ((after_at - anchor) // every + 1) * every
            return None if following > _LAST_AT else following
        case Once(at=at):
            return at if at > after_at else None
        case Instants(instants=instants):
            place = bisect_right(instants, after_at)
            return instants[place] if place < len(instants) else None
        case never:
            assert_never(never)


def between(schedule: Schedule, after_at: int, until_at: int, limit: int) -> list[int]:
    """Return up to `limit` instants after one instant, up to and with another."""
    found: list[int] = []
    at = next_after(schedule, after_at)
    while at is not None and at <= until_at and len(found) < limit:
        found.append(at)
        at = next_after(schedule, at)
    return found


def upcoming(schedule: Schedule, after_at: int, count: int) -> list[Upcoming]:
    """Return the next instants as people read them."""
    zone = zone_of(schedule.zone)
    found: list[Upcoming] = []
    at = next_after(schedule, after_at)
    while at is not None and len(found) < count:
        local = (EPOCH + at * US).astimezone(zone)
        note = _note(schedule, at)
        found.append(Upcoming(at=at, local=local.isoformat(), note=note))
        at = next_after(schedule, at)
    return found


def due_at(schedule: Schedule, nominal_at: int, salt: str) -> int:
    """Return when the window of a nominal instant fires: up to the jitter later.

    Every node finds the same: it follows from the instant and `salt`, the job's id.
    """
    if not schedule.jitter_us:
        return nominal_at
    digest = blake2b(f"{salt}:{nominal_at}".encode(), digest_size=8).digest()
    return nominal_at + int.from_bytes(digest) * schedule.jitter_us // 2**64


def shortest_period(pattern: str) -> int | None:
    """Return the shortest time between two local times of a pattern, in µs.

    The next 200 are looked at, or those of more than a year. None where fewer than two
    ever come.
    """
    start = 30 * 365 * DAY_US
    shortest: int | None = None
    before = _first(pattern, start)
    for _ in range(_SAMPLE_COUNT):
        if before is None or (shortest is not None and before > start + _SAMPLE_US):
            break
        following = _first(pattern, before + 1)
        if following is not None:
            shortest = min(shortest or following - before, following - before)
        before = following
    return shortest


# --- cron ---------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> CronSim | None:
    """Return a pattern ready to be walked, to be copied first; None if it never fires."""
    try:
        return CronSim(pattern, _NAIVE)
    except CronSimError:
        return None  # a day that no month has: parsing refuses everything else


@lru_cache(maxsize=4096)
def _is_wild(pattern: str) -> bool:
    """Tell whether a pattern follows real time: its hour is `*` or `*/n`."""
    return pattern.split()[-4].startswith("*")


def _first(pattern: str, from_us: int, to_us: int | None = None) -> int | None:
    """Return the first local time from one on, and before another, as µs.

    No clock ever changes here. None also where none comes for 50 years.
    """
    compiled = _compiled(pattern)
    if compiled is None:
        return None
    walk = copy(compiled)
    try:
        walk.dt = (_NAIVE + (from_us - 1) * US).replace(microsecond=0)
        found = (next(walk) - _NAIVE) // US
    except (StopIteration, OverflowError):
        return None
    return found if to_us is None or found < to_us else None


def _next(pattern: str, schedule: Schedule, after_at: int) -> _Step | None:
    if schedule.zone == "UTC":
        found = _first(pattern, after_at + 1)
        return None if found is None else _Step(found, found)
    while after_at < _LAST_AT:
        stretch = stretch_of(schedule.zone, after_at + 1)
        step = min(_candidates(pattern, schedule, stretch, after_at + 1), default=None)
        if step is not None:
            return step
        local = _first(
            pattern, stretch.end_at + min(stretch.offset_us, stretch.after_us)
        )
        if local is None:
            return None
        after_at = max(stretch.end_at - 1, local - _FAR_US)
    return None


def _candidates(
    pattern: str, schedule: Schedule, stretch: Stretch, from_at: int
) -> Iterator[_Step]:
    """Yield what may be the first instant of a stretch from `from_at` on.

    All are inside of the stretch, and the first is one of them if there is any.
    """
    offset, before, after = stretch.offset_us, stretch.before_us, stretch.after_us
    start, end = stretch.start_at, stretch.end_at
    low, high = from_at + offset, end + offset
    if _is_wild(pattern):
        if (local := _first(pattern, low, high)) is not None:
            yield _Step(local - offset, local)
        return
    if before > offset and schedule.overlap_hour is Fold.FIRST:
        low = max(low, start + before)  # what comes for the second time till then
    if after < offset and schedule.overlap_hour is Fold.SECOND:
        high = end + after  # what comes for the first time from then on
    if (local := _first(pattern, low, high)) is not None:
        yield _Step(local - offset, local)
    match schedule.gap:
        case Gap.SHIFT:
            if before < offset:  # moved later, into this stretch
                for local in _left_out(pattern, from_at + before, start + offset):
                    if not _is_earlier(local, offset - before):
                        yield _Step(local - before, local)
                        break
            if after > offset:  # moved earlier, into this stretch
                low = max(from_at + after, end + offset)
                for local in _left_out(pattern, low, end + after):
                    if _is_earlier(local, after - offset):
                        yield _Step(local - after, local)
                        break
        case Gap.SKIP:
            pass
        case Gap.RUN_AT_RESUME:
            if before < offset and from_at == start:
                local = _first(pattern, start + before, start + offset)
                if local is not None:
                    yield _Step(start, local)
        case never:
            assert_never(never)


def _left_out(pattern: str, low: int, high: int) -> Iterator[int]:
    local = _first(pattern, low, high)
    while local is not None:
        yield local
        local = _first(pattern, local + 1, high)


def _is_earlier(local: int, gap_us: int) -> bool:
    """Tell whether a time that is left out is moved earlier by the gap's length.

    It is moved later, as if the clock had not been put forward; but earlier where only
    that keeps its day, so that every local day has its time once.
    """
    day = local // DAY_US
    return (local + gap_us) // DAY_US != day and (local - gap_us) // DAY_US == day


def _note(schedule: Schedule, at: int) -> str | None:
    """Say what a clock change did to an instant."""
    stretch = stretch_of(schedule.zone, at)
    local = at + stretch.offset_us
    if local < stretch.start_at + stretch.before_us:
        return "second of two: the clock is put back"
    if local >= stretch.end_at + stretch.after_us:
        return "first of two: the clock is put back"
    if not isinstance(schedule.calendar, Cron):
        return None
    step = _next(schedule.calendar.pattern, schedule, at - 1)
    if step is None or step.said_us == local:
        return None
    said = _NAIVE + step.said_us * US
    time = f"{said:%H:%M:%S}" if said.second else f"{said:%H:%M}"
    return f"moved from {time}: its local time is left out by a clock change"
