"""Zones as stretches of one offset, against the tz database asked hour by hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest

from tenure.schedules.calendar.zones import EPOCH, US, stretch_of, zone_of

HOUR_US = 3_600_000_000


def us(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // US


def test_a_stretch_ends_where_the_clock_changes():
    winter = stretch_of("Europe/Rome", us("2026-12-20T00:00Z"))
    assert winter.offset_us == HOUR_US
    spring = stretch_of("Europe/Rome", us("2027-03-28T01:00Z"))
    assert spring.start_at == us("2027-03-28T01:00Z")
    assert spring.end_at == us("2027-10-31T01:00Z")
    assert (spring.before_us, spring.offset_us, spring.after_us) == (
        HOUR_US,
        2 * HOUR_US,
        HOUR_US,
    )


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Pacific/Apia", "2011-12-30T10:00Z"),  # a day is left out
        ("Pacific/Kiritimati", "1994-12-31T10:00Z"),  # so it is, as the year ends
        ("Asia/Pyongyang", "2018-05-04T15:00Z"),
        ("Australia/Lord_Howe", "2027-04-03T15:00Z"),
    ],
)
def test_both_sides_of_a_change_know_of_it(zone: str, change: str):
    at = us(change)
    before, after = stretch_of(zone, at - 1), stretch_of(zone, at)
    assert before.end_at == after.start_at == at
    assert before.after_us == after.offset_us != before.offset_us == after.before_us


def test_the_last_and_first_days_of_years_know_their_neighbours():
    change = us("1994-12-31T10:00Z")
    later = stretch_of("Pacific/Kiritimati", us("1995-01-01T00:00Z"))
    assert later.start_at == change
    assert later.before_us != later.offset_us


@pytest.mark.parametrize(
    "zone", ["UTC", "Africa/Casablanca", "Antarctica/Troll", "America/Nuuk"]
)
def test_stretches_hold_the_offset_of_every_hour(zone: str):
    rules, at = ZoneInfo(zone), datetime(2023, 12, 1, tzinfo=UTC)
    while at.year < 2026:
        instant = (at - EPOCH) // US
        found = stretch_of(zone, instant)
        assert found.start_at <= instant < found.end_at
        offset = at.astimezone(rules).utcoffset()
        assert offset is not None
        assert found.offset_us == offset // US
        at += timedelta(hours=1)


def test_an_unknown_zone_is_said_to_be_so():
    with pytest.raises(ZoneInfoNotFoundError):
        zone_of("Europe/Atlantis")
