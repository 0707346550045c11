"""Steps through schedules, and what the changes of clocks do to them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest

from tenure.schedules.calendar import stepping
from tenure.schedules.calendar.model import Schedule
from tenure.schedules.calendar.parsing import parse_schedule
from tenure.schedules.calendar.stepping import (
    between,
    due_at,
    next_after,
    shortest_period,
    upcoming,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY_US = 86_400_000_000


def us(text: str | datetime) -> int:
    moment = datetime.fromisoformat(text) if isinstance(text, str) else text
    return (moment - EPOCH) // timedelta(microseconds=1)


def moment(at: int) -> datetime:
    return EPOCH + timedelta(microseconds=at)


def fires(schedule: Schedule, since: datetime, until: datetime) -> list[datetime]:
    found = between(schedule, us(since), us(until), 100_000)
    return [moment(at) for at in found]


ROME = "Europe/Rome"
SPRING = (
    datetime.fromisoformat("2027-03-27T12:00Z"),
    datetime.fromisoformat("2027-03-29T12:00Z"),
)
AUTUMN = (
    datetime.fromisoformat("2027-10-30T12:00Z"),
    datetime.fromisoformat("2027-11-01T12:00Z"),
)


@pytest.mark.parametrize(
    ("gap", "hours"),
    [
        ("shift", ["03-28T03:30", "03-29T02:30"]),
        ("skip", ["03-29T02:30"]),
        ("run-at-resume", ["03-28T03:00", "03-29T02:30"]),
    ],
)
def test_a_local_time_that_is_left_out_follows_its_rule(gap: str, hours: list[str]):
    schedule = parse_schedule(cron="30 2 * * *", zone=ROME, gap=gap)
    local = [f.astimezone(ZoneInfo(ROME)) for f in fires(schedule, *SPRING)]
    assert [f"{each:%m-%dT%H:%M}" for each in local] == hours


@pytest.mark.parametrize(
    ("overlap", "instants"),
    [
        ("first", ["10-31T00:30", "11-01T01:30"]),
        ("second", ["10-31T01:30", "11-01T01:30"]),
        ("both", ["10-31T00:30", "10-31T01:30", "11-01T01:30"]),
    ],
)
def test_a_local_time_that_comes_twice_follows_its_rule(
    overlap: str, instants: list[str]
):
    schedule = parse_schedule(cron="30 2 * * *", zone=ROME, overlap_hour=overlap)
    assert [f"{f:%m-%dT%H:%M}" for f in fires(schedule, *AUTUMN)] == instants


def test_two_local_times_that_mean_one_instant_fire_once():
    schedule = parse_schedule(cron="30 2,3 * * *", zone=ROME)
    found = fires(schedule, *SPRING)
    assert [f"{f:%m-%dT%H:%M}" for f in found] == [
        "03-28T01:30",
        "03-29T00:30",
        "03-29T01:30",
    ]


@pytest.mark.parametrize("window", [SPRING, AUTUMN])
@pytest.mark.parametrize(
    ("cron", "step"), [("0 * * * *", 60), ("*/15 * * * *", 15), ("20 */1 * * *", 60)]
)
def test_case_55_wild_hours_follow_real_time(
    window: tuple[datetime, datetime], cron: str, step: int
):
    found = fires(parse_schedule(cron=cron, zone=ROME), *window)
    assert {b - a for a, b in pairwise(found)} == {timedelta(minutes=step)}


def test_case_53_a_far_instant_and_a_long_interval_fire_then_and_not_now():
    now = us("2026-12-01T00:00Z")
    once = parse_schedule(at=moment(now) + timedelta(days=40), now_at=now)
    assert next_after(once, now) == now + 40 * DAY_US
    assert next_after(once, now + 40 * DAY_US) is None
    monthly = parse_schedule(every="30d")
    first = next_after(monthly, now)
    assert first is not None
    assert now < first <= now + 30 * DAY_US
    assert next_after(monthly, first) == first + 30 * DAY_US
    assert next_after(monthly, first - 1) == first


def test_case_54_a_day_that_never_comes_is_never():
    assert next_after(parse_schedule(cron="0 0 30 2 *"), 0) is None
    leap = next_after(parse_schedule(cron="0 0 29 2 *"), us("2026-12-01T00:00Z"))
    assert leap == us("2028-02-29T00:00Z")


def test_an_interval_keeps_its_phase_from_its_anchor():
    anchor = datetime.fromisoformat("2026-01-01T00:07Z")
    schedule = parse_schedule(every="1h", anchor=anchor)
    assert next_after(schedule, us("2026-12-01T10:00Z")) == us("2026-12-01T10:07Z")
    assert next_after(schedule, us("1969-12-31T23:30Z")) == us("1970-01-01T00:07Z")


def test_a_list_fires_each_of_its_instants():
    listed = [datetime.fromisoformat(f"2027-0{n}-01T00:00Z") for n in (3, 1, 2, 1)]
    schedule = parse_schedule(instants=listed)
    found = fires(schedule, EPOCH, listed[0])
    assert [f.month for f in found] == [1, 2, 3]


def test_a_preview_says_what_a_change_of_clocks_does():
    schedule = parse_schedule(cron="30 2 * * *", zone=ROME, overlap_hour="both")
    notes = {
        each.local[:10]: each.note for each in upcoming(schedule, us(SPRING[0]), 2)
    }
    assert (
        notes["2027-03-28"]
        == "moved from 02:30: its local time is left out by a clock change"
    )
    assert notes["2027-03-29"] is None
    twice = [each.note for each in upcoming(schedule, us(AUTUMN[0]), 3)]
    assert twice == [
        "first of two: the clock is put back",
        "second of two: the clock is put back",
        None,
    ]


def test_jitter_moves_what_is_due_and_is_the_same_on_every_node():
    schedule = parse_schedule(cron="0 0 * * *", jitter="1h")
    nominal = us("2027-01-01T00:00Z")
    moved = [due_at(schedule, nominal, f"job_{n}") - nominal for n in range(200)]
    assert moved == [
        due_at(schedule, nominal, f"job_{n}") - nominal for n in range(200)
    ]
    assert 0 <= min(moved) < 300_000_000
    assert 3_300_000_000 < max(moved) < 3_600_000_000


def test_what_is_moved_onto_a_time_of_its_own_is_not_said_to_be_moved():
    schedule = parse_schedule(cron="30 2,3 * * *", zone=ROME)
    assert [each.note for each in upcoming(schedule, us(SPRING[0]), 2)] == [None, None]
    london = parse_schedule(cron="30 1 * * *", zone="Europe/London")
    said = upcoming(london, us(SPRING[0]), 1)[0]
    assert said.local == "2027-03-28T02:30:00+01:00"
    assert said.note == "moved from 01:30: its local time is left out by a clock change"


@pytest.mark.parametrize(
    ("zone", "cron", "since", "local"),
    [
        ("America/Sao_Paulo", "0 0 * * *", "2018-11-03T12:00Z", "2018-11-04T01:00"),
        ("Africa/Cairo", "30 0 * * *", "2026-04-23T12:00Z", "2026-04-24T01:30"),
        ("Asia/Beirut", "0 0 * * *", "2026-03-28T12:00Z", "2026-03-29T01:00"),
        ("Atlantic/Azores", "30 0 * * *", "2026-03-28T12:00Z", "2026-03-29T01:30"),
        ("America/Nuuk", "30 23 * * *", "2026-03-28T12:00Z", "2026-03-28T22:30"),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00Z", "2026-10-04T02:45"),
        ("Africa/Casablanca", "30 2 * * *", "2026-03-21T12:00Z", "2026-03-22T03:30"),
        ("Pacific/Apia", "30 2 * * *", "2011-12-30T00:00Z", "2011-12-31T02:30"),
    ],
)
def test_odd_changes_keep_one_run_of_each_local_day(
    zone: str, cron: str, since: str, local: str
):
    schedule = parse_schedule(cron=cron, zone=zone)
    assert upcoming(schedule, us(since), 1)[0].local[:16] == local


def test_a_pattern_looks_far_enough_for_leap_days_on_one_weekday():
    schedule = parse_schedule(cron="0 0 29 2 */7", zone=ROME)  # a star: both at once
    found = [each.local[:10] for each in upcoming(schedule, us(SPRING[0]), 2)]
    assert found == ["2032-02-29", "2060-02-29"]


def test_the_shortest_period_of_a_pattern_is_between_its_closest_times():
    assert shortest_period("0 9,17 * * *") == 8 * 3_600_000_000
    assert shortest_period("0 0 29 2 *") == 1_461 * DAY_US
    assert shortest_period("0 0 30 2 *") is None


@pytest.mark.parametrize("zone", ["UTC", ROME])
def test_a_step_near_a_change_walks_no_further_than_its_stretch(
    zone: str, monkeypatch: pytest.MonkeyPatch
):
    walks: list[int] = []
    first = stepping._first

    def counted(pattern: str, from_us: int, to_us: int | None = None) -> int | None:
        walks.append(from_us)
        return first(pattern, from_us, to_us)

    monkeypatch.setattr(stepping, "_first", counted)
    schedule = parse_schedule(cron="* * * * * *", zone=zone)
    assert len(fires(schedule, SPRING[0], SPRING[0] + HOUR)) == 3_600
    assert len(walks) <= 3_700


# --- every zone, every change, against a calculation of its own ----------------------

YEARS = (datetime(2024, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC))


@lru_cache(maxsize=1)
def zones() -> dict[tuple[tuple[datetime, int, int], ...], list[str]]:
    """Return the zones of the tz database by their changes: (instant, before, after)."""
    found: dict[tuple[tuple[datetime, int, int], ...], list[str]] = {}
    for name in sorted(available_timezones()):
        changes = tuple(changes_of(ZoneInfo(name)))
        found.setdefault(changes, []).append(name)
    return found


def offset(zone: ZoneInfo, at: datetime) -> int:
    found = at.astimezone(zone).utcoffset()
    assert found is not None
    return round(found.total_seconds())


def changes_of(zone: ZoneInfo) -> Iterator[tuple[datetime, int, int]]:
    """Find each change of offset by bisection, without any local time."""
    at, step = YEARS[0], timedelta(days=5)
    while at < YEARS[1]:
        following = at + step
        if offset(zone, at) != offset(zone, following):
            low, high = at, following
            while high - low > timedelta(seconds=1):
                middle = (low + (high - low) / 2).replace(microsecond=0)
                if offset(zone, middle) == offset(zone, low):
                    low = middle
                else:
                    high = middle
            yield high, offset(zone, low), offset(zone, high)
        at = following


def naive(at: datetime, seconds: int) -> datetime:
    return (at + timedelta(seconds=seconds)).replace(tzinfo=None)


Change = tuple[datetime, int, int]


def readings(local: datetime, change: Change) -> list[datetime]:
    """Return the instants at which the clock shows a local time, from two offsets."""
    instant, *offsets = change
    early, late = (local.replace(tzinfo=UTC) - timedelta(seconds=s) for s in offsets)
    shown = [early] if early < instant else []
    return [*shown, late] if late >= instant and (late not in shown) else shown


def expected(local: datetime, change: Change, gap: str, overlap: str) -> list[datetime]:
    """Return the instants of a fixed local time under the rules, from two offsets."""
    instant, before, after = change
    shown = readings(local, change)
    if len(shown) == 2:
        return {"first": shown[:1], "second": shown[1:], "both": shown}[overlap]
    if shown or gap == "skip":
        return shown
    if gap == "run-at-resume":
        return [instant]
    moved = local.replace(tzinfo=UTC) - timedelta(seconds=before)
    if naive(moved, after).date() != local.date():
        return [local.replace(tzinfo=UTC) - timedelta(seconds=after)]
    return [moved]


def parted(part: int) -> Iterator[tuple[str, Change]]:
    """Yield each change of a quarter of the zones; one zone stands for its equals."""
    for at, (changes, names) in enumerate(sorted(zones().items(), key=lambda z: z[1])):
        if at % 4 == part:
            yield from ((names[0], change) for change in changes)


def test_there_is_no_zone_and_no_change_that_was_not_looked_at():
    names = [name for group in zones().values() for name in group]
    assert len(names) == len(set(names)) > 590
    assert set(names) == available_timezones()
    assert sum(len(changes) for changes in zones()) > 400


def times_near(change: Change) -> list[datetime]:
    """Return local times in, at the edges of, and away from what a change does."""
    instant, before, after = change
    first, last = (naive(instant, f(before, after)) for f in (min, max))
    middle = first + (last - first) // 2
    minute = timedelta(minutes=1)
    near = [first - minute, first, middle, last - minute, last, middle - 5 * HOUR]
    return [each.replace(second=0) for each in near]


@pytest.mark.parametrize("part", range(4))
def test_every_local_day_has_its_fixed_time_once(part: int):
    looked = 0
    for name, change in parted(part):
        instant = change[0]
        for local in times_near(change):
            looked += 1
            schedule = parse_schedule(
                cron=f"{local.minute} {local.hour} * * *", zone=name
            )
            since = instant - timedelta(hours=60)
            found = fires(schedule, since, instant + timedelta(hours=60))
            assert expected(local, change, "shift", "first")[0] in found, (name, local)
            days = [naive(f, offset(ZoneInfo(name), f)).date() for f in found]
            assert days == each_day(days[0], days[-1]), (name, local)
    assert looked > 300


RULES = [("shift", "first"), ("skip", "second"), ("run-at-resume", "both")]


@pytest.mark.parametrize(("gap", "overlap"), RULES)
@pytest.mark.parametrize("part", range(4))
def test_fixed_times_follow_every_rule_in_every_zone(part: int, gap: str, overlap: str):
    for name, change in parted(part):
        since, until = (change[0] + timedelta(hours=n) for n in (-60, 60))
        for local in times_near(change)[1:4]:
            schedule = parse_schedule(
                cron=f"{local.minute} {local.hour} * * *",
                zone=name,
                gap=gap,
                overlap_hour=overlap,
            )
            wanted = {
                at
                for n in range(-4, 5)
                for at in expected(local + timedelta(days=n), change, gap, overlap)
                if since < at <= until
            }
            assert fires(schedule, since, until) == sorted(wanted), (name, local)


def each_day(first: date, last: date) -> list[date]:
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


@pytest.mark.parametrize(("cron", "every"), [("0 * * * *", 60), ("*/15 * * * *", 15)])
@pytest.mark.parametrize("part", range(4))
def test_wild_hours_run_in_every_real_hour(part: int, cron: str, every: int):
    step = timedelta(minutes=every)
    for name, (instant, before, after) in parted(part):
        since, until = (instant + timedelta(hours=n) for n in (-5, 5))
        found = fires(parse_schedule(cron=cron, zone=name), since, until)
        wanted = [
            each
            for n in range(int((until - since) / timedelta(minutes=1)) + 1)
            if (each := (since + timedelta(minutes=n)).replace(second=0)) > since
            and naive(each, before if each < instant else after).minute % every == 0
        ]
        assert found == wanted, (name, instant)
        if (after - before) % (60 * every) == 0:
            assert {b - a for a, b in pairwise(found)} == {step}, (name, instant)


def test_no_step_of_a_year_in_a_zone_goes_back_or_stands_still():
    schedule = parse_schedule(cron="0,30 0-3 * * *", zone="Africa/Casablanca")
    at = us("2026-01-01T00:00Z")
    until = us("2027-01-01T00:00Z")
    while (following := next_after(schedule, at)) is not None and following < until:
        assert following > at
        at = following
    assert at > us("2026-12-31T00:00Z")
