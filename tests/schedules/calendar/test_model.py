"""Schedules as values: one text for each, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.schedules.calendar.model import (
    Calendar,
    CatchUp,
    Cron,
    Fold,
    Gap,
    Instants,
    Interval,
    Once,
    Schedule,
    decode,
    encode,
)

INSTANTS = st.integers(-(2**53), 2**62)
CALENDARS: st.SearchStrategy[Calendar] = st.one_of(
    st.builds(Cron, pattern=st.sampled_from(["0 0 * * *", "*/5 * * * MON-FRI"])),
    st.builds(Interval, every_us=st.integers(1, 2**53), anchor_at=INSTANTS),
    st.builds(Once, at=INSTANTS),
    st.builds(Instants, instants=st.lists(INSTANTS, min_size=1).map(tuple)),
)
SCHEDULES = st.builds(
    Schedule,
    calendar=CALENDARS,
    zone=st.sampled_from(["UTC", "Europe/Rome", "Asia/Tokyo"]),
    gap=st.sampled_from(Gap),
    overlap_hour=st.sampled_from(Fold),
    jitter_us=st.integers(0, 2**53),
    catch_up=st.sampled_from(CatchUp),
    catch_up_max_age_us=st.integers(0, 2**53),
)


@given(SCHEDULES)
def test_a_schedule_is_one_text_and_comes_back_from_it(schedule: Schedule):
    text = encode(schedule)
    assert decode(text) == schedule
    assert encode(decode(text)) == text


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (
            Schedule(calendar=Cron(pattern="0 8 * * *"), zone="Asia/Tokyo"),
            '{"calendar":{"type":"cron","pattern":"0 8 * * *"},"zone":"Asia/Tokyo"}',
        ),
        (
            Schedule(calendar=Interval(every_us=5, anchor_at=2), gap=Gap.SKIP),
            '{"calendar":{"type":"interval","every_us":5,"anchor_at":2},"gap":"skip"}',
        ),
        (Schedule(calendar=Once(at=1)), '{"calendar":{"type":"once","at":1}}'),
        (
            Schedule(calendar=Instants(instants=(1, 2)), overlap_hour=Fold.BOTH),
            '{"calendar":{"type":"instants","instants":[1,2]},"overlap_hour":"both"}',
        ),
    ],
)
def test_the_text_of_a_schedule_is_what_databases_hold(schedule: Schedule, text: str):
    assert encode(schedule) == text
    assert decode(text) == schedule


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "soon",
        '{"calendar":{"type":"moon"}}',
        '{"calendar":{"type":"interval","every_us":0}}',
        '{"calendar":{"type":"once","at":1},"jitter_us":-1}',
        '{"calendar":{"type":"once","at":1},"gap":"jump"}',
    ],
)
def test_what_is_no_schedule_is_not_read(text: str):
    with pytest.raises(ValueError, match="cannot be read"):
        decode(text)
