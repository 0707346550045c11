"""Steps through a schedule: the instants that come after another one.

Theory. A cron pattern speaks of local times, and these have no order in time where the
clock changes. So local candidates are walked without any zone, each is turned into the
instants that it means (none, one or two), and the earliest instant after the given one
is taken; around a change the walk begins earlier and goes on further than the candidate
it found, because a later local time may mean an earlier instant.

A pattern whose hour is `*` or `*/n` follows real time instead: it fires whenever the
local clock shows what it says, twice where the clock shows it twice, never where it is
left out.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, assert_never
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from tenure.schedules.calendar.model import (
    Cron,
    Fold,
    Gap,
    Instants,
    Interval,
    Once,
    Schedule,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Upcoming", "between", "due_at", "next_after", "upcoming", "zone_of"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
_NEAR: Final = timedelta(hours=26)
"""No clock change moves local time by more: a day is left out or comes twice."""
_LAST: Final = datetime(9990, 1, 1, tzinfo=UTC)


class Upcoming(msgspec.Struct, frozen=True, kw_only=True):
    """An instant to come (µs), its local time with offset, and what moved it."""

    at: int
    local: str
    note: str | None = None


def next_after(schedule: Schedule, after_at: int) -> int | None:
    """Return the first nominal instant after another one (µs); None for never."""
    match schedule.calendar:
        case Cron(pattern=pattern):
            found = _next_local(pattern, schedule, _datetime(after_at))
            return None if found is None else _instant(found)
        case Interval(every_us=every, anchor_at=anchor):
            following = anchor + ((after_at - anchor) // every + 1) * every
            return None if following > _instant(_LAST) else following
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
        local = _datetime(at).astimezone(zone)
        found.append(
            Upcoming(at=at, local=local.isoformat(), note=_note(schedule, local))
        )
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


# --- cron ---------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def zone_of(name: str) -> ZoneInfo:
    """Return a zone's rules: a small file, read once. Raises as `ZoneInfo` does."""
    return ZoneInfo(name)


@lru_cache(maxsize=4096)
def _is_wild(pattern: str) -> bool:
    """Tell whether a pattern follows real time: its hour is `*` or `*/n`."""
    return pattern.split()[-4].startswith("*")


def _walk(pattern: str, local: datetime) -> Iterator[datetime]:
    """Yield the local times after another one, as if no clock ever changed."""
    try:
        return CronSim(pattern, local)
    except CronSimError:
        return iter(())  # a day that no month has: parsing refuses everything else


def _next_local(pattern: str, schedule: Schedule, after: datetime) -> datetime | None:
    if schedule.zone == "UTC":
        found = next(_walk(pattern, after.replace(tzinfo=None)), None)
        return None if found is None else found.replace(tzinfo=UTC)
    zone = zone_of(schedule.zone)
    wall = after.astimezone(zone).replace(tzinfo=None)
    early = _NEAR if _changes_near(after, zone) else timedelta(0)
    best: datetime | None = None
    last: datetime | None = None
    for local in _walk(pattern, wall - early - timedelta(seconds=1)):
        if last is not None and local > last:
            break
        for found in _meant(pattern, schedule, local, zone):
            if found > after and (best is None or found < best):
                best = found
                near = _NEAR if _changes_near(best, zone) else timedelta(0)
                last = best.astimezone(zone).replace(tzinfo=None) + near
    return best


def _changes_near(instant: datetime, zone: ZoneInfo) -> bool:
    """Tell whether the zone's offset changes within a little more than a day."""
    offsets = {
        (instant + step).astimezone(zone).utcoffset()
        for step in (-_NEAR, -_NEAR / 2, timedelta(0), _NEAR / 2, _NEAR)
    }
    return len(offsets) > 1


def _meant(
    pattern: str, schedule: Schedule, local: datetime, zone: ZoneInfo
) -> tuple[datetime, ...]:
    """Return the instants that a local time means, the earliest first."""
    first, second = (
        local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)
    )
    if first == second:
        return (first,)
    exists = first.astimezone(zone).replace(tzinfo=None) == local
    if _is_wild(pattern):
        return (first, second) if exists else ()
    if exists:
        match schedule.overlap_hour:
            case Fold.FIRST:
                return (first,)
            case Fold.SECOND:
                return (second,)
            case Fold.BOTH:
                return (first, second)
            case never:
                assert_never(never)
    match schedule.gap:
        case Gap.SHIFT:
            return (_shifted(local, first, second, zone),)
        case Gap.SKIP:
            return ()
        case Gap.RUN_AT_RESUME:
            return (_resumes(second, first, zone),)
        case never:
            assert_never(never)


def _shifted(
    local: datetime, later: datetime, earlier: datetime, zone: ZoneInfo
) -> datetime:
    """Move a time that is left out by the length of the gap, within its own day.

    Later, as if the clock had not been put forward; earlier where that would be the
    next day, so that every local day has its time once.
    """
    days = (each.astimezone(zone).date() for each in (later, earlier))
    later_day, earlier_day = days
    other = later_day != local.date() and earlier_day == local.date()
    return earlier if other else later


def _resumes(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """Return the first instant after a gap, between an instant on each side of it."""
    low, high = before, after
    offset = high.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if middle.astimezone(zone).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return high


def _note(schedule: Schedule, local: datetime) -> str | None:
    """Say what a clock change did to an instant."""
    zone = zone_of(schedule.zone)
    naive = local.replace(tzinfo=None, fold=0)
    both = {naive.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    if len(both) > 1:
        which = "second" if local.astimezone(UTC) == max(both) else "first"
        return f"{which} of two: the clock is put back"
    calendar = schedule.calendar
    if not isinstance(calendar, Cron) or _is_wild(calendar.pattern):
        return None
    if next(_walk(calendar.pattern, naive - timedelta(seconds=1)), None) == naive:
        return None
    return "moved: its local time is left out by a clock change"


def _datetime(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def _instant(moment: datetime) -> int:
    return (moment - _EPOCH) // _US
