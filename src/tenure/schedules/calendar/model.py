"""A schedule as a value: its calendar, its zone, and what odd hours and delays mean.

It is stored as JSON and read by every node, so its encoding is canonical: the same
schedule is the same text.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, TypeAlias

import msgspec

__all__ = [
    "DAY_US",
    "Calendar",
    "CatchUp",
    "Cron",
    "Fold",
    "Gap",
    "Instants",
    "Interval",
    "Once",
    "Schedule",
    "decode",
    "encode",
]

DAY_US: Final = 86_400_000_000  # 24 hours, which not every local day has


class Gap(StrEnum):
    """What becomes of a local time that a clock change leaves out."""

    SHIFT = "shift"
    SKIP = "skip"
    RUN_AT_RESUME = "run-at-resume"


class Fold(StrEnum):
    """Which of two equal local times counts when the clock is put back."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class CatchUp(StrEnum):
    """What is done about windows that passed while nobody ticked."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


class Cron(msgspec.Struct, frozen=True, kw_only=True, tag="cron"):
    """A pattern of five fields, or six with seconds first, in capitals."""

    pattern: str


class Interval(msgspec.Struct, frozen=True, kw_only=True, tag="interval"):
    """Every `every_us` from the anchor on, before it too: the phase never moves."""

    every_us: Annotated[int, msgspec.Meta(gt=0)]
    anchor_at: int = 0


class Once(msgspec.Struct, frozen=True, kw_only=True, tag="once"):
    """One instant, µs since the epoch."""

    at: int


class Instants(msgspec.Struct, frozen=True, kw_only=True, tag="instants"):
    """A list of instants in their order, µs since the epoch."""

    instants: tuple[int, ...]


Calendar: TypeAlias = Cron | Interval | Once | Instants


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a job fires. Durations in µs; `zone` is a name of the tz database."""

    calendar: Calendar
    zone: str = "UTC"
    gap: Gap = Gap.SHIFT
    overlap_hour: Fold = Fold.FIRST
    jitter_us: Annotated[int, msgspec.Meta(ge=0)] = 0
    catch_up: CatchUp = CatchUp.LATEST
    catch_up_max_age_us: int = DAY_US


def encode(schedule: Schedule) -> str:
    """Return the schedule as JSON, always the same text."""
    return msgspec.json.encode(schedule, order="deterministic").decode()


def decode(text: str) -> Schedule:
    """Return what `encode` wrote. Raises ValueError for anything else."""
    try:
        return msgspec.json.decode(text, type=Schedule)
    except msgspec.MsgspecError as error:
        raise ValueError(f"a schedule that cannot be read: {error}") from None
