"""Which windows are minted when a job is due, and which were missed.

A window that is looked at soon enough is on time and fires under every rule. What is
older was missed: nobody ticked, or the job was paused.
"""

from __future__ import annotations

from typing import Final, assert_never

import msgspec

from tenure.schedules.calendar.model import CatchUp, Interval, Schedule
from tenure.schedules.calendar.stepping import between, next_after

__all__ = ["ON_TIME_US", "Firing", "Passed", "due"]

ON_TIME_US: Final = 60_000_000
"""A tick may come so late, for a busy database or a failover, and is still on time."""
COUNTED_MAX: Final = 100_000
"""Missed instants of a pattern that are counted one by one; more are "at least"."""


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """A range of instants that are skipped; both ends are among them."""

    first_at: int
    last_at: int
    count: int


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """What a due job does: windows to fire, a range to skip, and what comes next."""

    fire: tuple[int, ...]
    skipped: Passed | None
    next_at: int | None


def due(schedule: Schedule, nominal_at: int, now_at: int, *, limit: int) -> Firing:
    """Decide about the windows from `nominal_at` up to now, both included.

    `limit` bounds what fires at once under `all`: `next_at` lies in the past then, so
    that the caller goes on. Only the newest window can be on time.
    """
    assert limit > 0, "nothing could ever fire"
    if nominal_at > now_at:
        return Firing(fire=(), skipped=None, next_at=nominal_at)
    if schedule.catch_up is CatchUp.ALL:
        return _all(schedule, nominal_at, now_at, limit)
    newest, before, count = _newest(schedule, nominal_at, now_at)
    following = next_after(schedule, now_at)
    late = now_at - newest
    match schedule.catch_up:
        case CatchUp.NONE:
            fires = late <= ON_TIME_US
        case CatchUp.LATEST:
            fires = late <= max(ON_TIME_US, schedule.catch_up_max_age_us)
        case never:
            assert_never(never)
    last = before if fires else newest
    missed = count - 1 if fires else count
    skipped = None
    if missed and last is not None:
        skipped = Passed(first_at=nominal_at, last_at=last, count=missed)
    return Firing(fire=(newest,) if fires else (), skipped=skipped, next_at=following)


def _all(schedule: Schedule, nominal_at: int, now_at: int, limit: int) -> Firing:
    found = [nominal_at, *between(schedule, nominal_at, now_at, limit)]
    return Firing(
        fire=tuple(found[:limit]),
        skipped=None,
        next_at=found[limit] if len(found) > limit else next_after(schedule, found[-1]),
    )


def _newest(
    schedule: Schedule, nominal_at: int, now_at: int
) -> tuple[int, int | None, int]:
    """Return the newest instant up to now, the one before it, and how many there are."""
    calendar = schedule.calendar
    if isinstance(calendar, Interval):
        count = (now_at - nominal_at) // calendar.every_us + 1
        newest = nominal_at + (count - 1) * calendar.every_us
        return newest, newest - calendar.every_us if count > 1 else None, count
    before, newest, count = None, nominal_at, 1
    while (
        following := next_after(schedule, newest)
    ) is not None and following <= now_at:
        before, newest, count = newest, following, count + 1
        if count >= COUNTED_MAX:
            return _skip_ahead(schedule, newest, now_at, count)
    return newest, before, count


def _skip_ahead(
    schedule: Schedule, seen: int, now_at: int, count: int
) -> tuple[int, int | None, int]:
    """Find the newest instants without counting those between; `count` is at least."""
    step = ON_TIME_US
    while True:
        found = between(schedule, max(seen, now_at - step), now_at, COUNTED_MAX)
        if len(found) > 1 or now_at - step <= seen:
            break
        step *= 4
    if not found:
        return seen, None, count
    before = found[-2] if len(found) > 1 else seen
    return found[-1], before, count + len(found)
