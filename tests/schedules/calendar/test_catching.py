"""What fires when a job is looked at late."""

from __future__ import annotations

import pytest

from tenure.schedules.calendar.catching import Firing, Passed, due
from tenure.schedules.calendar.parsing import parse_schedule
from tests.schedules.calendar.test_stepping import us

MINUTE = 60_000_000
DAY = 1_440 * MINUTE
START = us("2026-12-01T00:00:00+00:00")


def test_what_is_on_time_fires_under_every_rule():
    for rule in ("none", "latest", "all"):
        schedule = parse_schedule(cron="* * * * *", catch_up=rule)
        assert due(schedule, START, START + 5_000_000, limit=10) == Firing(
            fire=(START,), skipped=None, next_at=START + MINUTE
        )


def test_case_63_three_days_of_minutes_are_one_run_and_one_row():
    schedule = parse_schedule(cron="* * * * *")
    now = START + 3 * DAY + 30_000_000
    assert due(schedule, START, now, limit=100) == Firing(
        fire=(START + 3 * DAY,),
        skipped=Passed(first_at=START, last_at=START + 3 * DAY - MINUTE, count=4320),
        next_at=START + 3 * DAY + MINUTE,
    )


@pytest.mark.parametrize(
    ("rule", "fired", "skipped"), [("none", 0, 3), ("latest", 1, 2), ("all", 3, 0)]
)
def test_three_missed_days_follow_the_rule(rule: str, fired: int, skipped: int):
    schedule = parse_schedule(cron="@daily", catch_up=rule)
    found = due(schedule, START, START + 2 * DAY + DAY // 2, limit=100)
    assert len(found.fire) == fired
    assert (0 if found.skipped is None else found.skipped.count) == skipped
    assert found.next_at == START + 3 * DAY


def test_the_latest_is_too_old_past_its_age():
    schedule = parse_schedule(cron="0 0 1 * *", catch_up_max_age="1d")
    found = due(schedule, START, START + 2 * DAY, limit=100)
    assert found.fire == ()
    assert found.skipped == Passed(first_at=START, last_at=START, count=1)
    older = parse_schedule(cron="0 0 1 * *", catch_up_max_age="3d")
    assert due(older, START, START + 2 * DAY, limit=100).fire == (START,)


def test_all_is_paced_and_goes_on_where_it_was():
    schedule = parse_schedule(every="1m", catch_up="all")
    now, at, fired = START + 250 * MINUTE, START, list[int]()
    for _ in range(3):
        found = due(schedule, at, now, limit=100)
        fired += found.fire
        assert found.next_at is not None
        at = found.next_at
    assert fired == [START + n * MINUTE for n in range(251)]
    assert at == START + 251 * MINUTE


def test_a_year_of_seconds_is_counted_without_walking():
    schedule = parse_schedule(every="1s")
    found = due(schedule, START, START + 365 * DAY, limit=10)
    assert found.skipped is not None
    assert found.skipped.count == 365 * 86_400
    assert found.fire == (START + 365 * DAY,)


def test_a_year_of_a_pattern_of_seconds_counts_at_least_and_fires_the_newest():
    schedule = parse_schedule(cron="* * * * * *")
    found = due(schedule, START, START + 30 * DAY, limit=10)
    assert found.fire == (START + 30 * DAY,)
    assert found.skipped is not None
    assert found.skipped.count >= 100_000
    assert found.skipped.last_at == START + 30 * DAY - 1_000_000


def test_what_is_not_due_does_nothing():
    schedule = parse_schedule(every="1h")
    assert due(schedule, START + 1, START, limit=1) == Firing(
        fire=(), skipped=None, next_at=START + 1
    )
