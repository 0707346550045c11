"""Which windows are minted when a job is due, and which were missed.

A window that is looked at soon enough is on time and fires under every rule. What is
older was missed: nobody ticked, or the job was paused.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, assert_never

import msgspec

from tenure.schedules.calendar.model import CatchUp, Interval, Schedule
from tenure.schedules.calendar.stepping import between, next_after

__all__ = ["CATCH_UP_MAX", "COUNTED_MAX", "ON_TIME_US", "Firing", "Passed", "due"]

ON_TIME_US: Final = 60_000_000
"""A tick may come so late, for a busy database or a failover, and is still on time."""
CATCH_UP_MAX: Final = 1_000
"""Missed windows of a job that fire under `all`, the newest: more would be a flood."""
COUNTED_MAX: Final = 20_000
"""Missed instants of a pattern that are counted one by one: a fortnight of minutes, a
quarter of a second of work inside of a tick."""
_CLOSE_US: Final = 1_000_000
"""No two instants of a pattern are closer. Those of a list may be, which is short."""


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """A range of instants that are skipped; both ends are among them.

    With `at_least` there are more than `count`: too many to be counted.
    """

    first_at: int
    last_at: int
    count: int
    at_least: bool = False


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """What a due job does: windows to fire, a range to skip, and what comes next."""

    fire: tuple[int, ...]
    skipped: Passed | None
    next_at: int | None


def due(schedule: Schedule, nominal_at: int, now_at: int, *, limit: int) -> Firing:
    """Decide about the windows from `nominal_at` up to now, both included.

    Under `all` the newest 1,000 fire, the oldest of them first, and `limit` bounds what
    fires at once: `next_at` lies in the past then, so that the caller goes on. Under
    the other rules the newest alone may fire: it is on time, or recent enough.
    """
    assert limit > 0, "nothing could ever fire"
    if nominal_at > now_at:
        return Firing(fire=(), skipped=None, next_at=nominal_at)
    kept_max = CATCH_UP_MAX if schedule.catch_up is CatchUp.ALL else 1
    kept, passed = _split(schedule, nominal_at, now_at, kept_max)
    late = now_at - kept[-1]
    match schedule.catch_up:
        case CatchUp.ALL:
            fires = True
        case CatchUp.NONE:
            fires = late <= ON_TIME_US
        case CatchUp.LATEST:
            fires = late <= max(ON_TIME_US, schedule.catch_up_max_age_us)
        case never:
            assert_never(never)
    if not fires:
        return Firing(
            fire=(),
            skipped=_with_newest(passed, kept[-1]),
            next_at=next_after(schedule, now_at),
        )
    return Firing(
        fire=tuple(kept[:limit]),
        skipped=passed,
        next_at=kept[limit] if len(kept) > limit else next_after(schedule, now_at),
    )


def _with_newest(passed: Passed | None, newest: int) -> Passed:
    if passed is None:
        return Passed(first_at=newest, last_at=newest, count=1)
    return msgspec.structs.replace(passed, last_at=newest, count=passed.count + 1)


def _split(
    schedule: Schedule, nominal_at: int, now_at: int, kept_max: int
) -> tuple[list[int], Passed | None]:
    """Return the newest instants up to now, in their order, and the range before them.

    `nominal_at` is one of the instants, so there is at least one.
    """
    if isinstance(schedule.calendar, Interval):
        every = schedule.calendar.every_us
        count = (now_at - nominal_at) // every + 1
        passed = max(0, count - kept_max)
        kept = [nominal_at + n * every for n in range(passed, count)]
        return kept, _range(nominal_at, kept[0] - every, passed)
    found = [nominal_at, *between(schedule, nominal_at, now_at, COUNTED_MAX)]
    if len(found) <= COUNTED_MAX:
        passed = max(0, len(found) - kept_max)
        return found[passed:], _range(nominal_at, found[passed - 1], passed)
    last, *kept = _newest(schedule, nominal_at, now_at, kept_max + 1)
    return kept, Passed(
        first_at=nominal_at,
        last_at=last,
        count=bisect_right(found, last),
        at_least=last > found[-1],
    )


def _newest(schedule: Schedule, low: int, now_at: int, count: int) -> list[int]:
    """Return the newest instants up to now, of a pattern that has more since `low`."""
    low, high = low - 1, now_at
    while high - low > _CLOSE_US:
        middle = (low + high) // 2
        if len(between(schedule, middle, now_at, count)) == count:
            low = middle
        else:
            high = middle
    return between(schedule, low, now_at, count)


def _range(first: int, last: int, count: int) -> Passed | None:
    return Passed(first_at=first, last_at=last, count=count) if count else None
