"""Schedules as people write them: understood, or refused with the reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.schedules.calendar.model import (
    Cron,
    Interval,
    Once,
)
from tenure.schedules.calendar.parsing import parse_duration, parse_schedule

NOW = 1_796_000_000_000_000


@pytest.mark.parametrize(
    ("given", "calendar"),
    [
        ({"cron": "*/5  * * * mon-fri"}, Cron(pattern="*/5 * * * MON-FRI")),
        ({"cron": "30 0 0 * * *"}, Cron(pattern="30 0 0 * * *")),
        ({"cron": "@Daily"}, Cron(pattern="0 0 * * *")),
        ({"cron": "0 0 lw * fri#2"}, Cron(pattern="0 0 LW * FRI#2")),
        ({"cron": "0 0 L * 5l"}, Cron(pattern="0 0 L * 5L")),
        ({"every": "1h30m"}, Interval(every_us=5_400_000_000)),
        ({"every": timedelta(seconds=2)}, Interval(every_us=2_000_000)),
        ({"every": 0.5}, Interval(every_us=500_000)),
        ({"at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}, Once(at=1_000_000)),
        ({"at": "1970-01-01T01:00:01+01:00"}, Once(at=1_000_000)),
    ],
)
def test_what_is_written_is_understood(given: Any, calendar: object):
    assert parse_schedule(**given).calendar == calendar


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "give one of cron, every, at and instants, not none"),
        ({"cron": "* * * * *", "every": 1}, "not cron and every"),
        ({"cron": "* * * *"}, "has 4 fields"),
        ({"cron": "61 * * * *"}, "'61' is no minute"),
        ({"cron": "* * * * MOO"}, "'MOO' is no dow"),
        ({"cron": "@reboot"}, "says nothing about time"),
        ({"cron": "@fortnightly"}, "known are @annually"),
        ({"every": 0}, "every is 0: give more than nothing"),
        ({"every": -5}, "more than nothing"),
        ({"every": "soon"}, "write 90s, 15m"),
        ({"every": float("nan")}, "give a number"),
        ({"every": "300000d"}, "at most 200 years"),
        ({"at": datetime(2020, 1, 1, tzinfo=UTC), "now_at": NOW}, "which has passed"),
        ({"at": datetime(2030, 1, 1)}, "without a zone"),  # noqa: DTZ001 - the fault
        ({"at": "tomorrow"}, "write 2027-01-31"),
        ({"instants": []}, "0 of them"),
        ({"cron": "@daily", "zone": "Europe/Atlantis"}, "not in the tz database"),
        ({"cron": "@daily", "zone": "../etc/passwd"}, "not in the tz database"),
        ({"cron": "@daily", "zone": "localtime"}, "not in the tz database"),
        ({"cron": "@daily", "gap": "jump"}, "gap is 'jump': give one of shift"),
        ({"cron": "@daily", "catch_up": "some"}, "give one of none, latest, all"),
        ({"every": "1m", "jitter": "1m"}, "as long as the interval"),
        ({"cron": "*/5 * * * *", "jitter": "5m"}, "only 300 s apart"),
        ({"cron": "0 9,17 * * *", "jitter": "10h"}, "only 28800 s apart"),
        (
            {"instants": ["2027-01-01T00:00Z", "2027-01-01T01:00Z"], "jitter": "2h"},
            "only 3600 s apart",
        ),
        ({"every": "1m", "jitter": -1}, "jitter is -1"),
        ({"cron": "0 0 15W * *"}, "'15W' is no day"),
        ({"cron": "0 0 ? * *"}, "[?]' is no day"),
        ({"cron": "1," * 300 + "1 * * * *"}, "601|write at most 500"),
        ({"every": "1d", "anchor": datetime(2030, 1, 1)}, "without a zone"),  # noqa: DTZ001 - the fault
        ({"cron": "@daily", "anchor": "2027-01-01T00:00Z"}, "give every too"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(given: Any, why: str):
    with pytest.raises(ValueError, match=why):
        parse_schedule(**given)


def test_a_pattern_that_never_comes_is_no_error():
    assert parse_schedule(cron="0 0 30 2 *").calendar == Cron(pattern="0 0 30 2 *")


def test_jitter_of_what_fires_once_or_never_is_as_long_as_it_likes():
    assert parse_schedule(at="2030-01-01T00:00Z", jitter="3d").jitter_us > 0
    assert parse_schedule(cron="0 0 30 2 *", jitter="3d").jitter_us > 0


def test_durations_add_up_and_nothing_may_be_allowed():
    assert parse_duration("1d 2h 3m 4s 5ms") == 93_784_005_000
    assert parse_duration(0, zero=True) == 0
