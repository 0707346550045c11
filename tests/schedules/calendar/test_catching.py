"""What fires when a job is looked at late."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.schedules.calendar.catching import (
    CATCH_UP_MAX,
    COUNTED_MAX,
    ON_TIME_US,
    Firing,
    Passed,
    due,
)
from tenure.schedules.calendar.parsing import parse_schedule
from tenure.schedules.calendar.stepping import between, next_after
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


@pytest.mark.parametrize("rule", ["latest", "none"])
def test_a_month_of_a_pattern_of_seconds_counts_at_least_and_ends_at_the_newest(
    rule: str,
):
    schedule = parse_schedule(cron="* * * * * *", catch_up=rule)
    newest = START + 30 * DAY
    assert due(schedule, START, newest + 500_000, limit=10) == Firing(
        fire=(newest,),
        skipped=Passed(
            first_at=START,
            last_at=newest - 1_000_000,
            count=COUNTED_MAX + 1,
            at_least=True,
        ),
        next_at=newest + 1_000_000,
    )


def test_the_newest_is_found_where_a_dense_month_is_long_over():
    schedule = parse_schedule(cron="* * * 1 *")
    january = us("2026-01-01T00:00:00+00:00")
    found = due(schedule, january, START, limit=10)
    assert found.fire == ()
    assert found.skipped is not None
    assert found.skipped.last_at == us("2026-01-31T23:59:00+00:00")
    assert found.next_at == us("2027-01-01T00:00:00+00:00")


@pytest.mark.parametrize(
    ("said", "step"),
    [
        ({"every": "1s"}, 1_000_000),
        ({"cron": "* * * * * *"}, 1_000_000),
        ({"cron": "* * * * *"}, MINUTE),
    ],
)
def test_all_fires_the_newest_thousand_and_skips_what_is_older(
    said: dict[str, Any], step: int
):
    schedule = parse_schedule(**said, catch_up="all")
    now, at = START + 30 * DAY, START
    fired, skipped = list[int](), list[Passed]()
    while at <= now:
        found = due(schedule, at, now, limit=300)
        assert 0 < len(found.fire) <= 300
        fired += found.fire
        skipped += [] if found.skipped is None else [found.skipped]
        assert found.next_at is not None
        at = found.next_at
    assert fired == [now - n * step for n in reversed(range(CATCH_UP_MAX))]
    assert [(each.first_at, each.last_at) for each in skipped] == [
        (START, fired[0] - step)
    ]


def test_a_count_is_exact_up_to_its_bound_and_beyond_it_where_all_keeps_the_rest():
    schedule = parse_schedule(cron="* * * * *", catch_up="all")
    for missed in (COUNTED_MAX, COUNTED_MAX + 1, COUNTED_MAX + 900):
        now = START + (missed - 1) * MINUTE
        found = due(schedule, START, now, limit=CATCH_UP_MAX)
        assert found.skipped is not None
        assert found.skipped.count == missed - CATCH_UP_MAX
        assert not found.skipped.at_least
        assert found.fire[-1] == now


def test_one_window_of_its_kind_is_fired_or_skipped_by_its_age():
    at = datetime.fromisoformat("2026-12-01T00:00:00+00:00")
    once = parse_schedule(at=at, catch_up="none")
    assert due(once, START, START + ON_TIME_US, limit=1).fire == (START,)
    late = due(once, START, START + ON_TIME_US + 1, limit=1)
    assert late == Firing(
        fire=(),
        skipped=Passed(first_at=START, last_at=START, count=1),
        next_at=None,
    )


@given(
    rule=st.sampled_from(["none", "latest", "all"]),
    cron=st.sampled_from(["*/7 * * * *", "0 3 * * *", "0,1 */5 * * *"]),
    late=st.integers(0, 3 * DAY),
    limit=st.integers(1, 50),
)
def test_every_window_is_fired_or_skipped_and_none_is_both(
    rule: str, cron: str, late: int, limit: int
):
    schedule = parse_schedule(cron=cron, catch_up=rule)
    first = next_after(schedule, START)
    assert first is not None
    now, at = first + late, first
    seen = list[int]()
    while at <= now:
        found = due(schedule, at, now, limit=limit)
        if (gap := found.skipped) is not None:
            inside = between(schedule, gap.first_at - 1, gap.last_at, 10_000)
            assert len(inside) == gap.count
            seen += inside
        seen += found.fire
        assert found.next_at is not None
        at = found.next_at
    assert seen == between(schedule, START, now, 10_000)


def test_what_is_not_due_does_nothing():
    schedule = parse_schedule(every="1h")
    assert due(schedule, START + 1, START, limit=1) == Firing(
        fire=(), skipped=None, next_at=START + 1
    )
