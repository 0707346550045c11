"""What a lane allows: how many rows may start, and when.

Limits are exact over the fleet because they are computed from live claims under the
lane's lock, never from a counter that a crash could leave wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The fleet limits of one lane as stored; None = no such limit.

    `tat` is the theoretical arrival time of the rate limit (GCRA): the instant from
    which the next start conforms.
    """

    concurrency: int | None = None
    rate_per_second: int | None = None
    tat: int | None = None
    half_open: bool = False

    @property
    def any(self) -> bool:
        """Whether the lane must be locked before its rows are taken."""
        return (
            self.concurrency is not None
            or self.rate_per_second is not None
            or self.half_open
        )


def room(limits: Limits, live: int, now: int, ahead_us: int) -> int | None:
    """Return how many more rows may be claimed, None for no limit.

    `live` counts the lane's claimed rows in the snapshot taken under its lock. A rate
    lets a row be claimed whose start is at most `ahead_us` from now; a rate of zero
    lets none.
    """
    allowed: int | None = None
    if limits.half_open:
        allowed = max(0, 1 - live)
    if limits.concurrency is not None:
        free = max(0, limits.concurrency - live)
        allowed = free if allowed is None else min(allowed, free)
    if limits.rate_per_second is not None:
        first = max(now, limits.tat or 0)
        by_rate = 0
        if limits.rate_per_second > 0 and first <= now + ahead_us:
            by_rate = 1 + (now + ahead_us - first) // interval(limits.rate_per_second)
        allowed = by_rate if allowed is None else min(allowed, by_rate)
    return allowed


def starts(limits: Limits, count: int, now: int) -> tuple[list[int], int | None]:
    """Return the start instants of `count` rows and the lane's next `tat`.

    Rates are kept by even spacing: two starts of one lane are never closer than
    `1 / rate`, over the whole fleet.
    """
    if limits.rate_per_second is None:
        return [now] * count, limits.tat
    if not count:
        return [], limits.tat
    step = interval(limits.rate_per_second)
    first = max(now, limits.tat or 0)
    return [first + i * step for i in range(count)], first + count * step


def interval(rate_per_second: int) -> int:
    """Return the µs between two starts, rounded up: a rate is never exceeded."""
    return -(-SECOND_US // rate_per_second)


def group_of(lane: int, bits: int) -> int:
    """Return the fair-share group that a lane id carries."""
    return lane >> bits
