"""The clock of a zone as stretches of time in which its offset stays the same.

Theory. Inside a stretch local time runs as real time does, so a pattern is walked there
without a thought to any change of clocks. All that a change does is at the two ends of
a stretch, and follows from the offsets on both sides.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

__all__ = ["EPOCH", "US", "Stretch", "stretch_of", "zone_of"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
US: Final = timedelta(microseconds=1)
_SECOND_US: Final = 1_000_000
_MARGIN_US: Final = 3 * 86_400 * _SECOND_US
"""What a year's stretches reach beyond it: more than any change moves a clock, a day."""
_PROBE_US: Final = 6 * 3_600 * _SECOND_US
"""No zone has changed its offset and taken that back within so short a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A time of one offset, in µs: from `start_at` up to and without `end_at`.

    `before_us` and `after_us` are the offsets of the stretches on both sides.
    """

    start_at: int
    end_at: int
    offset_us: int
    before_us: int
    after_us: int


@lru_cache(maxsize=4096)
def zone_of(name: str) -> ZoneInfo:
    """Return a zone's rules: a small file, read once. Raises as `ZoneInfo` does."""
    return ZoneInfo(name)


def stretch_of(name: str, at: int) -> Stretch:
    """Return the stretch of a zone that an instant (µs) lies in.

    It ends early where the tz database was not asked further: both its sides then have
    its own offset. Raises as `ZoneInfo` does, and OverflowError outside of the years
    that a datetime knows.
    """
    starts, stretches = _stretches(name, (EPOCH + at * US).year)
    return stretches[bisect_right(starts, at) - 1]


@lru_cache(maxsize=4096)
def _stretches(name: str, year: int) -> tuple[list[int], list[Stretch]]:
    """Return a year's stretches and their starts, with a margin on both sides."""
    zone = zone_of(name)
    first, last = (
        (datetime(each, 1, 1, tzinfo=UTC) - EPOCH) // US for each in (year, year + 1)
    )
    low, high = first - _MARGIN_US, last + _MARGIN_US
    ends = [low, *_changes(zone, low, high), high]
    offsets = [_offset(zone, start) for start in ends[:-1]]
    around = [offsets[0], *offsets, offsets[-1]]
    stretches = [
        Stretch(
            start_at=start,
            end_at=end,
            offset_us=around[at + 1],
            before_us=around[at],
            after_us=around[at + 2],
        )
        for at, (start, end) in enumerate(pairwise(ends))
    ]
    return ends[:-1], stretches


def _changes(zone: ZoneInfo, low: int, high: int) -> list[int]:
    """Return the first instant of each new offset after `low`, up to `high`."""
    found: list[int] = []
    at, offset = low, _offset(zone, low)
    while at < high:
        following = min(at + _PROBE_US, high)
        new = _offset(zone, following)
        if new != offset:
            found.append(_bisect(zone, at, following))
        at, offset = following, new
    return found


def _bisect(zone: ZoneInfo, old: int, new: int) -> int:
    """Return the second in which the offset changes; both ends are whole seconds."""
    offset = _offset(zone, new)
    while new - old > _SECOND_US:
        middle = old + (new - old) // (2 * _SECOND_US) * _SECOND_US
        if _offset(zone, middle) == offset:
            new = middle
        else:
            old = middle
    return new


def _offset(zone: ZoneInfo, at: int) -> int:
    offset = (EPOCH + at * US).astimezone(zone).utcoffset()
    assert offset is not None, "a zone of the tz database has an offset at all times"
    return offset // US
